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

// A Memory is what the replicas of a fleet share, in memory: the shortest that keeps
// to what cache.Sharer says.
type Memory struct {
	mu       sync.Mutex // guards what follows
	saved    map[robots.Origin]saved
	leases   map[robots.Origin]lease
	replicas []*Replica
	saves    int
	calls    int
}

type saved struct {
	entry []byte
	until time.Time
	mark  string
	purge bool
}

type lease struct {
	number int
	until  time.Time
}

// NewMemory makes one that is empty.
func NewMemory() *Memory {
	return &Memory{saved: make(map[robots.Origin]saved), leases: make(map[robots.Origin]lease)}
}

// Join gives the Sharer of another replica.
func (m *Memory) Join() *Replica {
	r := &Replica{shared: m, wake: make(chan struct{}, 1), purges: make(map[robots.Origin]string)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replicas = append(m.replicas, r)
	return r
}

// Calls is how often any replica has called.
func (m *Memory) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Leases is how many claims are held.
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

func (m *Memory) save(o robots.Origin, s saved) (mark string) {
	m.saves++
	s.mark = strconv.Itoa(m.saves)
	m.saved[o] = s
	return s.mark
}

// A Replica is one process's part of a Memory.
type Replica struct {
	shared *Memory
	wake   chan struct{} // holds a token: there is something to hear

	// guarded by shared.mu
	changes []change
	purges  map[robots.Origin]string // the marks of those that it knows of
}

type change struct {
	origin robots.Origin
	what   cache.Change
	mark   string // of a purge
}

// Load is cache.Store's.
func (r *Replica) Load(_ context.Context, o robots.Origin) ([]byte, error) {
	defer r.shared.begin()()
	s := r.shared.saved[o]
	if s.purge {
		r.purges[o] = s.mark
		return nil, cache.ErrPurged
	}
	if !time.Now().Before(s.until) {
		return nil, nil
	}
	return bytes.Clone(s.entry), nil
}

// Save is cache.Store's.
func (r *Replica) Save(o robots.Origin, entry []byte, until time.Time, _ string) {
	defer r.shared.begin()()
	if was := r.shared.saved[o]; !was.purge || was.mark == r.purges[o] {
		r.shared.save(o, saved{entry: entry, until: until})
	}
}

// Claim is cache.Sharer's.
func (r *Replica) Lease(_ context.Context, o robots.Origin, term time.Duration) (cache.Lease, error) {
	m := r.shared
	defer m.begin()()
	c := cache.Lease{Version: m.saved[o].mark}
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

// Announce is cache.Sharer's.
func (r *Replica) Announce(o robots.Origin, what cache.Change) {
	defer r.shared.begin()()
	n := change{origin: o, what: what}
	if what == cache.Purged {
		n.mark = r.shared.save(o, saved{purge: true})
		r.purges[o] = n.mark
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

// Watch is cache.Sharer's.
func (r *Replica) Watch(ctx context.Context, heard func(robots.Origin, cache.Change)) {
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
			heard(n.origin, n.what)
			r.notePurge(n)
		}
	}
}

// knows is after the Cache has heard: what it saves then does not rest on what was purged.
func (r *Replica) notePurge(n change) {
	if n.what == cache.Purged {
		r.shared.mu.Lock()
		defer r.shared.mu.Unlock()
		r.purges[n.origin] = n.mark
	}
}
