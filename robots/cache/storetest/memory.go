package storetest

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Memory is an in-memory store that the replicas of a fleet share: a minimal implementation of
// cache.SharedStore.
type Memory struct {
	mu       sync.Mutex // guards what follows
	saved    map[robots.Origin]saved
	leases   map[robots.Origin]lease
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
	return &Memory{saved: make(map[robots.Origin]saved), leases: make(map[robots.Origin]lease)}
}

// Join adds a replica and returns its cache.SharedStore.
func (m *Memory) Join() *Replica {
	r := &Replica{shared: m, wake: make(chan struct{}, 1), purges: make(map[robots.Origin]string)}
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

func (m *Memory) save(o robots.Origin, s saved) (version string) {
	m.saves++
	s.version = strconv.Itoa(m.saves)
	m.saved[o] = s
	return s.version
}

// A Replica is the part of a Memory that one process uses.
type Replica struct {
	shared *Memory
	wake   chan struct{} // contains a value if changes is not empty

	// guarded by shared.mu
	changes []change
	purges  map[robots.Origin]string // versions of the purges that it knows of
}

type change struct {
	origin  robots.Origin
	what    cache.Change
	version string // version of a purge
}

// Load implements cache.Store.
func (r *Replica) Load(_ context.Context, o robots.Origin) ([]byte, error) {
	defer r.shared.begin()()
	s := r.shared.saved[o]
	if s.purge {
		r.purges[o] = s.version
		return nil, cache.ErrPurged
	}
	if !time.Now().Before(s.until) {
		return nil, nil
	}
	return bytes.Clone(s.entry), nil
}

// Save implements cache.Store.
func (r *Replica) Save(o robots.Origin, entry []byte, until time.Time, _ string) {
	defer r.shared.begin()()
	if was := r.shared.saved[o]; !was.purge || was.version == r.purges[o] {
		r.shared.save(o, saved{entry: entry, until: until})
	}
}

// Lease implements cache.SharedStore.
func (r *Replica) Lease(_ context.Context, o robots.Origin, term time.Duration) (cache.Lease, error) {
	m := r.shared
	defer m.begin()()
	c := cache.Lease{Version: m.saved[o].version}
	now := time.Now()
	if held, taken := m.leases[o]; taken && now.Before(held.until) {
		return c, nil
	}
	mine := lease{number: m.calls, until: now.Add(term)}
	m.leases[o] = mine
	c.Release = func() {
		defer m.begin()()
		if m.leases[o] == mine {
			delete(m.leases, o)
		}
	}
	return c, nil
}

// Announce implements cache.SharedStore.
func (r *Replica) Announce(o robots.Origin, what cache.Change) {
	defer r.shared.begin()()
	n := change{origin: o, what: what}
	if what == cache.Purged {
		n.version = r.shared.save(o, saved{purge: true})
		r.purges[o] = n.version
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
func (r *Replica) Watch(ctx context.Context, onChange func(robots.Origin, cache.Change)) {
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
			onChange(n.origin, n.what)
			r.notePurge(n)
		}
	}
}

// notePurge is called after onChange: what the Cache saves from then on is newer than the purge.
func (r *Replica) notePurge(n change) {
	if n.what == cache.Purged {
		r.shared.mu.Lock()
		defer r.shared.mu.Unlock()
		r.purges[n.origin] = n.version
	}
}
