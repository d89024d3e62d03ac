// Package bolt keeps what serve knows of sites in one file of its state
// directory, by way of go.etcd.io/bbolt: the entries of robots/cache, and the
// clocks of policy/pace.
//
// It knows nothing of what is in an entry. Whatever is given to it is gathered in
// memory, found there, and committed to disk by [Store.Run], synced, at once after
// a quiet time and a few times a second at most. The file is locked: it is one
// process's own.
//
// How it fails: a file that is in use is [ErrInUse], and nothing else keeps a
// process from starting. A file that is damaged, or no store at all, is renamed to
// FILE.damaged-TIME, which is said in the log, and a new one is begun; likewise
// where the damage shows later, even if it is a fault within the mapped file or a
// panic within bbolt. bbolt trusts what it reads, and some damage would keep it going
// for ever (a page that leads to itself), so its pages are counted before anything
// else is done with a file. While the disk takes nothing, which is said once, what
// comes is gathered, up to a ceiling, and tried again. The caller of Load or Save
// waits for no disk that is slow: the one gives up with its context, and need not ask
// the disk for what was never saved, the other takes no notice.
//
// The file never grows beyond Options.MaxBytes, whatever is saved. bbolt itself refuses to
// grow it further, and the Store removes entries before that happens: first those of the
// clients that have the most.
//
// A Store may be shared by any number of goroutines. Open starts nothing.
package bolt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

const (
	// commitEvery is the least time between two commits.
	commitEvery = 250 * time.Millisecond

	// sweepEvery is how often what is over is taken out of the file.
	sweepEvery = time.Hour

	// retryEvery is how long the disk is left alone after it has failed. It
	// doubles up to maxRetry where one file after the other proves damaged.
	retryEvery = 10 * time.Second
	maxRetry   = time.Hour

	// defaultMaxBytes is how large the file may become, in bytes. It has room for about
	// 250,000 robots.txt files of the usual size.
	defaultMaxBytes = 1 << 30

	// reserve is the divisor of MaxBytes that gives the space that only empty may use,
	// because freeing pages takes pages. The file grows in steps of half that space.
	reserve = 32

	// clockKept is how long a clock is kept beyond its use, because the wall clock may
	// be set.
	clockKept = 2 * time.Hour
)

// ErrInUse is the error of a file that another process has open.
var ErrInUse = errors.New("another robotsproxy serves from it")

// errAway is the error of what would have needed a file while there is none.
var errAway = errors.New("the store is away for the moment")

// Options make a [Store].
type Options struct {
	File      string       // required; it is made with mode 0600 where there is none
	MaxBytes  int64        // of the file, which never grows beyond them; near that size entries are removed, see sweep; zero means 1 GiB
	MaxClocks int          // clocks in the file; beyond, those that would be of use for longest are removed; zero means 262,144
	Log       *slog.Logger // hears of damage, and when the disk fails; required
}

// A Store is the open file and what is yet to be written to it.
type Store struct {
	file      string
	maxBytes  int64
	maxClocks int
	seed      maphash.Seed // of filed and owner
	log       *slog.Logger

	found  contents // by Open
	counts counts

	turn   chan struct{} // holds a token while somebody uses what follows; see use
	db     *bbolt.DB     // nil: there is none at present
	handle *os.File      // db's, which has the lock
	info   os.FileInfo   // handle's
	clocks int           // how many clocks are in db
	again  time.Time     // when a file may be opened again
	wait   time.Duration // from the next damage until then
	closed bool

	wake    chan struct{} // holds a token: there is something to commit
	mu      sync.Mutex    // guards what follows
	pending *batch        // newer than what is in writing
	writing *batch        // being committed, and unchanged meanwhile; both are newer than the file
	filed   keys          // of the entries in the file, and maybe more
	lost    int           // entries that pending had no room for
	gaps    bool          // or clocks
	failing bool          // the disk, and it has been said
}

// Open opens the file, or makes it. Where it can do neither, but for ErrInUse, the
// Store begins without one and tries again later.
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
		file: o.File, maxBytes: o.MaxBytes, maxClocks: o.MaxClocks, seed: maphash.MakeSeed(), log: o.Log,
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), pending: newBatch(), writing: newBatch(),
	}
	var err error
	s.found, err = s.begin()
	if errors.Is(err, ErrInUse) {
		return nil, fmt.Errorf("%w (%s is locked)", ErrInUse, o.File)
	}
	if err != nil {
		s.tell(err)
	}
	return s, nil
}

// Clocks gives the clocks that Open found and that may still hold something up.
func (s *Store) Clocks() []pace.Clock { return s.found.clocks }

// Since is the last time at which something may have been sent that no clock tells
// of: when the Store was opened, if the process before did not get to Close, or clocks
// of its were lost; else what it was for that process. Zero: never.
func (s *Store) Since() time.Time { return s.found.since }

// Load gives the entry of o that was saved last; nil where there is none, or it
// is over. It fails with ctx, or where the file has just proved damaged.
func (s *Store) Load(ctx context.Context, o robots.Origin) ([]byte, error) {
	key := o.String()
	if value, ok := s.inMemory(key); ok {
		return value.current(time.Now()), nil
	}
	var found []byte
	err := s.use(ctx, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			value := getEntry(tx.Bucket(robotsBucket), []byte(key))
			if value == nil {
				return nil
			}
			if !value.whole(key) {
				return damage("the entry of %s", key)
			}
			found = value.current(time.Now())
			return nil
		})
	})
	if errors.Is(err, errAway) {
		return nil, nil
	}
	return found, err
}

// Save keeps entry, which is of no use after until, for o. The entry counts against the
// share of client, or, if client is "", of the client that it counted against before.
func (s *Store) Save(o robots.Origin, entry []byte, until time.Time, client string) {
	key := o.String()
	value := seal(key, entry, until)
	s.mu.Lock()
	s.pending.add(key, value, s.owner(client))
	s.shed()
	s.mu.Unlock()
	s.nudge()
}

// SaveClocks has the clocks kept, each in place of the one of its key. Where anything
// was sent, the last call before Close is to bring all that still count.
func (s *Store) SaveClocks(clocks []pace.Clock) {
	now := time.Now()
	s.mu.Lock()
	for i := range clocks {
		c := &clocks[i]
		text, err := json.Marshal(c)
		if err != nil { // a time beyond the year 9999
			s.gaps = true
			continue
		}
		until := now.Add(c.Gap)
		if latest := c.Until(); latest.After(until) {
			until = latest
		}
		if !s.pending.addClock(c.Key, seal(c.Key, text, until.Add(clockKept))) {
			s.gaps = true
		}
	}
	s.mu.Unlock()
	if len(clocks) > 0 {
		s.nudge()
	}
}

// owner gives the number under which the entries of client are counted; 0: no client's.
func (s *Store) owner(client string) uint32 {
	if client == "" {
		return 0
	}
	return uint32(maphash.String(s.seed, client))
}

func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// inMemory gives what is not in the file yet, or nil where there is nothing in it
// either; not ok: the file has to be asked.
func (s *Store) inMemory(key string) (value sealed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok = s.pending.get(key); !ok {
		value, ok = s.writing.get(key)
	}
	return value, ok || s.filed.lacks(key)
}

// Run commits what is gathered, and keeps the file below its ceiling, until ctx
// ends. Run it once.
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
			_ = s.use(ctx, s.sweep) // use has told what there is to tell
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

// Close commits what is left and closes the file. It is called once, when Run has
// ended and nothing is saved any more; what fails is told to the log.
func (s *Store) Close() {
	_ = s.commit(context.Background(), true)
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	if s.db != nil {
		if err := safely(s.db.Close); err != nil {
			s.tell(err)
		}
		s.db = nil
	}
}

// commit writes what is gathered, and at the end, where no clock was lost, a mark of it.
func (s *Store) commit(ctx context.Context, end bool) error {
	for {
		if more, err := s.commitPart(ctx, end); err != nil || !more {
			return err
		}
	}
}

// commitPart writes as much as is written at once, and says whether there is more.
func (s *Store) commitPart(ctx context.Context, end bool) (more bool, _ error) {
	s.mu.Lock()
	s.writing = s.pending.part(maxCommit)
	more = s.pending.order.Len() > 0
	b, end := s.writing, end && !more && !s.gaps
	s.mu.Unlock()
	err := s.use(ctx, func(db *bbolt.DB) error {
		err := s.put(db, b, end)
		for _, makeRoom := range []func(*bbolt.DB) error{s.thin, s.empty} {
			if !errors.Is(err, bolterrors.ErrMaxSizeReached) {
				break
			}
			if err = makeRoom(db); err == nil {
				err = s.put(db, b, end)
			}
		}
		s.measure()
		if err == nil && s.clocks > s.maxClocks+s.maxClocks/clockSlack {
			err = s.sweepClocks(db)
		}
		if err == nil && inUse(db) > s.maxBytes/4*3 {
			if err = s.sweep(db); errors.Is(err, bolterrors.ErrMaxSizeReached) {
				err = s.empty(db)
			}
		}
		return err
	})
	s.settle(err)
	return more, err
}

// put commits a batch, and with end the mark of an orderly end.
func (s *Store) put(db *bbolt.DB, b *batch, end bool) error {
	clocks := 0
	err := db.Update(func(tx *bbolt.Tx) (err error) {
		if clocks, err = b.write(tx); err != nil || !end {
			return err
		}
		mark, err := s.found.since.MarshalBinary()
		if err != nil {
			return err
		}
		return tx.Bucket(metaBucket).Put(endKey, mark)
	})
	if err == nil {
		s.clocks += clocks
	}
	return err
}

// settle ends a commit; what was not written is gathered again, but for what is
// newer by now.
func (s *Store) settle(err error) {
	s.mu.Lock()
	if err != nil {
		s.gaps = !s.pending.addOlder(s.writing) || s.gaps
		s.shed()
	} else {
		for key, e := range s.writing.entries {
			s.filed.add([]byte(key), e.Value.(item).owner)
		}
	}
	s.writing = newBatch()
	lost, recovered := s.lost, err == nil && s.failing
	if recovered {
		s.failing, s.lost = false, 0
	}
	s.mu.Unlock()
	if recovered {
		s.log.Info("what is known of sites can be kept again", "file", s.file, "entries_lost", lost)
	}
	if err != nil {
		s.nudge()
	}
}

// shed drops what there is no room for. The caller holds s.mu.
func (s *Store) shed() {
	n := s.pending.shrink(maxPending)
	s.lost += n
	s.counts.lost.Add(uint64(n))
}

// tell counts that the disk fails, and says so once.
func (s *Store) tell(err error) {
	s.counts.failures.Add(1)
	s.mu.Lock()
	told := s.failing
	s.failing = true
	s.mu.Unlock()
	if !told {
		s.log.Warn("what is known of sites cannot be kept; it stays in memory, and the disk is tried again", "file", s.file, "error", err)
	}
}
