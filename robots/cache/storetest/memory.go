package storetest

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"robotsproxy/robots/cache"
)

// A Memory is an in-memory store that the replicas of a fleet share: a minimal implementation of
// cache.SharedStore.
type Memory struct {
	// mu guards the fields below.
	mu       sync.Mutex
	saved    map[cache.StoreKey]saved
	leases   map[cache.StoreKey]lease
	replicas []*Replica
	saves    int
	calls    int
}

type saved struct {
	entry   []byte
	until   time.Time
	version string
	purge   bool
}

type lease struct {
	number int
	until  time.Time
}

// NewMemory creates an empty Memory.
func NewMemory() *Memory {
	return &Memory{saved: make(map[cache.StoreKey]saved), leases: make(map[cache.StoreKey]lease)}
}

// Join adds a replica and returns its cache.SharedStore.
func (m *Memory) Join() *Replica {
	r := &Replica{shared: m, wake: make(chan struct{}, 1), purges: make(map[cache.StoreKey]string)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replicas = append(m.replicas, r)
	return r
}

// Calls returns how many calls all replicas have made.
func (m *Memory) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Leases returns how many leases there are.
func (m *Memory) Leases() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leases)
}

func (m *Memory) begin() (done func()) {
	m.mu.Lock()
	m.calls++
	return m.mu.Unlock
}

func (m *Memory) save(k cache.StoreKey, s saved) (version string) {
	m.saves++
	s.version = strconv.Itoa(m.saves)
	m.saved[k] = s
	return s.version
}

// A Replica is the part of a Memory that one process uses.
type Replica struct {
	shared *Memory

	// wake contains a value if changes is not empty.
	wake chan struct{}

	// changes are guarded by shared.mu.
	changes []change

	// purges are the versions of the purges that the replica knows of.
	purges map[cache.StoreKey]string
}

type change struct {
	key  cache.StoreKey
	what cache.Change

	// version is that of a purge.
	version string
}

// Load implements cache.Store.
func (r *Replica) Load(_ context.Context, k cache.StoreKey) ([]byte, error) {
	defer r.shared.begin()()
	s := r.shared.saved[k]
	if s.purge {
		r.purges[k] = s.version
		return nil, cache.ErrPurged
	}
	if !time.Now().Before(s.until) {
		return nil, nil
	}
	return bytes.Clone(s.entry), nil
}

// Save implements cache.Store.
func (r *Replica) Save(k cache.StoreKey, entry []byte, until time.Time, _ string) {
	defer r.shared.begin()()
	if was := r.shared.saved[k]; !was.purge || was.version == r.purges[k] {
		r.shared.save(k, saved{entry: entry, until: until})
	}
}

// Lease implements cache.SharedStore.
func (r *Replica) Lease(_ context.Context, k cache.StoreKey, term time.Duration) (cache.Lease, error) {
	m := r.shared
	defer m.begin()()
	c := cache.Lease{Version: m.saved[k].version}
	now := time.Now()
	if held, taken := m.leases[k]; taken && now.Before(held.until) {
		return c, nil
	}
	mine := lease{number: m.calls, until: now.Add(term)}
	m.leases[k] = mine
	c.Release = func() {
		defer m.begin()()
		if m.leases[k] == mine {
			delete(m.leases, k)
		}
	}
	return c, nil
}

// Announce implements cache.SharedStore.
func (r *Replica) Announce(k cache.StoreKey, what cache.Change) {
	defer r.shared.begin()()
	n := change{key: k, what: what}
	if what == cache.Purged {
		n.version = r.shared.save(k, saved{purge: true})
		r.purges[k] = n.version
	}
	for _, other := range r.shared.replicas {
		if other == r {
			continue
		}
		other.changes = append(other.changes, n)
		select {
		case other.wake <- struct{}{}:
		default:
		}
	}
}

// Watch implements cache.SharedStore.
func (r *Replica) Watch(ctx context.Context, onChange func(cache.StoreKey, cache.Change)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		r.shared.mu.Lock()
		all := r.changes
		r.changes = nil
		r.shared.mu.Unlock()
		for _, n := range all {
			onChange(n.key, n.what)
			r.notePurge(n)
		}
	}
}

// notePurge is called after onChange: what the Cache saves from then on is newer than the purge.
func (r *Replica) notePurge(n change) {
	if n.what == cache.Purged {
		r.shared.mu.Lock()
		defer r.shared.mu.Unlock()
		r.purges[n.key] = n.version
	}
}
