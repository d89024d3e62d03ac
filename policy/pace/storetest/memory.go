package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
)

// remembered is how long a pause is known after its end.
const remembered = 30 * time.Minute

// trifle is for how long a clock may stand idle for the sake of another.
const trifle = 5 * time.Millisecond

var errAway = errors.New("storetest: the store is away")

// A Memory is what the Stores of a fleet have in common that lives in one process: each
// replica has a [Member]. It is the plain statement of what a pace.Store does, exact to
// the nanosecond, and keeps all that it was ever told.
type Memory struct {
	replicas int

	mu      sync.Mutex // guards all below and in its members
	all     []*Member
	members int    // that are not away
	seen    int    // as many at once were not
	turns   uint64 // given out so far
	keys    map[string]*state
}

type state struct {
	clocks  []*clock
	places  []uint64 // the number of the first turn that was given for each
	backoff pace.BackOff
}

// A clock is as it was after its last turn.
type clock struct {
	name  string
	turn  uint64 // the number of that; zero: there was none
	state limiter.State
}

// A lease is what a Member gives with a turn.
type lease struct {
	place  uint64 // its number in state.places
	turn   uint64
	before []clock // the clocks of the turn, as they were without it
}

// NewMemory gives one that is empty, for a fleet of so many replicas.
func NewMemory(replicas int) *Memory {
	return &Memory{replicas: replicas, keys: make(map[string]*state)}
}

// Join gives the Store of one more replica.
func (m *Memory) Join() *Member {
	s := &Member{memory: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, s)
	m.come()
	return s
}

func (m *Memory) come() {
	m.members++
	m.seen = max(m.seen, m.members)
}

// A Member is one replica's Store.
type Member struct {
	memory *Memory

	// Guarded by memory.mu.
	pacer *pace.Pacer
	alone time.Time // since when; zero: it is not
	deaf  bool      // Reserve fails, and it is not known yet
}

// Hear has p told of the others' pauses.
func (s *Member) Hear(p *pace.Pacer) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.pacer = p
}

// Leave has the member alone from now on, as when the Store does not answer.
func (s *Member) Leave() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.leave()
}

// Break has the next Reserve fail, and the member alone by that.
func (s *Member) Break() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.deaf = true
}

func (s *Member) leave() {
	if s.alone.IsZero() {
		s.alone = time.Now()
		s.memory.members--
	}
	s.deaf = false
}

// Return ends that.
func (s *Member) Return() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if !s.alone.IsZero() {
		s.alone = time.Time{}
		s.memory.come()
	}
	s.deaf = false
}

// Tell has all know what the member has sent alone, of which p is the Pacer: since
// then, and its pauses. It is called before Return, and after it.
func (s *Member) Tell(p *pace.Pacer, since time.Time) {
	now := time.Now()
	clocks := p.Clocks(now, since)
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, c := range clocks {
		k := s.memory.key(c.Key)
		k.merge(pace.BackOff{Until: c.BackOffUntil, Length: c.BackOffLength})
		for name, sent := range map[string]time.Time{"": c.Sent, "assets": c.AssetsSent} {
			if sent.IsZero() {
				continue
			}
			l := k.clock(name)
			l.state = limiter.Spend(l.state, now.Add(sent.Sub(now)), c.Gap)
			l.turn = 0
		}
	}
}

// Places is how many are taken of all keys.
func (m *Memory) Places() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, k := range m.keys {
		n += len(k.places)
	}
	return n
}

// Standing is pace.Store's.
func (s *Member) Standing() pace.Standing {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.alone.IsZero() {
		return pace.Standing{Alone: true, Slowdown: float64(max(m.replicas, m.seen)), Since: s.alone}
	}
	return pace.Standing{Slowdown: max(1, float64(m.replicas)/float64(m.members))}
}

// Reserve is pace.Store's.
func (s *Member) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	if ctx.Err() != nil {
		return pace.Reservation{}, context.Cause(ctx)
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.deaf {
		s.leave()
	}
	if !s.alone.IsZero() {
		return pace.Reservation{}, errAway
	}
	return m.reserve(a, time.Now()), nil
}

// Report is pace.Store's.
func (s *Member) Report(r pace.Report) {
	for _, p := range s.memory.report(s, r) {
		p.MergeBackOff(r.Key, r.BackOff)
	}
}

// report gives the Pacers that are to be told of a pause.
func (m *Memory) report(s *Member, r pace.Report) (tell []*pace.Pacer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.key(r.Key)
	if l, ok := r.Lease.(lease); ok {
		k.places = slices.DeleteFunc(k.places, func(place uint64) bool { return place == l.place })
		if r.Unused {
			k.undo(l)
		}
	}
	if r.BackOff == (pace.BackOff{}) || !s.alone.IsZero() {
		return nil
	}
	k.merge(r.BackOff)
	for _, other := range m.all {
		if other != s && other.pacer != nil && other.alone.IsZero() {
			tell = append(tell, other.pacer)
		}
	}
	return tell
}

func (m *Memory) key(name string) *state {
	k := m.keys[name]
	if k == nil {
		k = new(state)
		m.keys[name] = k
	}
	return k
}

func (m *Memory) reserve(a pace.SlotRequest, now time.Time) pace.Reservation {
	k, backedOff := m.key(a.Key), m.key(cmp.Or(a.BackOffKey, a.Key))
	if now.Sub(backedOff.backoff.Until) >= remembered {
		backedOff.backoff = pace.BackOff{}
	}
	backedOff.merge(a.BackOff)
	held, again := a.Lease.(lease)
	if again && a.Unused {
		k.undo(held)
	}
	again = again && slices.Contains(k.places, held.place)
	t := pace.Reservation{BackOff: backedOff.backoff}
	start := later(now, backedOff.backoff.Until)
	if backedOff != k && start.After(now) {
		t.Wait = start.Sub(now)
		return t
	}
	states := make([]limiter.State, len(a.Limiters))
	var first, at time.Time
	for i, c := range a.Limiters {
		states[i] = limiter.Apply(k.clock(c.Name).state, limiter.Limit{PerSecond: c.PerSecond, Burst: c.Burst, Gap: c.Gap}, c.Sent, now)
		at = later(at, states[i].Due(1, start))
		if i == 0 {
			first = at
		}
	}
	switch {
	case at.Sub(now) > a.MaxWait:
		t.Wait = at.Sub(now)
		return t
	case at.Sub(first) > trifle:
		t.Wait = at.Sub(first)
		return t
	case len(k.places) >= a.MaxConcurrent && !again:
		t.Full = true
		return t
	}
	m.turns++
	l := lease{place: m.turns, turn: m.turns}
	if again {
		l.place = held.place
	} else {
		k.places = append(k.places, l.place)
	}
	t.At = at
	end := at.Add(a.Window)
	if a.Window > 0 {
		t.Until = end
	}
	for i, c := range a.Limiters {
		had := k.clock(c.Name)
		l.before = append(l.before, *had)
		had.turn, had.state = l.turn, limiter.Take(states[i], end)
	}
	t.Lease = l
	return t
}

// undo gives back the turn of l to each clock that has none later.
func (k *state) undo(l lease) {
	for _, before := range l.before {
		if c := k.clock(before.name); c.turn == l.turn {
			*c = before
		}
	}
}

func (k *state) merge(b pace.BackOff) {
	k.backoff.Until = later(k.backoff.Until, b.Until)
	k.backoff.Length = max(k.backoff.Length, b.Length)
}

func (k *state) clock(name string) *clock {
	for _, c := range k.clocks {
		if c.name == name {
			return c
		}
	}
	c := &clock{name: name}
	k.clocks = append(k.clocks, c)
	return c
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
