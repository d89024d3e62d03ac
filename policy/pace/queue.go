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

	// client has the lines by client.
	client map[string]*line

	// n is the number of waiters, and firsts is how many of them are under Limits.First.
	n, firsts int
}

// A line is the part of a fairQueue that belongs to one client.
type line struct {
	client string

	// waiters is never empty while the line is in a fairQueue.
	waiters []*waiter
}

func (q *fairQueue) push(w *waiter) {
	ln := q.client[w.client]
	if ln == nil {
		if q.client == nil {
			q.client = make(map[string]*line)
		}
		ln = &line{client: w.client}
		q.client[w.client] = ln
		q.lines = append(q.lines, ln)
	}
	ln.waiters = slices.Insert(ln.waiters, q.before(w.request), w)
	q.n++
	if w.limits.First {
		q.firsts++
	}
}

// remove removes w from any position.
func (q *fairQueue) remove(w *waiter) {
	ln := q.client[w.client]
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	q.n--
	if w.limits.First {
		q.firsts--
	}
	if len(ln.waiters) > 0 {
		return
	}
	delete(q.client, ln.client)
	i = slices.Index(q.lines, ln)
	q.lines = slices.Delete(q.lines, i, i+1)
	// An empty queue takes no memory.
	if q.n == 0 {
		*q = fairQueue{}
	}
}

// tookTurn moves a client behind all others.
func (q *fairQueue) tookTurn(client string) {
	if ln := q.client[client]; ln != nil {
		i := slices.Index(q.lines, ln)
		q.lines = append(slices.Delete(q.lines, i, i+1), ln)
	}
}

// of returns the number of a client's waiters.
func (q *fairQueue) of(client string) int {
	if ln := q.client[client]; ln != nil {
		return len(ln.waiters)
	}
	return 0
}

// before returns how many waiters of the same client would go before r if r arrived now.
func (q *fairQueue) before(r *request) int {
	ln := q.client[r.client]
	if ln == nil {
		return 0
	}
	if r.limits.First {
		if i := slices.IndexFunc(ln.waiters, func(w *waiter) bool { return !w.limits.First }); i >= 0 {
			return i
		}
	}
	return len(ln.waiters)
}

// inOrder returns all waiters in the order in which they would go.
func (q *fairQueue) inOrder() []*waiter {
	all := make([]*waiter, 0, q.n)
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
