// Package snapshot stores the exact bytes of every robots.txt and tdmrep.json that a decision
// rested on, and an index of when each was fetched, from where, and with which result:
//
//	snapshots/ab/cdef….txt.gz         bytes, compressed; directory and name are the SHA-256 of what was fetched
//	snapshots/ab/cdef….txt            the same as older versions wrote it, not compressed
//	snapshots/index/2026-11-21.jsonl  a JSON object a line, a file a day (UTC)
//	snapshots/new-….tmp               a file that is being written
//
// A [Store] writes. [Read], [Find] and [Index] read, also in other processes: they take no
// lock, and skip a line that is torn or incomplete. Only one Store at a time may use a
// directory.
//
// The package decides nothing and fetches nothing. If an answer cannot be stored, [Store.Save]
// returns an error, and the next call tries again. A file is complete, or it does not have its
// name. Damage from a crash of the machine is found by the hash when the file is read, and
// the file is written again when it is saved next.
//
// All files together never take more than Options.MaxSize; the Store reserves space before
// it writes. Above four fifths of that size it removes the files that no decision has rested
// on for longest, but none that was used within a day: it never drops recent evidence for
// new evidence. If that frees too little, Save fails with audit.ErrNoSpace for a file that is
// not stored yet, first for clients that have added more than their share. A file that is
// stored needs only a line of the index, which is left out if there is no space.
//
// Any number of goroutines may share a Store.
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
	"robotsproxy/policy/osfile"
	"robotsproxy/policy/wake"
	"robotsproxy/robots/fetch"
)

// maxSaved bounds the answers that are remembered as saved today, at 16 bytes each. If there are
// more, all are forgotten, which costs a line of the index for each that is used again.
const maxSaved = 64 << 10

// errPanic is the error of an operation that a panic ended.
var errPanic = errors.New("keep a snapshot: failed")

// Options make a Store.
type Options struct {
	// Dir is the directory, which is created if there is none; required.
	Dir string

	// NoSync says that Flush does not wait for the disk (fsync).
	NoSync bool

	// MaxAge is how long a file is kept after a decision last rested on it, to the day; zero: for ever.
	MaxAge time.Duration

	// MaxSize is how many bytes all files may take on the disk; zero: no limit.
	MaxSize int64

	// Log is told of files that cannot be removed, a full directory, and a directory that was removed; required.
	Log *slog.Logger
}

// A Store keeps snapshots. Make one with Open.
type Store struct {
	// o are the Options as given to Open.
	o      Options
	seed   maphash.Seed
	quota  quota
	counts counts
	saves  osfile.Watch

	// maxAge is the present Options.MaxAge.
	maxAge atomic.Int64

	// These wake Run: Options have changed or the directory was removed; too little is free; a file was refused.
	recount, full, refused wake.Signal

	// mu guards the maps, and the day of saved.
	mu         sync.RWMutex
	saved      map[answerID]struct{}
	day        string
	operations map[resource]*operation

	disk disk

	// countedDay is the day of the last count by the settled clock; for Prune only.
	countedDay string

	// loggedRefusals is the number of refusals that were logged; for Run only.
	loggedRefusals uint64
}

// An answerID identifies an answer by a hash of its URL, which an origin may have made long, and
// by when it was fetched.
type answerID struct {
	url uint64

	// fetched is a Unix time in nanoseconds.
	fetched int64
}

// A resource is what one goroutine at a time works on: the file of a hash or, for an answer
// without bytes, its line of the index.
type resource struct {
	sha string

	// id is zero if there is a sha.
	id answerID
}

// An operation saves an answer or removes a file.
type operation struct {
	id answerID

	// done is closed when err is set.
	done chan struct{}
	err  error

	// forgotten reports that what was saved was forgotten after the operation began. Store.mu guards it.
	forgotten bool
}

// Open returns a Store. It creates its directory, and counts the files in it. It starts nothing;
// see [Store.Run].
func Open(o Options) (*Store, error) {
	switch {
	case o.Dir == "":
		return nil, errors.New("snapshots: no directory")
	case o.Log == nil:
		return nil, errors.New("snapshots: no log")
	case o.MaxAge < 0 || o.MaxSize < 0:
		return nil, errOption
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, indexName), 0o700); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	s := &Store{
		o: o, seed: maphash.MakeSeed(), recount: wake.New(), full: wake.New(), refused: wake.New(),
		saved: make(map[answerID]struct{}), operations: make(map[resource]*operation),
		disk: disk{dir: o.Dir, gzipWriters: newGzipWriters()},
	}
	s.setOptions(o)
	total, err := Size(o.Dir)
	if err != nil {
		o.Log.Error("snapshot directory not fully counted", "dir", o.Dir, "error", err)
	}
	s.quota.add(total)
	return s, nil
}

var errOption = errors.New("snapshots: an option is out of range")

// SetOptions changes NoSync, MaxAge and MaxSize, and makes Run prune at once.
func (s *Store) SetOptions(o Options) error {
	if o.MaxAge < 0 || o.MaxSize < 0 {
		return errOption
	}
	s.setOptions(o)
	s.recount.Set()
	return nil
}

func (s *Store) setOptions(o Options) {
	s.disk.noSync.Store(o.NoSync)
	s.maxAge.Store(int64(o.MaxAge))
	s.quota.setMax(o.MaxSize)
}

// Save stores an answer: its bytes, if it has some, and a line of the index for each day. It is
// fast if the answer was saved on the same day; Prune notices the end of a day. What has to be
// written counts against the share of client. The error wraps audit.ErrNoSpace if there is no
// space for it, and osfile.ErrHangs if the disk hangs.
func (s *Store) Save(a *fetch.Result, client string) error {
	id := answerID{maphash.String(s.seed, a.URL), a.Fetched.UnixNano()}
	s.mu.RLock()
	_, saved := s.saved[id]
	s.mu.RUnlock()
	if saved {
		return nil
	}
	// The file and its name are synced.
	return s.saves.Do(osfile.MaxSync, func() error { return s.save(id, a, client) })
}

// save writes an answer, or waits for another goroutine that does.
func (s *Store) save(id answerID, a *fetch.Result, client string) error {
	at := resource{sha: a.SHA256}
	if at.sha == "" {
		at.id = id
	}
	for {
		op, mine := s.begin(at, id)
		switch {
		case op == nil:
			return nil
		case mine:
			s.run(at, op, a, client)
			return op.err
		}
		<-op.done
		// ErrNoSpace may be about the share of the other client.
		if op.id == id && !errors.Is(op.err, audit.ErrNoSpace) {
			return op.err
		}
	}
}

// run writes an answer and ends the operation, also after a panic, so that others never wait
// forever.
func (s *Store) run(at resource, op *operation, a *fetch.Result, client string) {
	now := time.Now().UTC()
	op.err = errPanic
	defer s.end(at, op, now)
	err := s.write(a, client, now)
	switch {
	case err == nil:
		s.counts.saved.Add(1)
	case errors.Is(err, audit.ErrNoSpace):
		s.counts.refused.Add(1)
		s.refused.Set()
	default:
		s.counts.saveFailed.Add(1)
	}
	if op.err = err; err != nil {
		op.err = fmt.Errorf("keep a snapshot: %w", err)
	}
	if s.quota.nearlyFull() {
		s.full.Set()
	}
}

// write writes an answer's bytes, unless they are stored, and its line of the index.
func (s *Store) write(a *fetch.Result, client string, now time.Time) error {
	if a.SHA256 != "" {
		if err := s.writeFile(a, client, now); err != nil {
			return err
		}
	}
	line, err := indexLine(fetchOf(a, now))
	if err != nil {
		return err
	}
	most := int64(len(line))
	if err := s.quota.reserve(client, most, lineWeight, now); err != nil {
		if a.SHA256 == "" {
			return err
		}
		// The bytes are stored, and the record has URL, hash and time of the answer.
		s.counts.unindexed.Add(1)
		return nil
	}
	added, err := s.disk.appendIndex(line, now)
	s.quota.commit(client, added, most)
	return err
}

// writeFile writes an answer's bytes, unless they are stored.
func (s *Store) writeFile(a *fetch.Result, client string, now time.Time) error {
	known, freed, err := s.disk.isStored(a, now)
	s.quota.add(-freed)
	if known || err != nil {
		return err
	}
	most := maxOnDisk(len(a.Body))
	if err := s.quota.reserve(client, most, fileWeight, now); err != nil {
		return err
	}
	size, err := s.disk.writeFile(a, now)
	s.quota.commit(client, size, most)
	return err
}

// begin begins to save an answer. op is nil if the answer was saved meanwhile. If mine is false,
// op belongs to another goroutine.
func (s *Store) begin(at resource, id answerID) (op *operation, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, saved := s.saved[id]; saved {
		return nil, false
	}
	if op := s.operations[at]; op != nil {
		return op, false
	}
	op = &operation{id: id, done: make(chan struct{})}
	s.operations[at] = op
	return op, true
}

// end ends an operation, and remembers what was saved at now.
func (s *Store) end(at resource, op *operation, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.operations, at)
	if op.err == nil && !op.forgotten {
		s.startDay(now)
		if len(s.saved) >= maxSaved {
			clear(s.saved)
		}
		s.saved[op.id] = struct{}{}
	}
	close(op.done)
}

// startDay forgets what was saved on another day. The caller holds s.mu.
func (s *Store) startDay(now time.Time) {
	if day := dayOf(now); day != s.day {
		s.day = day
		clear(s.saved)
	}
}

// forget forgets what was saved, so that everything is saved again, also what is being saved now.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.saved)
	for _, op := range s.operations {
		op.forgotten = true
	}
}

// Flush waits until the disk has all that was saved before. It also checks that the directory is
// still there. If it was removed, Flush makes it again, and answers are saved again when they are
// used. Call it about once a second. The next Flush tries again what has failed.
func (s *Store) Flush() error {
	if _, err := os.Stat(s.o.Dir); errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Error("snapshot directory removed by another process", "dir", s.o.Dir)
		s.forget()
		if err := s.disk.mkdir(filepath.Join(s.o.Dir, indexName)); err != nil {
			s.counts.syncFailed.Add(1)
			return fmt.Errorf("snapshots: %w", err)
		}
		s.recount.Set()
	}
	if err := s.disk.flush(); err != nil {
		s.counts.syncFailed.Add(1)
		return fmt.Errorf("sync snapshots: %w", err)
	}
	return nil
}

// Stats is the state of a Store.
type Stats struct {
	// Bytes is how many bytes all files take on the disk.
	Bytes int64

	// MaxBytes is how many they may take; zero: no limit.
	MaxBytes int64

	// Saved is the number of answers saved so far. An answer that is in use is saved once a day.
	Saved uint64

	// SaveFailed is the number of answers that could not be saved for another reason than space.
	SaveFailed uint64

	// Refused is the number of answers that could not be saved because there was no space.
	Refused uint64

	// Unindexed is the number of lines of the index that were left out because there was no space.
	Unindexed uint64

	// SyncFailed is the number of failed waits for the disk.
	SyncFailed uint64

	// PruneFailed is the number of searches for files to remove that failed, if only in part.
	PruneFailed uint64
}

// Stats returns the present Stats. It waits for no disk.
func (s *Store) Stats() Stats {
	c := &s.counts
	total, most := s.quota.usage()
	return Stats{
		Bytes: total, MaxBytes: most, Refused: c.refused.Load(), Unindexed: c.unindexed.Load(),
		Saved: c.saved.Load(), SaveFailed: c.saveFailed.Load(), SyncFailed: c.syncFailed.Load(), PruneFailed: c.pruneFailed.Load(),
	}
}

// counts are the counters in Stats.
type counts struct{ saved, saveFailed, refused, unindexed, syncFailed, pruneFailed atomic.Uint64 }
