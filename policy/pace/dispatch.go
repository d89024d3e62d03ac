package pace

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"
)

var errReleased = errors.New("pace: slot released")

// await unlocks h. It returns when w is granted or refused, or when ctx ends.
func (h *host) await(ctx context.Context, r *request, w *waiter, err error) error {
	// The host is locked, so either this call or Close finds the other.
	if w != nil && r.process.closed.Load() {
		h.refuseAll(ErrClosed)
	}
	h.mu.Unlock()
	if err != nil || w == nil {
		return err
	}
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		h.withdraw(w)
		return context.Cause(ctx)
	}
}

// withdraw returns what w has: its place in the queue, its concurrency slot or its
// permit.
func (h *host) withdraw(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !w.done:
		h.remove(w, time.Now())
	case w.err == nil && w.fair != nil:
		h.release(w.request)
	case w.err == nil:
		w.dropPermit()
	}
	h.dispatch()
}

// ask gives r a concurrency slot at once, or adds it to the queue and returns the waiter,
// or refuses it.
func (h *host) ask(r *request, rated bool) (*waiter, error) {
	now, l := r.process.now(), &r.limits
	r.deadline = now.Add(l.MaxWait)
	r.queue, r.own = h.queueFor(l), h.clientLimiter(r.client, l)
	h.shared = h.shared || r.backOffHost != nil
	if l.First || l.Redirected {
		l.CrawlDelay = max(l.CrawlDelay, r.queue.limiter.terms.asked)
	}
	// A limiter cannot count the request before it has terms.
	r.apply(now)
	fair := &h.connects
	if rated {
		fair = &r.queue.waiting
	}
	if h.startsNow(r, fair, now) {
		h.start(r, rated, now)
		return nil, nil
	}
	last, err := h.mayWait(r, rated, now)
	if err != nil {
		return nil, err
	}
	if last != nil {
		h.displace(last, now)
	}
	w := &waiter{request: r, fair: fair, rated: rated, since: now, until: r.deadline, ready: make(chan struct{})}
	h.enqueue(w)
	return w, nil
}

// startsNow reports whether r gets a concurrency slot at once. It does not if its queue has
// a waiter.
func (h *host) startsNow(r *request, fair *fairQueue, now time.Time) bool {
	return len(fair.lines) == 0 && h.mayStart(r, now) && r.backOff().left(now) == 0 &&
		(fair == &h.connects || r.apartLeft(now) == 0 && h.permitIn(r, now) <= min(h.leadTime(), r.limits.MaxWait))
}

// mayWait returns an error if r would wait too long or finds the queue full. last is the
// request that must leave a full queue to make space for r; nil means that the queue has
// space.
func (h *host) mayWait(r *request, rated bool, now time.Time) (last *waiter, err error) {
	l := &r.limits
	wait := h.estimate(r, rated, now)
	if wait > l.MaxWait || l.MaxWait <= 0 || r.isBackedOffTooLong(now) {
		return nil, h.busy(r, now, wait, l.MaxWait)
	}
	if h.waiting() < l.MaxQueue || l.First {
		return nil, nil
	}
	if last = h.displaceable(r); last == nil {
		e := h.busy(r, now, wait, l.MaxWait)
		e.Reason = QueueFull
		return nil, e
	}
	return last, nil
}

// displaceable finds the client that has the most requests in a full queue and returns its
// last one. It returns nil unless the client of r would still have fewer requests in the
// queue after adding r.
func (h *host) displaceable(r *request) *waiter {
	waiting := make(map[string]int)
	// most is a line of the client with the most requests.
	var most *line
	count := func(q *fairQueue) {
		for _, ln := range q.lines {
			for _, w := range ln.waiters {
				// MaxQueue does not count the fetch of a robots.txt. Fetches come first in their line, so the last waiter of
				// most is none.
				if w.limits.First {
					continue
				}
				if waiting[ln.client]++; most == nil || waiting[ln.client] > waiting[most.client] {
					most = ln
				}
			}
		}
	}
	count(&h.connects)
	h.queues(func(q *queue) { count(&q.waiting) })
	if most == nil || waiting[most.client] <= waiting[r.client]+1 {
		return nil
	}
	return most.waiters[len(most.waiters)-1]
}

// displace refuses w, which waits in a full queue.
func (h *host) displace(w *waiter, now time.Time) {
	h.remove(w, now)
	e := h.busy(w.request, now, h.estimate(w.request, w.rated, now), w.until.Sub(w.since))
	e.Reason = QueueFull
	w.finish(e)
}

// askPermit gives r the permit to send, or queues it before all requests that have no
// concurrency slot yet, or refuses it. r waits until the given time at most; zero means the time
// that readyBy returns.
func (h *host) askPermit(r *request, until time.Time) (*waiter, error) {
	now := r.process.now()
	switch {
	case r.released:
		return nil, errReleased
	case r.stage == granted:
		// The request has moved to another connection before it used its permit.
		return nil, nil
	case r.stage == preparing:
		// lead falls slowly, because a reused connection is ready sooner than a new one.
		h.lead = max(now.Sub(r.admitted), h.lead-h.lead/32)
		r.queue.prepared(r)
	default:
		r.prepare()
	}
	q := r.queue
	if len(q.ready) == 0 && r.backOff().left(now) == 0 && r.due(now) == 0 {
		h.grant(r, now)
		return nil, nil
	}
	if until.IsZero() {
		until = h.readyBy(r, now)
	}
	ahead, more := q.readyAhead(r, now)
	if wait := h.forecastBehind(r, ahead, more, now); wait > until.Sub(now) || r.isBackedOffTooLong(now) {
		r.dropPermit()
		h.dispatch()
		return nil, h.busy(r, now, wait, until.Sub(now))
	}
	w := &waiter{request: r, rated: true, since: now, until: until, ready: make(chan struct{})}
	h.enqueue(w)
	return w, nil
}

// readyBy returns the time until which r may wait for the permit.
func (h *host) readyBy(r *request, now time.Time) time.Time {
	until := r.deadline
	if !r.sent.IsZero() {
		// A replay starts a new wait.
		until = now.Add(r.limits.MaxWait)
	}
	// A request that started in time may still get its permit if dialling took long.
	if soon := now.Add(h.leadTime()); until.Before(soon) {
		until = soon
	}
	return until
}

// enqueue adds w to the queue for concurrency slots, or to the waiters that have a
// connection.
func (h *host) enqueue(w *waiter) {
	if w.fair != nil {
		w.fair.push(w)
	} else {
		w.waiter = w
		w.queue.ready = append(w.queue.ready, w)
	}
	heap.Push(&h.expiry, w)
	w.meetBackOff(w.since)
	h.dispatch()
}

// remove takes w out of its queue.
func (h *host) remove(w *waiter, now time.Time) {
	w.held.Waited += now.Sub(w.since)
	heap.Remove(&h.expiry, w.index)
	if w.fair != nil {
		w.fair.remove(w)
		return
	}
	w.waiter = nil
	i := slices.Index(w.queue.ready, w)
	w.queue.ready = slices.Delete(w.queue.ready, i, i+1)
	w.dropPermit()
}

// dispatch grants everything that can be granted now, and sets the timer for the next
// grant. Call it after anything was freed or a request has left a queue.
func (h *host) dispatch() {
	wake := never
	for len(h.expiry) > 0 {
		now := time.Now()
		w, after := h.next(now)
		if w == nil {
			late, any := h.expire(now)
			if any {
				continue
			}
			wake = min(after, late)
			break
		}
		h.remove(w, now)
		if w.fair != nil {
			w.fair.tookTurn(w.client)
			h.last = w.fair
			h.start(w.request, w.rated, now)
		} else {
			h.grant(w.request, now)
		}
		w.finish(nil)
	}
	wake = h.nextSample(wake)
	switch {
	case wake == never && h.timer != nil:
		h.timer.Stop()
	case wake == never:
	case h.timer == nil:
		h.timer = time.AfterFunc(wake, h.tick)
	default:
		h.timer.Reset(wake)
	}
}

// nextSample returns wake, or less if the transfers must be sampled before.
func (h *host) nextSample(wake time.Duration) time.Duration {
	if len(h.expiry) == 0 || h.blocked() == nil {
		h.sampleAt = time.Time{}
		return wake
	}
	now := time.Now()
	if h.sampleAt.IsZero() {
		h.sampleAt = now.Add(sampleEvery)
	}
	return min(wake, max(minWake, h.sampleAt.Sub(now)))
}

func (h *host) tick() {
	h.mu.Lock()
	late := h.relieve(time.Now())
	h.dispatch()
	h.mu.Unlock()
	if late != nil {
		late.End()
	}
}

// next returns the waiter that can continue now, or the time after which to check again.
func (h *host) next(now time.Time) (*waiter, time.Duration) {
	wake := never
	var permitted, started *waiter
	h.queues(func(q *queue) {
		if w, after := q.nextReady(now); w != nil && permitted == nil {
			permitted = w
		} else {
			wake = min(wake, after)
		}
		w, after := h.front(q, now)
		if w != nil && (started == nil || w.since.Before(started.since)) {
			started = w
		}
		wake = min(wake, after)
	})
	if permitted != nil {
		return permitted, 0
	}
	w, after := h.nextConnect(now)
	switch {
	case w == nil || started != nil && h.last == &h.connects:
	case started == nil || h.last != nil || w.since.Before(started.since):
		// Both need the concurrency slot. They alternate, and the one that has waited longer begins.
		started = w
	}
	return started, min(wake, after)
}

// nextConnect returns a waiter of WaitConnect that can continue now, or the time after which
// to check again.
func (h *host) nextConnect(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, ln := range h.connects.lines {
		w, after := ln.front(now)
		if w != nil && h.mayStart(w.request, now) {
			return w, never
		}
		wake = min(wake, after)
	}
	return nil, wake
}

// front returns the waiter of a queue that can start to prepare its connection now, or the
// time after which to check again. A waiter that is delayed by its client's own limiter or
// its host's back-off does not delay others.
func (h *host) front(q *queue, now time.Time) (*waiter, time.Duration) {
	lead, wake := h.leadTime(), never
	ahead, late := q.ahead(now, lead)
	for _, ln := range q.waiting.lines {
		w, after := ln.front(now)
		if w == nil {
			wake = min(wake, after)
			continue
		}
		if !h.mayStart(w.request, now) {
			if len(h.active) >= w.maxActive() {
				return nil, wake
			}
			// The last concurrency slot is left to other clients.
			continue
		}
		if w.own != nil {
			if d := w.own.startIn(w.ownTerms(), w.own.preparing, now, lead); d > 0 {
				wake = min(wake, d)
				continue
			}
		}
		d := q.limiter.startIn(w.terms(now), ahead, now, lead)
		if wait, ok := q.follows(w.request, ahead, now); ok {
			d = min(d, max(0, wait-lead))
		}
		if d > 0 {
			// A client with its own rate does not overtake.
			return nil, min(wake, max(minWake, min(d, late)))
		}
		return w, 0
	}
	return nil, wake
}

// start gives r a concurrency slot. If rated is true, r also starts to prepare its
// connection.
func (h *host) start(r *request, rated bool, now time.Time) {
	r.moveTo(&h.active)
	r.admitted = now
	if rated {
		h.startDial(r)
		if h.shared {
			r.origin().latency.take(now)
		}
	}
}

func (h *host) startDial(r *request) {
	r.prepare()
	r.queue.preparing = append(r.queue.preparing, r)
}

// grant gives the permit to send to r, which was preparing.
func (h *host) grant(r *request, now time.Time) {
	r.dropPermit()
	r.stage = granted
	r.held.Slowed = r.spacing(now)
	t := r.terms(now)
	r.strict, r.held.Interval, r.held.Burst = t.limit().Gap > 0, t.interval(), t.effectiveBurst()
	if v := r.reservation; v != nil {
		v.under = t.alone
	}
	r.limiters(func(l *rateLimiter) {
		l.unsent++
		if r.strict {
			l.strict++
		}
	})
}

// release takes back everything that r holds. The caller must call dispatch.
func (h *host) release(r *request) {
	r.released = true
	if w := r.waiter; w != nil {
		h.remove(w, time.Now())
		w.finish(errReleased)
	}
	r.dropPermit()
	r.moveTo(nil)
	r.leaveStore()
}

// expire refuses one waiter whose time has run out and returns true. If there is none, it
// returns the time until the next one runs out.
func (h *host) expire(now time.Time) (wake time.Duration, any bool) {
	if len(h.expiry) == 0 {
		return never, false
	}
	w := h.expiry[0]
	if d := w.until.Sub(now); d > 0 {
		return d, false
	}
	h.remove(w, now)
	e := h.busy(w.request, now, h.estimate(w.request, w.rated, now), w.until.Sub(w.since))
	if e.Reason == ConcurrencyFull {
		e.RetryAfter = max(e.RetryAfter, now.Sub(w.since))
	}
	w.finish(e)
	return 0, true
}

// backedOff must be called after a back-off has begun or become longer.
func (h *host) backedOff(now time.Time) {
	h.refuseLate(now)
	h.dispatch()
	h.notifyReserving()
}

// refuseLate refuses all waiters that would now wait too long because of a back-off.
func (h *host) refuseLate(now time.Time) {
	late := func(w *waiter, wait time.Duration) bool {
		if wait <= w.until.Sub(now) && !w.isBackedOffTooLong(now) {
			w.meetBackOff(now)
			return false
		}
		h.remove(w, now)
		w.finish(h.busy(w.request, now, wait, w.until.Sub(now)))
		return true
	}
	h.queues(func(q *queue) {
		dialling := len(q.preparing)
		// ahead is how many waiters stay, and others is how long they take together.
		ahead, others := 0, time.Duration(0)
		for _, w := range append(slices.Clone(q.ready), q.waiting.inOrder()...) {
			own := w.interval(now)
			wait := h.forecastBehind(w.request, dialling+ahead, others-time.Duration(ahead)*own, now)
			if !late(w, wait) && w.ownDue(now) <= h.leadTime() {
				ahead++
				others += own
			}
		}
	})
	for _, w := range h.connects.inOrder() {
		late(w, w.backOff().left(now))
	}
}

// refuseAll refuses all waiters. Requests that wait for a slot of a Store are only notified.
func (h *host) refuseAll(err error) {
	for now := time.Now(); len(h.expiry) > 0; {
		w := h.expiry[0]
		h.remove(w, now)
		w.finish(err)
	}
	h.dispatch()
	h.notifyReserving()
}

// waiting returns how many requests wait for a concurrency slot, as Limits.MaxQueue counts
// them.
func (h *host) waiting() int {
	n := h.connects.size()
	h.queues(func(q *queue) {
		for _, ln := range q.waiting.lines {
			n += len(ln.waiters) - firsts(ln.waiters)
		}
	})
	return n
}
