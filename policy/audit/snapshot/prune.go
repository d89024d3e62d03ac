package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"robotsproxy/policy/audit"
)

const (
	// minUnused is how long a file is never removed after it was used: Save does not
	// check again a file that it has saved on the same day, and Prune notices the end of
	// the day within an hour.
	minUnused = day + time.Hour

	// targetTenths is how many tenths of MaxSize may be in use after files were removed
	// for lack of space, so that the next new file does not cause another search.
	targetTenths = 7

	// fullRetry is when the Store searches again for files to remove, after it found too
	// few. It searches all files.
	fullRetry = 10 * time.Minute

	// tempAge is the age at which a temporary file must be one that a crash has left.
	tempAge = time.Hour

	// maxOldest bounds the files that one search finds, at about 200 bytes each.
	maxOldest = 16 << 10
)

// Run prunes at once, at each full hour, and when too little is free or a file is refused, until ctx
// ends. It logs refusals and what fails, and tries it again. It returns nil. Run it once.
func (s *Store) Run(ctx context.Context) error {
	var clock audit.SettledClock
	for {
		now := time.Now()
		if err := s.Prune(now, clock.Now()); err != nil {
			s.counts.pruneFailed.Add(1)
			s.o.Log.Error("old snapshots not removed", "error", err)
		}
		// Prune notices the end of a day soon after each full hour.
		next := now.Truncate(time.Hour).Add(time.Hour).Sub(now)
		full, refused := s.full, s.refused
		if s.quota.nearlyFull() {
			next, full = min(next, fullRetry), nil
		}
		if s.logRefusals() {
			next, full, refused = min(next, fullRetry), nil, nil
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-full:
		case <-refused:
			// The first refusal is logged at once, later ones after fullRetry.
		case <-s.recount:
			// Prune searches for expired files again, and counts the others.
			s.countedDay = ""
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// logRefusals logs how many files were refused since it last did, and reports whether any were.
func (s *Store) logRefusals() bool {
	refused := s.counts.refused.Load()
	if refused == s.loggedRefusals {
		return false
	}
	total, most := s.quota.usage()
	s.o.Log.Warn("snapshot folder full, refusing hosts whose robots.txt is not kept yet", "dir", s.o.Dir,
		"bytes", total, "max_bytes", most, "refused", refused-s.loggedRefusals)
	s.loggedRefusals = refused
	return true
}

// Prune removes files older than Options.MaxAge by an [audit.SettledClock], temporary files that a crash
// has left, and, if too little is free, the files not used for longest. It searches all files once a
// day of that clock, and if too little is free. Only one goroutine at a time may call it; [Store.Run] does.
func (s *Store) Prune(now, settled time.Time) error {
	s.mu.Lock()
	s.startDay(now)
	s.mu.Unlock()
	err := s.pruneTemp(now)
	if today := dayOf(settled); s.countedDay != today {
		err = errors.Join(err, s.pruneExpired(now, settled))
		s.countedDay = today
	}
	if s.quota.nearlyFull() {
		err = errors.Join(err, s.pruneOldest(now))
	}
	return err
}

// pruneTemp removes temporary files that a crash has left.
func (s *Store) pruneTemp(now time.Time) error {
	left, err := filepath.Glob(filepath.Join(s.o.Dir, tempPattern))
	for _, path := range left {
		info, serr := os.Lstat(path)
		if serr == nil && now.Sub(info.ModTime()) > tempAge {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// pruneExpired removes files older than MaxAge by the settled clock, and counts the others.
func (s *Store) pruneExpired(now, settled time.Time) (first error) {
	var total int64
	before := s.quota.written()
	maxAge := time.Duration(s.maxAge.Load())
	for f, err := range files(s.o.Dir) {
		if err == nil && maxAge > 0 && settled.Sub(f.used) > maxAge {
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
	// Files that were saved meanwhile may count twice until tomorrow.
	s.quota.add(total - before)
	return first
}

// pruneOldest removes the files not used for longest, until targetTenths of MaxSize are in use, or
// no file is left that may be removed.
func (s *Store) pruneOldest(now time.Time) error {
	over := func() bool {
		total, most := s.quota.usage()
		return total > most/10*targetTenths
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
				s.quota.add(-f.size)
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

// oldest returns the files not used for longest that may be removed, at most maxOldest, the oldest
// first.
func (s *Store) oldest(now time.Time) (all []file, err error) {
	trim := func() {
		slices.SortFunc(all, func(a, b file) int { return a.used.Compare(b.used) })
		all = all[:min(len(all), maxOldest)]
	}
	for f, ferr := range files(s.o.Dir) {
		if ferr != nil {
			err = ferr
			continue
		}
		if now.Sub(f.used) <= minUnused {
			continue
		}
		if all = append(all, f); len(all) == 2*maxOldest {
			trim()
		}
	}
	trim()
	return all, err
}

// remove removes a file, unless it was used again or is about to be.
func (s *Store) remove(f file, now time.Time) (gone bool, err error) {
	if now.Sub(f.used) <= minUnused {
		return false, nil
	}
	// No line is added to a file of the index whose day ended long ago.
	if f.sha == "" {
		err := os.Remove(f.path)
		return err == nil, err
	}
	at := resource{sha: f.sha}
	op, mine := s.begin(at, answerID{})
	if !mine {
		return false, nil
	}
	// Because of this error, end does not store the zero answerID.
	op.err = errPanic
	defer s.end(at, op, now)
	info, err := os.Lstat(f.path)
	if err != nil || !info.ModTime().Equal(f.used) {
		return false, nil
	}
	if err := os.Remove(f.path); err != nil {
		return false, err
	}
	return true, nil
}
