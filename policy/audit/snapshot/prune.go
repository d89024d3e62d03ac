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

	// spared is how long octets are never removed after they were kept: Keep does
	// not look at what it kept on the same day, of which Prune learns the end
	// within an hour.
	spared = day + time.Hour

	// leftAfter is when a temporary file is one that a crash has left.
	leftAfter = time.Hour

	// maxVictims is how many files are looked for at once to be removed, at about
	// 200 octets each.
	maxVictims = 16 << 10
)

// Run prunes at once and at each full hour, until ctx ends. What fails is told to the
// log, and tried again. It returns nil. Run it once.
func (s *Store) Run(ctx context.Context) error {
	for {
		now := time.Now()
		if err := s.Prune(now); err != nil {
			s.done.pruneFailed.Add(1)
			s.o.Log.Error("old snapshots cannot be removed", "error", err)
		}
		timer := time.NewTimer(now.Truncate(time.Hour).Add(time.Hour).Sub(now)) // so that a day's end is not missed
		select {
		case <-timer.C:
		case <-s.prune:
			timer.Stop()
			s.counted = "" // what is too old is looked for again
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// Prune removes what is over Options.MaxAge or MaxSize at now, and what a crash has
// left. It goes through the files once a day, and when they are too large together.
// It is for one goroutine at a time; [Store.Run] is its caller.
func (s *Store) Prune(now time.Time) error {
	s.mu.Lock()
	s.turn(now)
	s.mu.Unlock()
	err := s.pruneNew(now)
	if today := dayOf(now); s.counted != today {
		err = errors.Join(err, s.pruneOld(now))
		s.counted = today
	}
	if s.over(s.maxSize.Load()) {
		err = errors.Join(err, s.pruneLarge(now))
	}
	return err
}

// over says whether all files are larger than most, where there is a limit.
func (s *Store) over(most int64) bool { return s.maxSize.Load() > 0 && s.size.Load() > most }

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
	before := s.size.Load()
	maxAge := time.Duration(s.maxAge.Load())
	for f, err := range s.files() {
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
	s.size.Add(total - before) // what was kept meanwhile may count twice, until tomorrow
	return first
}

// pruneLarge removes the files not used for longest, until the rest is under nine
// tenths of MaxSize, or nothing is left that may go.
func (s *Store) pruneLarge(now time.Time) error {
	for goal := s.maxSize.Load() / 10 * 9; s.over(goal); {
		oldest, err := s.oldest(now)
		removed := false
		for _, f := range oldest {
			if !s.over(goal) {
				return err
			}
			gone, rerr := s.remove(f, now)
			if removed = removed || gone; gone {
				s.size.Add(-f.size)
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
	for f, ferr := range s.files() {
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

// A file has the octets of a hash, or the index of a day.
type file struct {
	path string
	sha  string    // "": it is of the index
	used time.Time // when a decision last rested on it, to the day; of the index, when the day was over
	size int64
}

// files goes through all that may be removed; an error is of one directory or file of it.
func (s *Store) files() iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		all, err := days(s.o.Dir)
		if err != nil && !yield(file{}, err) {
			return
		}
		for _, d := range all {
			path := indexPath(s.o.Dir, d)
			info, err := os.Stat(path)
			if err == nil && !yield(file{path, "", d.Add(day), info.Size()}, nil) {
				return
			}
		}
		for first := range 256 {
			dir := fmt.Sprintf("%02x", first)
			entries, err := os.ReadDir(filepath.Join(s.o.Dir, dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !yield(file{}, err) {
				return
			}
			for _, e := range entries {
				sha, ok := hashOf(dir, e.Name())
				info, err := e.Info()
				if !ok || err != nil || !info.Mode().IsRegular() {
					continue // another's, or gone
				}
				if !yield(file{octetsPath(s.o.Dir, sha), sha, info.ModTime(), info.Size()}, nil) {
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
