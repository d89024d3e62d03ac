// Package filestore keeps entries of robots/cache in a directory that several processes share at the same time and
// one after the other: the runs of one state directory. Each entry has a file:
//
//	robots/3a/ba78….entry    the sealed entry; the name is the SHA-256 of its key
//	robots/3a/new-….tmp      a file that is being written
//
// The package does not interpret entries, and gives no right to fetch: two processes that need the same robots.txt at
// the same time may both fetch it. The entry that is saved last stays.
//
// How it fails: an entry that cannot be written is not kept, which is logged once. A file has its name only when it
// is complete, also if the process is killed or the disk is full. A damaged file, and what is not a regular file,
// counts as no entry and is removed. Save only queues, and drops entries if the queue is full. Load ends with its
// context. While the disk hangs, Load fails at once, and nothing is written.
//
// The directory never has many more files and bytes than maxFiles and maxBytes say: whoever writes into a
// subdirectory also removes its expired files and, beyond the limits, the oldest ones. To remove a file that another
// process has just written costs one more fetch.
//
// Any number of goroutines may share a Store.
package filestore

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/policy/osfile"
	"robotsproxy/policy/wake"
	"robotsproxy/robots/cache"
)

const (
	// maxPending limits the bytes of entries that are not yet written.
	maxPending = 16 << 20

	// closeLimit is how long Close goes on writing.
	closeLimit = osfile.MaxWrite
)

// A Store is a directory of entries, and the entries that are not yet written to it. Make one with New.
type Store struct {
	dir  directory
	log  *slog.Logger
	disk osfile.Watch

	// wake holds a token if something is pending.
	wake wake.Signal

	// logged is done when a failure was logged.
	logged sync.Once

	// mu guards the fields below.
	mu      sync.Mutex
	pending map[string]*item

	// bytes is the size of the pending entries.
	bytes int
}

// An item is an entry that is not yet written.
type item struct {
	key   string
	value seal.Value
}

// New returns a Store in dir, which need not exist; its parent must. It starts nothing and does not use the disk;
// see [Store.Run].
func New(dir string, log *slog.Logger) *Store {
	return &Store{dir: directory(dir), log: log, wake: wake.New(), pending: make(map[string]*item)}
}

// Of returns the part of s for one kind of file, such as robots.txt. It keeps the entries of different kinds apart.
func (s *Store) Of(kind string) cache.Store { return part{s, kind} }

// A part is the entries of one kind.
type part struct {
	store *Store
	kind  string
}

func (p part) key(k cache.StoreKey) string { return p.kind + "\n" + k.String() }

// Load implements [cache.Store].
func (p part) Load(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	return p.store.load(ctx, p.key(k))
}

// Save implements [cache.Store]. The clients of a directory are the user's own, so they have no shares.
func (p part) Save(k cache.StoreKey, entry []byte, until time.Time, _ string) {
	p.store.save(item{p.key(k), seal.New(p.key(k), entry, until)})
}

func (s *Store) load(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	i := s.pending[key]
	s.mu.Unlock()
	if i != nil {
		return i.value.Current(time.Now()), nil
	}
	v, err := s.read(ctx, func() (seal.Value, error) { return s.dir.read(key) })
	return v.Current(time.Now()), err
}

// read returns what op reads from the disk. It does not wait longer than ctx, nor for a disk that hangs.
func (s *Store) read(ctx context.Context, op func() (seal.Value, error)) (v seal.Value, err error) {
	if err := cmp.Or(ctx.Err(), s.disk.Err()); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	var found seal.Value
	var failed error
	running := s.disk.Begin(osfile.MaxWrite)
	go func() {
		defer close(done)
		defer running.End()
		found, failed = op()
	}()
	select {
	case <-done:
		return found, failed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// save queues i, unless the queue is full.
func (s *Store) save(i item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := len(i.value)
	if old := s.pending[i.key]; old != nil {
		size -= len(old.value)
	}
	if s.bytes+size > maxPending {
		return
	}
	s.pending[i.key] = &i
	s.bytes += size
	s.wake.Set()
}

// Run writes what is saved until ctx ends. It must run once.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			s.writePending(ctx)
		}
	}
}

// Close writes what is pending, as far as the disk takes it within closeLimit. Call it after Run has returned and after
// the last Save.
func (s *Store) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	s.writePending(ctx)
}

// writePending writes until nothing is pending or ctx ends. Only one goroutine at a time may call it.
func (s *Store) writePending(ctx context.Context) {
	for ctx.Err() == nil {
		var i *item
		s.mu.Lock()
		for _, i = range s.pending {
			break
		}
		s.mu.Unlock()
		if i == nil {
			return
		}
		s.written(i, s.disk.Do(osfile.MaxWrite, func() error { return s.dir.write(i.key, i.value, time.Now()) }))
	}
}

// written removes i from what is pending, also if it could not be written. It logs the first failure.
func (s *Store) written(i *item, err error) {
	s.mu.Lock()
	if s.pending[i.key] == i {
		delete(s.pending, i.key)
		s.bytes -= len(i.value)
	}
	s.mu.Unlock()
	if err != nil {
		s.logged.Do(func() { s.log.Warn("fetched file not kept for later runs", "dir", string(s.dir), "error", err) })
	}
}
