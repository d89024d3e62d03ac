package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
	"robotsproxy/policy/pace/limiter"
)

var errAway = errors.New("storetest: the store is away")

// A Memory is an in-process Store for a fleet: each replica has a [Member]. It shows what a
// pace.Store must do, exact to the nanosecond, and never removes state. It computes slots with
// package ledger.
type Memory struct {
	replicas int

	// Guards all fields below and those of the members.
	mu  sync.Mutex
	all []*Member

	// members that are connected.
	members int

	// Maximum of members so far.
	seen int

	// Number of slots reserved so far.
	slots uint64
	keys  map[string]*keyState
}

// A keyState is the state of one key.
type keyState struct {
	limiters map[string]ledger.Limiter

	// For each lease, the number of its first slot.
	leases  map[uint64]bool
	backOff pace.BackOff
}

// A lease is the lease that a Member gives with a slot.
type lease struct {
	// key in keyState.leases.
	name     uint64
	slot     uint64
	limiters []pace.Limiter

	// The limiters before the slot.
	before []ledger.Limiter
}

// NewMemory returns an empty Memory for a fleet of the given number of replicas.
func NewMemory(replicas int) *Memory {
	return &Memory{replicas: replicas, keys: make(map[string]*keyState)}
}

// Join returns the Store of one more replica.
func (m *Memory) Join() *Member {
	s := &Member{memory: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, s)
	m.count()
	return s
}

// count counts one more connected member.
func (m *Memory) count() {
	m.members++
	m.seen = max(m.seen, m.members)
}

// Leases returns how many concurrency slots of all keys are in use.
func (m *Memory) Leases() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, k := range m.keys {
		n += len(k.leases)
	}
	return n
}

func (m *Memory) key(name string) *keyState {
	k := m.keys[name]
	if k == nil {
		k = &keyState{limiters: make(map[string]ledger.Limiter), leases: make(map[uint64]bool)}
		m.keys[name] = k
	}
	return k
}

func (m *Memory) reserve(a pace.SlotRequest, now time.Time) pace.Reservation {
	k, backedOff := m.key(a.Key), m.key(cmp.Or(a.BackOffKey, a.Key))
	held, again := a.Lease.(lease)
	if again && a.Unused {
		k.undo(held)
	}
	again = again && k.leases[held.name]
	known := ledger.Key{BackOff: backedOff.backOff, InUse: len(k.leases)}
	if again {
		known.InUse--
	}
	given := lease{name: m.slots + 1, slot: m.slots + 1, limiters: slices.Clone(a.Limiters)}
	fetch, follows := a.Follows.(lease)
	for i, l := range a.Limiters {
		state := k.limiters[l.Name]
		given.before = append(given.before, state)
		if follows && i == 0 && fetch.limiters[0].Name == l.Name && state.Slot == fetch.slot {
			state = fetch.before[i]
		}
		known.Limiters = append(known.Limiters, state)
	}
	r := known.Reserve(&a, given.slot, now)
	backedOff.backOff = known.BackOff
	if r.At.IsZero() {
		return r
	}
	m.slots++
	if again {
		given.name = held.name
	}
	k.leases[given.name] = true
	for i, l := range a.Limiters {
		k.limiters[l.Name] = known.Limiters[i]
	}
	r.Lease = given
	return r
}

// undo returns the slot of l to each limiter that has no later slot.
func (k *keyState) undo(l lease) {
	for i, before := range l.before {
		if name := l.limiters[i].Name; k.limiters[name].Slot == l.slot {
			k.limiters[name] = before
		}
	}
}

func (k *keyState) merge(b pace.BackOff) { k.backOff = ledger.Merge(k.backOff, b) }

// A Member is one replica's Store.
type Member struct {
	memory *Memory

	// Guarded by memory.mu.
	pacer *pace.Pacer

	// since when it is disconnected; zero: it is connected.
	alone time.Time

	// The next Reserve fails.
	failing bool
}

// Notify makes the member report back-offs of the others, and their ends, to p.
func (s *Member) Notify(p *pace.Pacer) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.pacer = p
}

// Disconnect disconnects the member, as if the Store did not reply.
func (s *Member) Disconnect() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.disconnect()
}

func (s *Member) disconnect() {
	if s.alone.IsZero() {
		s.alone = time.Now()
		s.memory.members--
	}
	s.failing = false
}

// FailNext makes the next Reserve fail, which disconnects the member.
func (s *Member) FailNext() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.failing = true
}

// Reconnect ends Disconnect and FailNext.
func (s *Member) Reconnect() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if !s.alone.IsZero() {
		s.alone = time.Time{}
		s.memory.count()
	}
	s.failing = false
}

// Push reports to all members the requests that p, the member's Pacer, has sent since a
// time, and its back-offs. Call it before Reconnect and after it.
func (s *Member) Push(p *pace.Pacer, since time.Time) {
	now := time.Now()
	clocks := p.Clocks(now, since)
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, c := range clocks {
		k := s.memory.key(c.Key)
		k.merge(pace.BackOff{Until: c.BackOffUntil, Length: c.BackOffLength})
		for name, sent := range map[string]time.Time{"": c.Sent, "assets": c.AssetsSent} {
			if !sent.IsZero() {
				k.limiters[name] = ledger.Limiter{State: limiter.Spend(k.limiters[name].State, now.Add(sent.Sub(now)), c.Gap)}
			}
		}
	}
}

// Standing implements pace.Store.
func (s *Member) Standing() pace.Standing {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.alone.IsZero() {
		return pace.Standing{Alone: true, Slowdown: float64(max(m.replicas, m.seen)), Since: s.alone}
	}
	return pace.Standing{Slowdown: max(1, float64(m.replicas)/float64(m.members))}
}

// Reserve implements pace.Store.
func (s *Member) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	if ctx.Err() != nil {
		return pace.Reservation{}, context.Cause(ctx)
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.failing {
		s.disconnect()
	}
	if !s.alone.IsZero() {
		return pace.Reservation{}, errAway
	}
	return m.reserve(a, time.Now()), nil
}

// Report implements pace.Store.
func (s *Member) Report(r pace.Report) {
	for _, p := range s.report(r) {
		p.MergeBackOff(r.Key, r.BackOff)
	}
}

// report returns the Pacers that must be told of a back-off.
func (s *Member) report(r pace.Report) (notify []*pace.Pacer) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.key(r.Key)
	if l, ok := r.Lease.(lease); ok {
		delete(k.leases, l.name)
		if r.Unused {
			k.undo(l)
		}
	}
	if r.BackOff == (pace.BackOff{}) || !s.alone.IsZero() {
		return nil
	}
	if r.BackOff.Ended {
		k.backOff = pace.BackOff{}
	} else {
		k.merge(r.BackOff)
	}
	for _, other := range m.all {
		if (other != s || r.BackOff.Ended) && other.pacer != nil && other.alone.IsZero() {
			notify = append(notify, other.pacer)
		}
	}
	return notify
}
