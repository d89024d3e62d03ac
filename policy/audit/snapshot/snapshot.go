// Package snapshot keeps the exact bytes of every robots.txt that a decision
// rested on, and an index of when each was fetched, from where, and how that went:
//
//	snapshots/ab/cdef….txt.gz         bytes, compressed; directory and name are the SHA-256 of what was fetched
//	snapshots/ab/cdef….txt            the same as older versions wrote it, not compressed
//	snapshots/index/2026-11-21.jsonl  a JSON object a line, a file a day (UTC)
//	snapshots/new-….tmp               a file that is being written
//
// A [Store] writes; [Octets], [Find] and [Index] read, from another process too: they
// take no lock, and pass over a line that is torn or not whole yet. One Store at a
// time may have a directory.
//
// It judges nothing and fetches nothing. What cannot be kept is an error of
// [Store.Keep], and nothing is remembered of it: the next call tries again. A file is
// complete under its name or not there. What a crash of the machine did to it is
// found by its hash when it is read, and it is written again when it is next kept.
//
// All files together never take more than Options.MaxSize; the Store reserves space before
// it writes. Above four fifths of that size it removes the files that no decision has rested
// on for longest, but none that was used within a day: it never drops recent evidence for
// new evidence. If that frees too little, Keep fails with audit.ErrNoRoom for a file that is
// not kept yet, first for clients that have added more than their share. A file that is kept
// needs only a line of the index, which is left out if there is no room.
//
// A Store may be shared by any number of goroutines.
package snapshot

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/robots/fetch"
)

// maxKept is how many answers are remembered to have been kept today, at 16 octets
// each. When there are more all are forgotten; that costs a line of the index for
// each that is asked for again.
const maxKept = 64 << 10

// errUndone is of a flight that a panic ended.
var errUndone = errors.New("keep a snapshot: not done")

// Options make a Store.
type Options struct {
	Dir     string        // required; made where there is none
	NoSync  bool          // Flush does not wait for the disk (fsync)
	MaxAge  time.Duration // files are kept so long, to the day, after a decision last rested on them; zero: for good
	MaxSize int64         // bytes that all files take on the disk at most; zero: no limit
	Log     *slog.Logger  // hears what cannot be pruned, of a full directory, and of one that is gone; required
}

// A Store keeps snapshots. Make one with Open.
type Store struct {
	o      Options // but for what Use changes
	seed   maphash.Seed
	ledger ledger
	done   counts

	maxAge atomic.Int64  // of the Options
	prune  chan struct{} // holds one token: Options have changed
	full   chan struct{} // holds one token: too little is free

	mu      sync.RWMutex // guards what follows
	kept    map[key]struct{}
	day     string // that kept is of
	flights map[place]*flight

	disk    disk
	counted string // the day of the last count; Prune's own
	told    uint64 // refusals that were logged; Run's own
}

// A key names an answer: by a hash of its URL, which a stranger may have made long,
// and by when it was fetched.
type key struct {
	url     uint64
	fetched int64 // Unix time in ns
}

// A place is what one goroutine at a time works at: the file of a hash or, of an
// answer without octets, its line.
type place struct {
	sha string
	key key // zero with a sha
}

// A flight is the keeping of an answer, or the removal of a file.
type flight struct {
	key  key
	done chan struct{} // closed when err is set
	err  error
}

// Open makes a Store and its directory, and counts the files in it. It starts nothing; see
// [Store.Run].
func Open(o Options) (*Store, error) {
	switch {
	case o.Dir == "":
		return nil, errors.New("snapshots: no directory named")
	case o.Log == nil:
		return nil, errors.New("snapshots: no log to speak to")
	case o.MaxAge < 0 || o.MaxSize < 0:
		return nil, errOption
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, indexName), 0o700); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	s := &Store{
		o: o, seed: maphash.MakeSeed(), prune: make(chan struct{}, 1), full: make(chan struct{}, 1),
		kept: make(map[key]struct{}), flights: make(map[place]*flight),
		disk: disk{dir: o.Dir, zips: zips()},
	}
	s.set(o)
	total, err := Size(o.Dir)
	if err != nil {
		o.Log.Error("snapshots not all counted", "dir", o.Dir, "error", err)
	}
	s.ledger.add(total)
	return s, nil
}

var errOption = errors.New("snapshots: an option is out of range")

// Use puts other Options in force, NoSync, MaxAge and MaxSize, and has Run prune by
// them at once.
func (s *Store) SetOptions(o Options) error {
	if o.MaxAge < 0 || o.MaxSize < 0 {
		return errOption
	}
	s.set(o)
	nudge(s.prune)
	return nil
}

// nudge leaves a token in c, unless there is one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Store) set(o Options) {
	s.disk.lazy.Store(o.NoSync)
	s.maxAge.Store(int64(o.MaxAge))
	s.ledger.limit(o.MaxSize)
}

// Keep makes sure that an answer is kept: its bytes, if it has some, and a line of
// the index for each day. Nearly always it was, and that costs next to nothing; the
// end of a day is Prune's to notice. What has to be written counts against the share
// of client. The error wraps audit.ErrNoRoom if there is no space for it.
func (s *Store) Save(a *fetch.Result, client string) error {
	if a == nil {
		return nil
	}
	k := key{maphash.String(s.seed, a.URL), a.Fetched.UnixNano()}
	s.mu.RLock()
	_, kept := s.kept[k]
	s.mu.RUnlock()
	if kept {
		return nil
	}
	return s.keep(k, a, client)
}

// keep writes an answer, or waits for another goroutine that does.
func (s *Store) keep(k key, a *fetch.Result, client string) error {
	at := place{sha: a.SHA256}
	if at.sha == "" {
		at.key = k
	}
	for {
		f, mine := s.begin(at, k)
		switch {
		case f == nil:
			return nil
		case mine:
			s.fly(at, f, a, client)
			return f.err
		}
		<-f.done
		if f.key == k && !errors.Is(f.err, audit.ErrNoSpace) { // ErrNoRoom may be for the other client's share
			return f.err
		}
	}
}

// fly writes an answer and ends the flight, so that others never wait in vain.
func (s *Store) fly(at place, f *flight, a *fetch.Result, client string) {
	now := time.Now().UTC()
	f.err = errUndone
	defer s.end(at, f, now)
	err := s.write(a, client, now)
	switch {
	case err == nil:
		s.done.kept.Add(1)
	case errors.Is(err, audit.ErrNoSpace):
		s.done.refused.Add(1)
	default:
		s.done.keepFailed.Add(1)
	}
	if f.err = err; err != nil {
		f.err = fmt.Errorf("keep a snapshot: %w", err)
	}
	if errors.Is(err, audit.ErrNoSpace) || s.tight() {
		nudge(s.full)
	}
}

// write writes an answer's bytes, unless they are kept, and its line of the index.
func (s *Store) write(a *fetch.Result, client string, now time.Time) error {
	if a.SHA256 != "" {
		if err := s.writeFile(a, client, now); err != nil {
			return err
		}
	}
	line, err := lineOf(fetchOf(a, now))
	if err != nil {
		return err
	}
	most := int64(len(line))
	if err := s.ledger.take(client, most, lineWeight, now); err != nil {
		if a.SHA256 == "" {
			return err
		}
		s.done.unindexed.Add(1) // its bytes are kept, and the record has its URL, hash and time
		return nil
	}
	added, err := s.disk.line(line, now)
	s.ledger.wrote(client, added, most)
	return err
}

// writeFile writes an answer's bytes, unless they are kept.
func (s *Store) writeFile(a *fetch.Result, client string, now time.Time) error {
	known, freed, err := s.disk.known(a, now)
	s.ledger.add(-freed)
	if known || err != nil {
		return err
	}
	most := mostOnDisk(len(a.Body))
	if err := s.ledger.take(client, most, fileWeight, now); err != nil {
		return err
	}
	size, err := s.disk.file(a, now)
	s.ledger.wrote(client, size, most)
	return err
}

// begin takes a place for the keeping of k. f is nil where that was done meanwhile;
// it is another's where the place is taken.
func (s *Store) begin(at place, k key) (f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept := s.kept[k]; kept {
		return nil, false
	}
	if f := s.flights[at]; f != nil {
		return f, false
	}
	f = &flight{key: k, done: make(chan struct{})}
	s.flights[at] = f
	return f, true
}

// end gives the place back, and remembers what was kept at now.
func (s *Store) end(at place, f *flight, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, at)
	if f.err == nil {
		s.turn(now)
		if len(s.kept) >= maxKept {
			clear(s.kept)
		}
		s.kept[f.key] = struct{}{}
	}
	close(f.done)
}

// turn forgets what was kept when a day is over. s.mu is held.
func (s *Store) turn(now time.Time) {
	if day := dayOf(now); day != s.day {
		s.day = day
		clear(s.kept)
	}
}

// forget has everything kept anew.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.kept)
}

// Flush waits for the disk to have all that was kept before, and looks whether the
// directory is still there: if not it is made again, and what was in it is kept anew
// when it is asked for. It is to be called each second or so. What an error is about
// is tried again by the next Flush.
func (s *Store) Flush() error {
	if _, err := os.Stat(s.o.Dir); errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Error("the directory of snapshots was taken away", "dir", s.o.Dir)
		s.forget()
		if err := s.disk.mkdir(filepath.Join(s.o.Dir, indexName)); err != nil {
			s.done.syncFailed.Add(1)
			return fmt.Errorf("snapshots: %w", err)
		}
	}
	if err := s.disk.flush(); err != nil {
		s.done.syncFailed.Add(1)
		return fmt.Errorf("sync snapshots: %w", err)
	}
	return nil
}
