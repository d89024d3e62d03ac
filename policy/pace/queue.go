package pace

import (
	"slices"
	"time"
)

// A waiter is one who asked for something and did not get it at once.
type waiter struct {
	slot  *Slot
	queue *turns // where it stands, for a place; nil: among a lane's ready, for the right to send
	rated bool   // is on its way to such a right
	since time.Time
	until time.Time // then it is refused
	index int       // in host.expiry

	ready chan struct{} // closed when done
	done  bool          // let go, or refused with err; guarded by host.mu
	err   error         // to be read after ready is closed
}

func (w *waiter) finish(err error) {
	w.done, w.err = true, err
	close(w.ready)
}

// expiry is who waits, as a heap: the first is refused first.
type expiry []*waiter

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push is heap.Interface's.
func (e *expiry) Push(w any) {
	w.(*waiter).index = len(*e)
	*e = append(*e, w.(*waiter))
}

// Pop is heap.Interface's.
func (e *expiry) Pop() any {
	last := len(*e) - 1
	w := (*e)[last]
	(*e)[last] = nil
	if *e = (*e)[:last]; last == 0 {
		*e = nil // a host at rest keeps no queue
	}
	return w
}

// turns is a queue in which clients take turns; each one's waiters go in order.
// The zero value is empty.
type turns struct {
	lines  []*line // the first is next
	client map[string]*line
	n      int
	firsts int // of these, under Limits.First
}

type line struct {
	client  string
	waiters []*waiter // never empty while in turns
}

func (t *turns) push(w *waiter) {
	name := w.slot.client
	ln := t.client[name]
	if ln == nil {
		if t.client == nil {
			t.client = make(map[string]*line)
		}
		ln = &line{client: name}
		t.client[name] = ln
		t.lines = append(t.lines, ln)
	}
	ln.waiters = slices.Insert(ln.waiters, t.before(w.slot), w)
	t.n++
	if w.slot.limits.First {
		t.firsts++
	}
}

// front gives the first waiter of a line whose host is not backed off, or after how long to
// look again.
func (ln *line) front(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, w := range ln.waiters {
		d := w.slot.pause().left(now)
		if d == 0 {
			return w, never
		}
		wake = min(wake, d)
	}
	return nil, wake
}

// taken has a client whose turn was used have its next after all others.
func (t *turns) taken(client string) {
	ln := t.client[client]
	if ln == nil {
		return
	}
	i := slices.Index(t.lines, ln)
	copy(t.lines[i:], t.lines[i+1:])
	t.lines[len(t.lines)-1] = ln
}

// remove takes w out, wherever it stands.
func (t *turns) remove(w *waiter) {
	ln := t.client[w.slot.client]
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	t.n--
	if w.slot.limits.First {
		t.firsts--
	}
	if len(ln.waiters) > 0 {
		return
	}
	delete(t.client, ln.client)
	i = slices.Index(t.lines, ln)
	t.lines = slices.Delete(t.lines, i, i+1)
	if t.n == 0 {
		*t = turns{} // a host at rest keeps no queue
	}
}

// of is how many of one client's wait.
func (t *turns) of(client string) int {
	if ln := t.client[client]; ln != nil {
		return len(ln.waiters)
	}
	return 0
}

// before is how many of its own client's waiters go before s, were it to come now.
func (t *turns) before(s *Slot) int {
	ln := t.client[s.client]
	if ln == nil {
		return 0
	}
	if s.limits.First {
		if i := slices.IndexFunc(ln.waiters, func(w *waiter) bool { return !w.slot.limits.First }); i >= 0 {
			return i
		}
	}
	return len(ln.waiters)
}

// ahead adds to n how many go before s, were it to come now, and to more how much
// longer they take than as many like s: each goes under its own limits. Clients with
// a rate of their own use fewer turns than they have: as many as that rate gives them
// while the others go.
func (t *turns) ahead(s *Slot, n int, more time.Duration, now time.Time) (int, time.Duration) {
	round, last := t.before(s), 1 // rounds before its own; whether a line still comes before it in its own
	like := s.interval(now)
	count := func(ln *line, most int) {
		for _, w := range ln.waiters[:min(len(ln.waiters), most)] {
			if w.slot.apart != s.apart && w.slot.pause().left(now) > 0 {
				continue // it holds up only requests of its own host
			}
			n++
			more += w.slot.interval(now) - like
		}
	}
	owned := false
	for _, ln := range t.lines {
		switch {
		case ln.client == s.client:
			last = 0
			count(ln, round)
		case ln.waiters[0].slot.own != nil:
			owned = true
		default:
			count(ln, round+last)
		}
	}
	if !owned {
		return n, more
	}
	while := s.host.behind(s, n, more, now)
	for _, ln := range t.lines {
		if own := ln.waiters[0].slot.own; own != nil && ln.client != s.client {
			count(ln, min(round+1, own.within(while, now)))
		}
	}
	return n, more
}

// inOrder gives all waiters, in the order in which they would go.
func (t *turns) inOrder() []*waiter {
	all := make([]*waiter, 0, t.n)
	lines := slices.Clone(t.lines)
	for round := 0; len(lines) > 0; round++ {
		lines = slices.DeleteFunc(lines, func(ln *line) bool { return round >= len(ln.waiters) })
		for _, ln := range lines {
			all = append(all, ln.waiters[round])
		}
	}
	return all
}
