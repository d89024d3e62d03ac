package pace

import (
	"slices"
	"time"
)

// A waiter is a request that waits for a concurrency slot or for a permit to send.
type waiter struct {
	*request

	// fair is the queue in which the waiter waits for a concurrency slot. If it is nil, the waiter waits in queue.ready for
	// the permit.
	fair *fairQueue

	// rated means that the request waits for a rate, see Pacer.Wait.
	rated bool

	// since is when the wait began, and until is when the waiter is refused.
	since, until time.Time

	// index is the position in host.expiry.
	index int

	// ready is closed when the waiter is granted or refused.
	ready chan struct{}

	// done means that ready is closed. host.mu guards it.
	done bool

	// err is nil if the waiter was granted. It may be read once ready is closed.
	err error
}

func (w *waiter) finish(err error) {
	w.done, w.err = true, err
	close(w.ready)
}

// expiry is a heap of waiters, ordered by the time when they are refused.
type expiry []*waiter

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push implements heap.Interface.
func (e *expiry) Push(w any) {
	w.(*waiter).index = len(*e)
	*e = append(*e, w.(*waiter))
}

// Pop implements heap.Interface.
func (e *expiry) Pop() any {
	last := len(*e) - 1
	w := (*e)[last]
	(*e)[last] = nil
	// An empty queue takes no memory.
	if *e = (*e)[:last]; last == 0 {
		*e = nil
	}
	return w
}

// A fairQueue is a queue in which clients take turns. The waiters of one client go in the
// order in which they arrived. The zero value is empty.
type fairQueue struct {
	// lines has a line for each client that waits. The first one is next.
	lines []*line
}

// A line is the part of a fairQueue that belongs to one client.
type line struct {
	client string

	// waiters is never empty while the line is in a fairQueue.
	waiters []*waiter
}

// find returns the index of a client's line, or -1.
func (q *fairQueue) find(client string) int {
	return slices.IndexFunc(q.lines, func(ln *line) bool { return ln.client == client })
}

func (q *fairQueue) push(w *waiter) {
	before := q.before(w.request)
	i := q.find(w.client)
	if i < 0 {
		i = len(q.lines)
		q.lines = append(q.lines, &line{client: w.client})
	}
	q.lines[i].waiters = slices.Insert(q.lines[i].waiters, before, w)
}

// remove removes w from any position.
func (q *fairQueue) remove(w *waiter) {
	i := q.find(w.client)
	ln := q.lines[i]
	at := slices.Index(ln.waiters, w)
	if ln.waiters = slices.Delete(ln.waiters, at, at+1); len(ln.waiters) == 0 {
		q.lines = slices.Delete(q.lines, i, i+1)
	}
	// An empty queue takes no memory.
	if len(q.lines) == 0 {
		q.lines = nil
	}
}

// tookTurn moves a client behind all others.
func (q *fairQueue) tookTurn(client string) {
	if i := q.find(client); i >= 0 {
		ln := q.lines[i]
		q.lines = append(slices.Delete(q.lines, i, i+1), ln)
	}
}

// size returns the number of waiters.
func (q *fairQueue) size() (n int) {
	for _, ln := range q.lines {
		n += len(ln.waiters)
	}
	return n
}

// before returns how many waiters of the same client would go before r if r arrived now.
func (q *fairQueue) before(r *request) int {
	i := q.find(r.client)
	if i < 0 {
		return 0
	}
	waiters := q.lines[i].waiters
	if r.limits.First {
		return firsts(waiters)
	}
	return len(waiters)
}

// firsts returns how many of one client's waiters are under Limits.First. They go before the others.
func firsts(waiters []*waiter) int {
	if i := slices.IndexFunc(waiters, func(w *waiter) bool { return !w.limits.First }); i >= 0 {
		return i
	}
	return len(waiters)
}

// inOrder returns all waiters in the order in which they would go.
func (q *fairQueue) inOrder() []*waiter {
	all := make([]*waiter, 0, q.size())
	lines := slices.Clone(q.lines)
	for round := 0; len(lines) > 0; round++ {
		lines = slices.DeleteFunc(lines, func(ln *line) bool { return round >= len(ln.waiters) })
		for _, ln := range lines {
			all = append(all, ln.waiters[round])
		}
	}
	return all
}

// others reports whether a request of another client waits that is delayed neither by its
// client's own limiter nor by its host's back-off.
func (q *fairQueue) others(client string, now time.Time) bool {
	for _, ln := range q.lines {
		if w, _ := ln.front(now); w != nil && w.client != client && w.ownDue(now) == 0 {
			return true
		}
	}
	return false
}

// front returns the first waiter of a line that nothing holds but the queue, or the time
// after which to check again.
func (ln *line) front(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, w := range ln.waiters {
		d := w.backOff().left(now)
		if w.rated {
			d = max(d, w.apartLeft(now))
		}
		if d == 0 {
			return w, never
		}
		wake = min(wake, d)
	}
	return nil, wake
}
