package stops

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/wake"
)

// The maximum numbers of stops, with those that are over.
const (
	MaxPauses    = 1_000
	MaxCoolDowns = 9_000
)

// ErrFull is the error of a pause if there are MaxPauses already.
var ErrFull = errors.New("too many pauses: end some of them")

// A Table has stops, one for each Key: at most MaxPauses and MaxCoolDowns. A further cool-down replaces one of the client that has most
// of them, and a further pause replaces one that is over. Any number of goroutines may use a Table. The nil Table has no stops:
// Of, Get, All, Any, IsEmpty and OnStop may be called on it.
type Table struct {
	// latest is when the last stop ends, in ms since 1970, and not earlier; 0: no stop holds.
	latest atomic.Int64

	// size is the number of all stops.
	size atomic.Int64

	// wake is set when Put or End has changed something.
	wake wake.Signal

	// mu guards the fields below.
	mu    sync.RWMutex
	stops map[Key]numbered

	// counts are the numbers of stops of each kind.
	counts map[Kind]int

	// last is the highest number.
	last    uint64
	watches map[*watch]struct{}
}

// A numbered stop has the number of its last change.
type numbered struct {
	Stop
	number uint64

	// own says that Put or End has made the change, not Merge.
	own bool
}

// A watch waits for a stop.
type watch struct {
	Key
	f func()
}

// New returns an empty Table.
func New() *Table {
	return &Table{wake: wake.New(), stops: map[Key]numbered{}, counts: map[Kind]int{}, watches: map[*watch]struct{}{}}
}

// IsEmpty reports whether the Table has no stops at all, not even ones that are over. It takes no lock.
func (t *Table) IsEmpty() bool { return t == nil || t.size.Load() == 0 }

// Any reports whether a stop may hold now. It takes no lock.
func (t *Table) Any() bool {
	if t == nil {
		return false
	}
	latest := t.latest.Load()
	return latest != 0 && time.Now().UnixMilli() < latest
}

// Of returns the stop of a kind that holds longest for a host and a client, and whether there is one. It does not allocate.
func (t *Table) Of(kind Kind, host, client string) (Stop, bool) {
	if !t.Any() {
		return Stop{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.of(Key{kind, host, client}, time.Now())
}

// of is Of. t.mu is held.
func (t *Table) of(k Key, now time.Time) (found Stop, ok bool) {
	for _, host := range [...]string{k.Host, ""} {
		for _, client := range [...]string{k.Client, ""} {
			s, is := t.stops[Key{k.Kind, host, client}]
			if is && s.Holds(now) && (!ok || end(&found) < end(&s.Stop)) {
				found, ok = s.Stop, true
			}
		}
	}
	return found, ok
}

// end returns when s ends, in ms since 1970, rounded up.
func end(s *Stop) int64 {
	if s.Until.IsZero() {
		return math.MaxInt64
	}
	return s.Until.UnixMilli() + 1
}

// Get returns the stop with a key, also if it is over, and whether there is one.
func (t *Table) Get(k Key) (Stop, bool) {
	if t == nil {
		return Stop{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.stops[k]
	return s.Stop, ok
}

// Other returns a stop of a kind that holds for another client at a host, and whether there is one.
func (t *Table) Other(kind Kind, host, client string) (Stop, bool) {
	now := time.Now()
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k, s := range t.stops {
		if k.Kind == kind && k.Host == host && k.Client != "" && k.Client != client && s.Holds(now) {
			return s.Stop, true
		}
	}
	return Stop{}, false
}

// All returns the stops that hold now, by kind, host and client.
func (t *Table) All() (all []Stop) {
	if !t.Any() {
		return nil
	}
	now := time.Now()
	t.mu.RLock()
	for _, s := range t.stops {
		if s.Holds(now) {
			all = append(all, s.Stop)
		}
	}
	t.mu.RUnlock()
	slices.SortFunc(all, func(a, b Stop) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Client, b.Client))
	})
	return all
}

// Put begins a stop, or changes the one with its Key. It sets Since, unless s has one, and Changed, and returns the stop. The error
// matches ErrInvalid or ErrFull.
func (t *Table) Put(s Stop) (Stop, error) {
	return t.change(s.Key(), func(was Stop, now time.Time) (Stop, bool) {
		if s.Ended = false; s.Since.IsZero() {
			if s.Since = now; was.Holds(now) && !was.Since.IsZero() {
				s.Since = was.Since
			}
		}
		s.Since, s.Until, s.Statuses = s.Since.Round(0), s.Until.Round(0), slices.Clone(s.Statuses)
		return s, true
	})
}

// End ends a stop, also one that is over, after which its Length counts no more. It reports whether the stop held. by is Stop.By.
func (t *Table) End(k Key, by string) (ended Stop, held bool) {
	ended, err := t.change(k, func(was Stop, now time.Time) (Stop, bool) {
		known := was.Kind != "" && !was.Ended
		held = known && was.Holds(now)
		was.Ended, was.By = true, by
		return was, known
	})
	return ended, held && err == nil
}

// change replaces the stop with a key by what f returns, unless that is false. was is zero if there is no stop.
func (t *Table) change(k Key, f func(was Stop, now time.Time) (Stop, bool)) (Stop, error) {
	t.mu.Lock()
	now, was := time.Now(), t.stops[k]
	s, ok := f(was.Stop, now)
	if !ok {
		t.mu.Unlock()
		return s, nil
	}
	// The change counts although the clock was set back.
	if s.Changed = now; !now.After(was.Changed) {
		s.Changed = was.Changed.Add(1)
	}
	err := s.check()
	if err == nil {
		err = t.set(s, now, true)
	}
	due := t.due(now)
	t.mu.Unlock()
	for _, w := range due {
		w.f()
	}
	if err == nil {
		t.wake.Set()
	}
	return s, err
}

// Merge takes over a stop that Read has returned, unless the Table has a later change of it. It reports whether what holds, or why,
// has changed.
func (t *Table) Merge(s Stop) bool {
	_, merged := t.MergeAfter(s, math.MaxUint64)
	return merged
}

// MergeAfter is Merge, unless Put or End has changed the stop after the change with the number sent.
func (t *Table) MergeAfter(s Stop, sent uint64) (changedHere, merged bool) {
	t.mu.Lock()
	now := time.Now()
	was, known := t.stops[s.Key()]
	if known && was.own && was.number > sent {
		t.mu.Unlock()
		return true, false
	}
	if s.Kind == CoolDown && s.Until.Sub(now) > MaxCoolDown {
		// Another clock is ahead.
		s.Until = now.Add(MaxCoolDown).Round(0)
	}
	if kept := s.KeptUntil(); known && !s.Changed.After(was.Changed) || !kept.IsZero() && !now.Before(kept) {
		t.mu.Unlock()
		return false, false
	}
	same := was.Stop
	same.Changed = s.Changed
	if known && string(same.Text()) == string(s.Text()) {
		was.Changed = s.Changed
		t.stops[s.Key()] = was
		t.mu.Unlock()
		return false, false
	}
	err := t.set(s, now, false)
	due := t.due(now)
	t.mu.Unlock()
	for _, w := range due {
		w.f()
	}
	return false, err == nil
}

// set stores a stop. t.mu is held.
func (t *Table) set(s Stop, now time.Time, own bool) error {
	k := s.Key()
	was, known := t.stops[k]
	if !known && t.counts[k.Kind] >= maxOf(k.Kind) && !t.makeRoom(k.Kind, now) {
		return ErrFull
	}
	if !known {
		t.counts[k.Kind]++
		t.size.Add(1)
	}
	t.last++
	t.stops[k] = numbered{s, t.last, own}
	switch latest := t.latest.Load(); {
	case s.Holds(now) && end(&s) >= latest:
		t.latest.Store(end(&s))
	case known && end(&was.Stop) >= latest:
		t.findLatest(now)
	}
	return nil
}

func maxOf(k Kind) int {
	if k == Paused {
		return MaxPauses
	}
	return MaxCoolDowns
}

// findLatest sets latest. t.mu is held.
func (t *Table) findLatest(now time.Time) {
	latest := int64(0)
	for _, s := range t.stops {
		if s.Holds(now) {
			latest = max(latest, end(&s.Stop))
		}
	}
	t.latest.Store(latest)
}

// makeRoom removes the stops of a kind that are of no more use or, if there are none, some of the client that has most: first those that
// are over, and those that would be kept shortest. It reports false, and removes none, for pauses that all hold. t.mu is held.
func (t *Table) makeRoom(kind Kind, now time.Time) bool {
	has, before := map[string]int{}, t.counts[kind]
	for k, s := range t.stops {
		if kept := s.KeptUntil(); k.Kind != kind {
			continue
		} else if !kept.IsZero() && !now.Before(kept) {
			t.remove(k)
		} else {
			has[k.Client]++
		}
	}
	if t.counts[kind] < before {
		return true
	}
	client, most, second := "", 0, 0
	for c, n := range has {
		if n > most {
			client, most, second = c, n, most
		} else {
			second = max(second, n)
		}
	}
	var all []Stop
	for k, s := range t.stops {
		if k.Kind == kind && k.Client == client && (kind != Paused || !s.Holds(now)) {
			all = append(all, s.Stop)
		}
	}
	slices.SortFunc(all, func(a, b Stop) int { return cmp.Compare(worth(&a, now), worth(&b, now)) })
	n := 1
	if kind == CoolDown {
		n = max(n, min(most-second, removeAtOnce))
	}
	for i := range all[:min(n, len(all))] {
		t.remove(all[i].Key())
	}
	return len(all) > 0
}

// removeAtOnce is how many cool-downs of a client makeRoom removes at most: with one at a time, each further one would cost a search.
const removeAtOnce = 100

// worth returns a number that is lower for a stop that is removed before another.
func worth(s *Stop, now time.Time) int64 {
	switch kept := s.KeptUntil(); {
	case kept.IsZero():
		return math.MaxInt64
	case s.Holds(now):
		return kept.Unix()
	default:
		return kept.Unix() + math.MinInt64/2
	}
}

// remove removes a stop. t.mu is held.
func (t *Table) remove(k Key) {
	delete(t.stops, k)
	t.counts[k.Kind]--
	t.size.Add(-1)
}

// Changes returns the stops, those that are over too, whose last change is later than the one with the number after, and the number
// of the last change of all. With own, it leaves out those that Merge has changed.
func (t *Table) Changes(after uint64, own bool) (all []Stop, last uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.last == after {
		return nil, after
	}
	for _, s := range t.stops {
		if s.number > after && (s.own || !own) {
			all = append(all, s.Stop)
		}
	}
	return all, t.last
}

// Keys returns the keys of all stops, those that are over too, as Key.String returns them.
func (t *Table) Keys() map[string]bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[string]bool, len(t.stops))
	for k := range t.stops {
		all[k.String()] = true
	}
	return all
}

// Wake returns a channel from which one goroutine receives when Put or End has changed something.
func (t *Table) Wake() <-chan struct{} { return t.wake }

// OnStop calls f once, as soon as a stop of a kind holds for a host and a client: before it returns if one holds now, else in the call
// that begins the stop, so f must not wait. cancel ends that.
func (t *Table) OnStop(kind Kind, host, client string, f func()) (cancel func()) {
	if t == nil {
		return func() {}
	}
	w := &watch{Key{kind, host, client}, f}
	t.mu.Lock()
	_, stopped := t.of(w.Key, time.Now())
	if !stopped {
		t.watches[w] = struct{}{}
	}
	t.mu.Unlock()
	if stopped {
		f()
	}
	return func() {
		t.mu.Lock()
		delete(t.watches, w)
		t.mu.Unlock()
	}
}

// due removes and returns the watches for which a stop holds. t.mu is held.
func (t *Table) due(now time.Time) (all []*watch) {
	for w := range t.watches {
		if _, stopped := t.of(w.Key, now); stopped {
			all = append(all, w)
			delete(t.watches, w)
		}
	}
	return all
}
