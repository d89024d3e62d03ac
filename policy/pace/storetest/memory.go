package storetest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
	"robotsproxy/policy/pace/limiter"
)

var errAlone = errors.New("storetest: the store is away")

// A Memory is an in-process Store for a fleet: each replica has a [Member]. It shows what a
// pace.Store must do, exact to the nanosecond, and never removes state. It computes slots with
// package ledger.
type Memory struct {
	replicas int

	// mu guards all fields below and those of the members.
	mu  sync.Mutex
	all []*Member

	// members is how many members are connected, and seen is how many were at the most so far.
	members, seen int

	// slots is the number of slots reserved so far.
	slots uint64
	keys  map[string]*keyState
}

// A keyState is the state of one key.
type keyState struct {
	limiters map[string]ledger.Limiter

	// leases has the number of the first slot of each lease.
	leases  map[uint64]bool
	backOff pace.BackOff
}

// A lease is the lease that a Member gives with a slot.
type lease struct {
	// name is the key in keyState.leases.
	name uint64
	ledger.Slot[string]
}

// NewMemory returns an empty Memory for a fleet of the given number of replicas.
func NewMemory(replicas int) *Memory {
	return &Memory{replicas: replicas, keys: make(map[string]*keyState)}
}

// Join returns the Store of one more replica.
func (m *Memory) Join() *Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Member{memory: m, number: len(m.all)}
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
	given := lease{name: m.slots + 1, Slot: ledger.Slot[string]{Number: m.slots + 1}}
	var fetch *ledger.Slot[string]
	if l, ok := a.Follows.(lease); ok {
		fetch = &l.Slot
	}
	for _, l := range a.Limiters {
		known.Limiters = append(known.Limiters, given.Add(l.Name, k.limiters[l.Name], fetch))
	}
	r := known.Reserve(&a, given.Number, now)
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

// undo gives the slot of l back.
func (k *keyState) undo(l lease) {
	l.Undo(func(name string) ledger.Limiter { return k.limiters[name] }, func(name string, was ledger.Limiter) { k.limiters[name] = was })
}

func (k *keyState) merge(b pace.BackOff) { k.backOff = ledger.Merge(k.backOff, b) }

// A Member is one replica's Store.
type Member struct {
	memory *Memory

	// pacer is told of back-offs; nil if there is none. memory.mu guards it and the fields below.
	pacer *pace.Pacer

	// number is the place of the member in memory.all.
	number int

	// alone is since when the member is disconnected; zero if it is connected.
	alone time.Time

	// quiet is pace.Turns.Quiet.
	quiet time.Time

	// failing means that the next Reserve fails.
	failing bool
}

// Notify makes the member report back-offs of the others, and their ends, to p.
func (m *Member) Notify(p *pace.Pacer) {
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	m.pacer = p
}

// Disconnect disconnects the member, as if the Store did not reply.
func (m *Member) Disconnect() {
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	m.disconnect()
}

func (m *Member) disconnect() {
	if m.alone.IsZero() {
		m.alone = time.Now()
		m.memory.members--
	}
	m.failing = false
}

// FailNext makes the next Reserve fail, which disconnects the member.
func (m *Member) FailNext() {
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	m.failing = true
}

// Return makes the member, which is disconnected, send nothing for a time, because others may be connected again before it is.
func (m *Member) Return(d time.Duration) {
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	m.quiet = time.Now().Add(d)
}

// Reconnect ends Disconnect and FailNext.
func (m *Member) Reconnect() {
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	if !m.alone.IsZero() {
		m.alone = time.Time{}
		m.memory.count()
	}
	m.failing = false
}

// Push reports to all members the requests that p, the member's Pacer, has sent since a
// time, and its back-offs. Call it before Reconnect and after it.
func (m *Member) Push(p *pace.Pacer, since time.Time) {
	now := time.Now()
	clocks := p.Clocks(now, since)
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	for _, c := range clocks {
		k := m.memory.key(c.Key)
		k.merge(pace.BackOff{Until: c.BackOffUntil, Length: c.BackOffLength})
		for name, sent := range map[string]time.Time{"": c.Sent, "assets": c.AssetsSent} {
			if !sent.IsZero() {
				k.limiters[name] = ledger.Limiter{State: limiter.Spend(k.limiters[name].State, now.Add(sent.Sub(now)), c.Gap)}
			}
		}
	}
}

// Standing implements pace.Store.
func (m *Member) Standing() pace.Standing {
	all := m.memory
	all.mu.Lock()
	defer all.mu.Unlock()
	if !m.alone.IsZero() {
		n := max(all.replicas, all.seen)
		turns := pace.Turns{Of: n, Number: m.number, From: m.alone, Quiet: m.quiet}
		return pace.Standing{StoreAway: true, Slowdown: float64(n), Since: m.alone, Turns: turns}
	}
	return pace.Standing{Slowdown: max(1, float64(all.replicas)/float64(all.members))}
}

// Reserve implements pace.Store.
func (m *Member) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	if ctx.Err() != nil {
		return pace.Reservation{}, context.Cause(ctx)
	}
	all := m.memory
	all.mu.Lock()
	defer all.mu.Unlock()
	if m.failing {
		m.disconnect()
	}
	if !m.alone.IsZero() {
		return pace.Reservation{}, errAlone
	}
	return all.reserve(a, time.Now()), nil
}

// Report implements pace.Store.
func (m *Member) Report(r pace.Report) {
	for _, p := range m.report(r) {
		p.MergeBackOff(r.Key, r.BackOff)
	}
}

// report returns the Pacers that must be told of a back-off.
func (m *Member) report(r pace.Report) (notify []*pace.Pacer) {
	all := m.memory
	all.mu.Lock()
	defer all.mu.Unlock()
	k := all.key(r.Key)
	if l, ok := r.Lease.(lease); ok {
		delete(k.leases, l.name)
		if r.Unused {
			k.undo(l)
		}
	}
	if r.BackOff == (pace.BackOff{}) || !m.alone.IsZero() {
		return nil
	}
	k.merge(r.BackOff)
	for _, other := range all.all {
		if (other != m || r.BackOff.Ended) && other.pacer != nil && other.alone.IsZero() {
			notify = append(notify, other.pacer)
		}
	}
	return notify
}
