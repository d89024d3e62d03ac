package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	day = 24 * time.Hour

	// spared is how long a file is never removed after it was kept: Keep does
	// not look at what it kept on the same day, of which Prune learns the end
	// within an hour.
	spared = day + time.Hour

	// spareTenths is how many tenths of MaxSize are in use after files were removed
	// to make room, so that the next new file does not begin that again.
	spareTenths = 7

	// fullRetry is when the Store looks again for files to remove, after it found too
	// few: the search goes through all files.
	fullRetry = 10 * time.Minute

	// leftAfter is when a temporary file is one that a crash has left.
	leftAfter = time.Hour

	// maxVictims is how many files are looked for at once to be removed, at about
	// 200 octets each.
	maxVictims = 16 << 10
)

// Run prunes at once, at each full hour, and when too little is free, until ctx ends. It
// logs what fails, and tries it again. It returns nil. Run it once.
func (s *Store) Run(ctx context.Context) error {
	for {
		now := time.Now()
		if err := s.Prune(now); err != nil {
			s.done.pruneFailed.Add(1)
			s.o.Log.Error("old snapshots cannot be removed", "error", err)
		}
		next := now.Truncate(time.Hour).Add(time.Hour).Sub(now) // so that a day's end is not missed
		full := s.full
		if s.tellFull() || s.tight() {
			next, full = min(next, fullRetry), nil
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-full:
		case <-s.prune:
			s.counted = "" // what is too old is looked for again
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// tellFull logs how many files were refused since it last did, and reports whether any
// were.
func (s *Store) tellFull() bool {
	refused := s.done.refused.Load()
	if refused == s.told {
		return false
	}
	total, most := s.ledger.used()
	s.o.Log.Warn("snapshot folder full, refusing hosts whose robots.txt is not kept yet", "dir", s.o.Dir,
		"bytes", total, "max_bytes", most, "refused", refused-s.told)
	s.told = refused
	return true
}

// Prune removes files older than Options.MaxAge at now, what a crash has left, and, if too
// little is free, the files not used for longest. It goes through all files once a day, and
// if too little is free. It is for one goroutine at a time; [Store.Run] is its caller.
func (s *Store) Prune(now time.Time) error {
	s.mu.Lock()
	s.turn(now)
	s.mu.Unlock()
	err := s.pruneNew(now)
	if today := dayOf(now); s.counted != today {
		err = errors.Join(err, s.pruneOld(now))
		s.counted = today
	}
	if s.tight() {
		err = errors.Join(err, s.pruneLarge(now))
	}
	return err
}

// tight reports whether more is in use than a lone client's share. Files are removed then,
// so that no client is refused while there are files to remove.
func (s *Store) tight() bool {
	total, most := s.ledger.used()
	return most > 0 && total > most/(fileWeight+1)*fileWeight
}

// pruneNew removes files that were not finished.
func (s *Store) pruneNew(now time.Time) error {
	left, err := filepath.Glob(filepath.Join(s.o.Dir, newNames))
	for _, path := range left {
		info, serr := os.Lstat(path)
		if serr == nil && now.Sub(info.ModTime()) > leftAfter {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// pruneOld removes what is over MaxAge, and counts the rest.
func (s *Store) pruneOld(now time.Time) (first error) {
	var total int64
	before := s.ledger.settled()
	maxAge := time.Duration(s.maxAge.Load())
	for f, err := range files(s.o.Dir) {
		if err == nil && maxAge > 0 && now.Sub(f.used) > maxAge {
			var gone bool
			if gone, err = s.remove(f, now); gone {
				continue
			}
		}
		if err != nil && first == nil {
			first = err
		}
		total += f.size
	}
	s.ledger.add(total - before) // what was kept meanwhile may count twice, until tomorrow
	return first
}

// pruneLarge removes the files not used for longest, until spareTenths of MaxSize are
// in use, or nothing is left that may go.
func (s *Store) pruneLarge(now time.Time) error {
	over := func() bool {
		total, most := s.ledger.used()
		return total > most/10*spareTenths
	}
	for over() {
		oldest, err := s.oldest(now)
		removed := false
		for _, f := range oldest {
			if !over() {
				return err
			}
			gone, rerr := s.remove(f, now)
			if removed = removed || gone; gone {
				s.ledger.add(-f.size)
			}
			if err == nil {
				err = rerr
			}
		}
		if err != nil || !removed {
			return err
		}
	}
	return nil
}

// oldest gives the files not used for longest that may go, maxVictims at most, in
// their order.
func (s *Store) oldest(now time.Time) (all []file, err error) {
	trim := func() {
		slices.SortFunc(all, func(a, b file) int { return a.used.Compare(b.used) })
		all = all[:min(len(all), maxVictims)]
	}
	for f, ferr := range files(s.o.Dir) {
		if ferr != nil {
			err = ferr
			continue
		}
		if now.Sub(f.used) <= spared {
			continue
		}
		if all = append(all, f); len(all) == 2*maxVictims {
			trim()
		}
	}
	trim()
	return all, err
}

// A file has the bytes of a hash, or the index of a day.
type file struct {
	path string
	sha  string    // "": it is of the index
	used time.Time // when a decision last rested on it, to the day; of the index, when the day was over
	size int64     // bytes that it takes on the disk; of the index, its length
}

// Size gives how many bytes all files of a snapshot directory take on the disk. The error
// is the first of several.
func Size(dir string) (total int64, first error) {
	for f, err := range files(dir) {
		if err != nil && first == nil {
			first = err
		}
		total += f.size
	}
	return total, first
}

// files goes through all that may be removed; an error is of one directory or file of it.
func files(root string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		all, err := days(root)
		if err != nil && !yield(file{}, err) {
			return
		}
		for _, d := range all {
			path := indexPath(root, d)
			info, err := os.Stat(path)
			if err == nil && !yield(file{path, "", d.Add(day), info.Size()}, nil) {
				return
			}
		}
		for first := range 256 {
			dir := fmt.Sprintf("%02x", first)
			entries, err := os.ReadDir(filepath.Join(root, dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !yield(file{}, err) {
				return
			}
			for _, e := range entries {
				sha, ok := hashOf(dir, e.Name())
				info, err := e.Info()
				if !ok || err != nil || !info.Mode().IsRegular() {
					continue // another's, or gone
				}
				if !yield(file{filepath.Join(root, dir, e.Name()), sha, info.ModTime(), onDisk(info.Size())}, nil) {
					return
				}
			}
		}
	}
}

// remove takes a file away, unless it is in use again, or about to be.
func (s *Store) remove(f file, now time.Time) (gone bool, err error) {
	if now.Sub(f.used) <= spared {
		return false, nil
	}
	if f.sha == "" { // a day that is long over: nothing is added to it
		err := os.Remove(f.path)
		return err == nil, err
	}
	at := place{sha: f.sha}
	flight := &flight{done: make(chan struct{}), err: errUndone}
	s.mu.Lock()
	_, taken := s.flights[at]
	if !taken {
		s.flights[at] = flight
	}
	s.mu.Unlock()
	if taken {
		return false, nil
	}
	defer s.end(at, flight, now)
	info, err := os.Lstat(f.path)
	if err != nil || !info.ModTime().Equal(f.used) {
		return false, nil
	}
	if err := os.Remove(f.path); err != nil {
		return false, err
	}
	return true, nil
}
