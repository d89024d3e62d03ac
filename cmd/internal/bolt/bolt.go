// Package bolt stores what the daemon remembers from one process to the next in one file of its
// state directory, by way of go.etcd.io/bbolt: the entries of robots/cache, the clocks of
// policy/pace, where the audit ended, what was used of quotas and budgets, and the stops of policy/stops.
//
// It does not interpret the entries. Changes are gathered in memory, where Load finds them, and
// committed to disk by [Store.Run], synced: at once after a quiet time, and at most a few times a
// second. The file is locked for one process.
//
// How it fails: a file that another process uses is [ErrInUse]; nothing else keeps a process from
// starting. A file that is damaged, or is not a store, is renamed to FILE.damaged-TIME, which is
// logged, and a new one is made. The same happens if the damage shows later, even as a fault within
// the mapped file or a panic within bbolt. bbolt trusts what it reads, and some damage would make
// it loop for ever (a page that refers to itself), so the pages of a file are checked before
// anything else. While the disk takes nothing, which is logged once, changes are gathered up to a
// ceiling and retried. Load and Save never wait for a slow disk: Load ends with its context, and
// does not read the disk for what was never saved; Save only gathers.
//
// The file never grows beyond Options.MaxBytes. bbolt itself refuses to grow it further, and the
// Store removes entries before that happens: first those of the clients that have the most.
//
// Any number of goroutines may share a Store. Open starts nothing.
package bolt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/wake"
	"robotsproxy/robots/cache"
)

const (
	// commitEvery is the shortest time between two commits.
	commitEvery = 250 * time.Millisecond

	// sweepEvery is how often expired values are removed from the file.
	sweepEvery = time.Hour

	// retryEvery is the time between a failure of the disk and the next attempt. It doubles up to
	// maxRetry while one file after the other proves damaged.
	retryEvery = 10 * time.Second
	maxRetry   = time.Hour

	// defaultMaxBytes is the default size limit of the file in bytes, enough for about 250,000
	// robots.txt files of the usual size.
	defaultMaxBytes = 1 << 30

	// clockKept is how long a clock is kept after it expires, because the wall clock may be set.
	clockKept = 2 * time.Hour
)

// errAway means that the file is not open at present.
var errAway = errors.New("state.db is unavailable for the moment")

// Options configure a [Store].
type Options struct {
	// File is the path of the file, which is created with mode 0600 if there is none; required.
	File string

	// MaxBytes is the size beyond which the file never grows. Near that size, entries are removed, see sweep. Zero means
	// 1 GiB.
	MaxBytes int64

	// MaxClocks is how many clocks the file has, and how many uses. Beyond it, those that would be of use for longest are removed.
	// Zero means 262,144.
	MaxClocks int

	// Log gets damage and disk failures; required.
	Log *slog.Logger
}

// A Store is the open file and the changes that are not yet written to it.
type Store struct {
	// database is used only with the token of turn, but for counts and filed.
	database

	// initial is what Open found in the file.
	initial fileContents

	// turn holds a token while a goroutine uses the database, see use.
	turn chan struct{}

	// again is when the file may be opened again, and wait is the time from the next damage until then.
	again  time.Time
	wait   time.Duration
	closed bool

	// wake holds a token if there is something to commit.
	wake wake.Signal

	// mu guards the fields below.
	mu sync.Mutex

	// pending is newer than writing, which is newer than the file. writing is being committed and does not change.
	pending, writing *batch

	// lost is how many entries were dropped because pending was full.
	lost int

	// lostClocks means that clocks were dropped.
	lostClocks bool

	// failing means that the disk fails, and that this was logged.
	failing bool

	// committed is closed, and replaced, at the end of each commit.
	committed chan struct{}
}

// lockWait is how long Open waits for the lock of the file. ReadAuditEnd has it for a moment.
const lockWait = 2 * time.Second

// Open opens the file, or makes it. If it can do neither, except for ErrInUse, the Store starts
// without a file and tries again later.
func Open(o Options) (*Store, error) {
	if o.File == "" || o.Log == nil || min(o.MaxBytes, int64(o.MaxClocks)) < 0 {
		return nil, errors.New("bolt: Options lack a File or a Log, or have a negative value")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxClocks == 0 {
		o.MaxClocks = maxClocks
	}
	s := &Store{
		database: database{
			file: o.File, maxBytes: o.MaxBytes, maxClocks: o.MaxClocks, log: o.Log, filed: keyIndex{seed: maphash.MakeSeed()},
		},
		turn: make(chan struct{}, 1), wake: wake.New(), pending: newBatch(), writing: newBatch(),
		committed: make(chan struct{}),
	}
	var err error
	s.initial, err = s.openOrReplace()
	for began := time.Now(); errors.Is(err, ErrInUse) && time.Since(began) < lockWait; {
		<-time.After(lockWait / 100)
		s.initial, err = s.openOrReplace()
	}
	if errors.Is(err, ErrInUse) {
		return nil, fmt.Errorf("%w (%s is locked)", ErrInUse, o.File)
	}
	if err != nil {
		s.logFailure(err)
	}
	return s, nil
}

// Clocks returns the clocks that Open found and that may still delay requests.
func (s *Store) Clocks() []pace.Clock { return s.initial.clocks }

// Since returns the latest time at which requests may have been sent that no clock covers: when the
// Store was opened, if the previous process did not call Close or lost clocks; else the Since of
// that process. Zero: never.
func (s *Store) Since() time.Time { return s.initial.since }

// AuditEnd returns the AuditEnd that Open found.
func (s *Store) AuditEnd() AuditEnd { return s.initial.audit }

// SaveAuditEnd stores end.
func (s *Store) SaveAuditEnd(end AuditEnd) {
	// Marshal cannot fail.
	text, _ := json.Marshal(end)
	s.mu.Lock()
	s.pending.audit = seal.New(string(auditKey), text, time.Time{})
	s.mu.Unlock()
	s.wake.Set()
}

// Uses returns the texts that SaveUse stored before Open and that have not expired.
func (s *Store) Uses() [][]byte { return s.initial.uses }

// SaveUse stores what was used of a quota or a budget, in place of the text with the same key, until it expires.
func (s *Store) SaveUse(key string, text []byte, until time.Time) {
	s.mu.Lock()
	// Beyond the bound, it is forgotten as it is in a crash.
	_ = s.pending.addTo(useTable, key, seal.New(key, text, until))
	s.mu.Unlock()
	s.wake.Set()
}

// Load returns the entry of k that was saved last; nil if there is none or it has expired. It fails
// with ctx, or if the file has just proved damaged.
func (s *Store) Load(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	return s.load(ctx, k.String())
}

func (s *Store) load(ctx context.Context, key string) ([]byte, error) {
	if value, ok := s.inMemory(key); ok {
		return value.Current(time.Now()), nil
	}
	var entry []byte
	err := s.use(ctx, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			value := getEntry(tx.Bucket(robotsBucket), []byte(key))
			if value == nil {
				return nil
			}
			if !value.IsWhole(key) {
				return damage("the entry of %s", key)
			}
			entry = value.Current(time.Now())
			return nil
		})
	})
	if errors.Is(err, errAway) {
		return nil, nil
	}
	return entry, err
}

// Save stores entry, which expires at until, for k. The entry counts against the share of client
// or, if client is "", of the client that it counted against before.
func (s *Store) Save(k cache.StoreKey, entry []byte, until time.Time, client string) {
	s.save(k.String(), entry, until, client)
}

func (s *Store) save(key string, entry []byte, until time.Time, client string) {
	value := seal.New(key, entry, until)
	s.mu.Lock()
	s.pending.add(key, value, s.owner(client))
	s.dropExcess()
	s.mu.Unlock()
	s.wake.Set()
}

// A TDMRep is the part of a Store for the entries of tdmrep.json files.
type TDMRep struct{ store *Store }

// tdmrepPrefix begins the keys of these entries, and no agent.
const tdmrepPrefix = "tdmrep\n"

// TDMRep returns the part of s for tdmrep.json. Its entries share the size limit of the file with
// those of robots.txt, and count against the same share of each client.
func (s *Store) TDMRep() TDMRep { return TDMRep{s} }

// Load is [Store.Load].
func (t TDMRep) Load(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	return t.store.load(ctx, tdmrepPrefix+k.String())
}

// Save is [Store.Save].
func (t TDMRep) Save(k cache.StoreKey, entry []byte, until time.Time, client string) {
	t.store.save(tdmrepPrefix+k.String(), entry, until, client)
}

// SaveClocks stores the clocks, each in place of the one with the same key. If anything was sent,
// the last call before Close must pass all clocks that still matter.
func (s *Store) SaveClocks(clocks []pace.Clock) {
	now := time.Now()
	s.mu.Lock()
	for i := range clocks {
		c := &clocks[i]
		// A time beyond the year 9999 has no JSON.
		text, err := json.Marshal(c)
		if err != nil {
			s.lostClocks = true
			continue
		}
		until := now.Add(c.Gap)
		if latest := c.Until(); latest.After(until) {
			until = latest
		}
		if !s.pending.addTo(clockTable, c.Key, seal.New(c.Key, text, until.Add(clockKept))) {
			s.lostClocks = true
		}
	}
	s.mu.Unlock()
	if len(clocks) > 0 {
		s.wake.Set()
	}
}

// owner returns the number under which the entries of client are counted; 0: no client.
func (s *Store) owner(client string) uint32 {
	if client == "" {
		return 0
	}
	return uint32(maphash.String(s.filed.seed, client))
}

// inMemory returns the value of a key that is not yet in the file, nil if there is none in the file
// either; ok is false if the file must be read.
func (s *Store) inMemory(key string) (value seal.Value, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok = s.pending.get(key); !ok {
		value, ok = s.writing.get(key)
	}
	return value, ok || s.filed.lacks(key)
}

// Run commits changes and keeps the file below its size limit until ctx ends. It must run once.
func (s *Store) Run(ctx context.Context) error {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		rest := commitEvery
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			// use has logged any error.
			_ = s.use(ctx, s.sweep)
		case <-s.wake:
			if s.commit(ctx, false) != nil {
				rest = retryEvery
			}
		}
		pause.Reset(rest)
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}

// Commit writes what was saved before it. A failure is logged, and Run tries again.
func (s *Store) Commit() { _ = s.commit(context.Background(), false) }

// Close commits the remaining changes and closes the file. It must be called once, after Run has
// returned and after the last Save. It logs failures.
func (s *Store) Close() {
	_ = s.commit(context.Background(), true)
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	if s.db != nil {
		if err := safely(s.db.Close); err != nil {
			s.logFailure(err)
		}
		s.db = nil
	}
}

// commit writes the pending changes; at the end of the process, unless clocks were lost, also a
// mark of the orderly end.
func (s *Store) commit(ctx context.Context, end bool) error {
	for {
		if more, err := s.commitPart(ctx, end); err != nil || !more {
			return err
		}
	}
}

// commitPart writes what fits into one commit, and reports whether there is more.
func (s *Store) commitPart(ctx context.Context, end bool) (more bool, _ error) {
	s.mu.Lock()
	s.writing = s.pending.part(maxCommit)
	more = s.pending.order.Len() > 0
	b, end := s.writing, end && !more && !s.lostClocks
	s.mu.Unlock()
	err := s.use(ctx, func(db *bbolt.DB) error {
		err := s.put(db, b, end)
		for _, makeRoom := range []func(*bbolt.DB) error{s.makeRoom, s.empty} {
			if !errors.Is(err, bolterrors.ErrMaxSizeReached) {
				break
			}
			if err = makeRoom(db); err == nil {
				err = s.put(db, b, end)
			}
		}
		s.measure()
		for i, n := range s.kept {
			if err == nil && n > s.maxClocks+s.maxClocks/clockSlack {
				err = s.sweepTable(db, i)
			}
		}
		if err == nil && inUse(db) > s.maxBytes/4*3 {
			if err = s.sweep(db); errors.Is(err, bolterrors.ErrMaxSizeReached) {
				err = s.empty(db)
			}
		}
		return err
	})
	s.finishCommit(err)
	return more, err
}

// put commits a batch and, if end is set, the mark of an orderly end.
func (s *Store) put(db *bbolt.DB, b *batch, end bool) error {
	var added [tableCount]int
	err := db.Update(func(tx *bbolt.Tx) (err error) {
		if added, err = b.write(tx); err != nil || !end {
			return err
		}
		mark, err := s.initial.since.MarshalBinary()
		if err != nil {
			return err
		}
		return tx.Bucket(metaBucket).Put(endKey, mark)
	})
	for i, n := range added {
		if err == nil {
			s.kept[i] += n
		}
	}
	return err
}

// finishCommit ends a commit. If it failed, the batch becomes pending again, except for values that
// have been replaced meanwhile.
func (s *Store) finishCommit(err error) {
	s.mu.Lock()
	b := s.writing
	close(s.committed)
	s.committed = make(chan struct{})
	if s.writing = newBatch(); err != nil {
		s.lostClocks = !s.pending.addOlder(b) || s.lostClocks
		s.dropExcess()
	} else {
		for key, e := range b.entries {
			s.filed.add([]byte(key), e.Value.(item).owner)
		}
	}
	lost, recovered := s.lost, err == nil && s.failing
	if recovered {
		s.failing, s.lost = false, 0
	}
	s.mu.Unlock()
	if recovered {
		s.log.Info("state.db written again", "file", s.file, "entries_lost", lost)
	}
	if err != nil {
		s.wake.Set()
	}
}

// dropExcess drops the oldest entries beyond the memory limit. An older entry in the file does not take the place of a
// dropped one. The caller holds s.mu.
func (s *Store) dropExcess() {
	n := s.pending.shrink(maxPending, func(key string) bool {
		_, written := s.writing.get(key)
		return written || !s.filed.lacks(key)
	})
	s.lost += n
	s.counts.lost.Add(uint64(n))
}

// logFailure counts a failure of the disk, and logs the first.
func (s *Store) logFailure(err error) {
	s.counts.failures.Add(1)
	s.mu.Lock()
	told := s.failing
	s.failing = true
	s.mu.Unlock()
	if !told {
		s.log.Warn("state.db write failed, keeping its contents in memory until a retry succeeds", "file", s.file, "error", err)
	}
}

// use runs f on the file with the token of turn: one call at a time, because a panic within bbolt
// may leave it locked for good. If the file is not open or proves damaged, use opens or replaces
// it.
func (s *Store) use(ctx context.Context, f func(*bbolt.DB) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.db == nil {
		if s.closed || time.Now().Before(s.again) {
			return errAway
		}
		if _, err := s.openOrReplace(); err != nil {
			s.again = time.Now().Add(retryEvery)
			s.logFailure(err)
			return err
		}
	}
	err := safely(func() error { return f(s.db) })
	switch {
	case err == nil:
	case errors.Is(err, errDamaged):
		// The next call makes the new file.
		s.again = time.Now().Add(s.wait)
		s.wait = min(max(2*s.wait, retryEvery), maxRetry)
		if err := s.renameDamaged(err); err != nil {
			s.logFailure(err)
		}
	case errors.Is(err, bolterrors.ErrInvalidMapping) || errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		// bbolt could not map the file again, so the next call opens it again.
		s.forgetFile()
		s.logFailure(err)
	default:
		s.logFailure(err)
	}
	return err
}

// Stats is the state of a Store.
type Stats struct {
	// Bytes is the size of the file at the last commit.
	Bytes int64

	// Pending is how many bytes of entries are not yet written.
	Pending int

	// Failures is how often the file could not be opened, read or written.
	Failures uint64

	// Damaged is the number of damaged files.
	Damaged uint64

	// Lost is the number of entries dropped while the disk took none.
	Lost uint64
}

// Stats does not wait for the disk.
func (s *Store) Stats() Stats {
	c := &s.counts
	st := Stats{Bytes: c.size.Load(), Failures: c.failures.Load(), Damaged: c.damaged.Load(), Lost: c.lost.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Pending = s.pending.bytes + s.writing.bytes
	return st
}
