package pace

import (
	"slices"
	"time"
)

func (w *waiter) finish(err error) {
	w.done, w.err = true, err
	close(w.ready)
}

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

// countSent counts a request that is sent now. If a request shares the slot of a fetch,
// both count as one, and the next gap begins with the request.
func (q *queue) countSent(r *request) {
	before := q.limiter.last
	if q.sharesFetch(r, r.sent) {
		q.limiter.followed(r.sent)
	} else {
		q.limiter.sent(r.sent)
	}
	if r.own != nil {
		r.own.sent(r.sent)
	}
	q.shared, q.before, q.fetched = r.limits.Shared, before, nil
	if r.process.store != nil {
		if v := r.reservation; v != nil {
			q.fetched = v.lease
		}
		q.shared = q.shared && q.fetched != nil
	}
}

// nextReady returns the waiter whose permit is due, or the time after which to check
// again. No waiter overtakes another, except one that is delayed by its client's own
// limiter or its host's back-off.
func (q *queue) nextReady(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, w := range q.ready {
		if d := max(w.backOff().left(now), w.ownDue(now)); d > 0 {
			wake = min(wake, d)
		} else if d := w.due(now); d > 0 {
			return nil, min(wake, d)
		} else {
			return w, 0
		}
	}
	return nil, wake
}

// readyAhead returns how many requests with a connection go before r, and how much longer
// these take than the same number of requests like r.
func (q *queue) readyAhead(r *request, now time.Time) (n int, more time.Duration) {
	for _, w := range q.ready {
		if w.ownDue(now) <= r.host.leadTime() {
			n++
			more += w.interval(now) - r.interval(now)
		}
	}
	return n, more
}

// ahead returns how many started requests will need a permit before a request that starts
// now and takes lead to connect. It does not count a request that has been connecting for
// twice that time, so that the others lose no slots, nor one that its client's own limiter
// delays. wake is the time until the next connecting request is no longer counted.
func (q *queue) ahead(now time.Time, lead time.Duration) (n int, wake time.Duration) {
	usual, late := 2*lead, 0
	for late < len(q.preparing) && now.Sub(q.preparing[late].admitted) >= usual {
		late++
	}
	wake = never
	if late < len(q.preparing) {
		wake = usual - now.Sub(q.preparing[late].admitted)
	}
	n = len(q.preparing) - late
	for _, w := range q.ready {
		if w.ownDue(now) <= lead {
			n++
		}
	}
	return n, wake
}
