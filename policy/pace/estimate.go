package pace

import "time"

// permitIn returns how long r would wait for the permit if it prepared its connection now.
func (h *host) permitIn(r *request, now time.Time) time.Duration {
	ahead, _ := r.queue.ahead(now, h.leadTime())
	d := h.forecast(r, ahead, now, r.backOff().Until)
	if r.own != nil {
		d = max(d, r.own.forecast(r.ownTerms(), r.own.preparing, now, now))
	}
	return d
}

// forecast returns how long its limiter delays r if ahead requests of its queue go first and no
// request is sent before start.
func (h *host) forecast(r *request, ahead int, now, start time.Time) time.Duration {
	d := r.queue.limiter.forecast(r.terms(now), ahead, now, start)
	if wait, ok := r.queue.follows(r, ahead, now); ok {
		d = min(d, max(wait, start.Sub(now)))
	}
	return d
}

// forecastBehind is forecast with two corrections: the requests ahead take more time (less if
// negative) than the same number of requests like r, and with a Store, no request is sent before
// the slot that it has given, and those behind it wait for other processes too.
func (h *host) forecastBehind(r *request, ahead int, more time.Duration, now time.Time) time.Duration {
	st := r.process.standing()
	shared := r.process.store != nil && !st.StoreAway
	lead := r.heldLeft(now)
	if st.StoreAway {
		from, _ := st.Turns.next(r.limits.Key, r.limits.gap(), now)
		lead = max(lead, from.Sub(now))
	}
	if shared {
		lead = max(lead, r.queue.slotIn(now))
	}
	start := now.Add(lead)
	d := h.forecast(r, ahead, now, start)
	if d > never-max(0, more) {
		return never
	}
	d = max(d+more, h.forecast(r, 0, now, start))
	if shared && d > lead {
		d = min(never-lead, r.queue.stretch(d-lead, &r.limits, now)) + lead
	}
	return d
}

// queueAhead adds to n the waiters of its queue that would go before r if r arrived now. It
// adds to more how much longer these take than the same number of requests like r. A client
// with a rate of its own counts with no more waiters than its rate permits in that time.
func (h *host) queueAhead(r *request, n int, more time.Duration, now time.Time) (int, time.Duration) {
	q := &r.queue.waiting
	// round is how many rounds come before that of r, and last is 1 while the lines come before r in its own round.
	round, last := q.before(r), 1
	like := r.interval(now)
	count := func(ln *line, most int) {
		for _, w := range ln.waiters[:min(len(ln.waiters), most)] {
			if w.isApart(r, now) {
				continue
			}
			n++
			more += w.interval(now) - like
		}
	}
	owned := false
	for _, ln := range q.lines {
		switch {
		case ln.client == r.client:
			last = 0
			count(ln, round)
		case ln.waiters[0].own != nil:
			owned = true
		default:
			count(ln, round+last)
		}
	}
	if !owned {
		return n, more
	}
	while := h.forecastBehind(r, n, more, now)
	for _, ln := range q.lines {
		if own := ln.waiters[0].own; own != nil && ln.client != r.client {
			count(ln, min(round+1, own.within(while, now)))
		}
	}
	return n, more
}

// estimate returns how long r would wait if it arrived now, as far as the rates tell. It
// cannot know how long requests stay in flight.
func (h *host) estimate(r *request, rated bool, now time.Time) time.Duration {
	if !rated {
		return r.backOff().left(now)
	}
	q := r.queue
	ahead, more := q.readyAhead(r, now)
	for _, o := range q.preparing {
		ahead++
		more += o.interval(now) - r.interval(now)
	}
	ahead, more = h.queueAhead(r, ahead, more, now)
	d := h.forecastBehind(r, ahead, more, now)
	if r.own != nil {
		ahead := r.own.preparing
		if i := q.waiting.find(r.client); i >= 0 {
			ahead += len(q.waiting.lines[i].waiters)
		}
		d = max(d, r.own.forecast(r.ownTerms(), ahead, now, r.mayGo()))
	}
	return d
}

// busy returns the error that refuses r. wait is its estimated wait, and most is how long it
// may wait. If the concurrency limit delays r, RetryAfter is based on how long that has
// lasted.
func (h *host) busy(r *request, now time.Time, wait, most time.Duration) *BusyError {
	e := &BusyError{RetryAfter: wait, StoreAway: r.process.standing().StoreAway}
	if b := r.backOff(); b.left(now) > 0 {
		e.BackOff, e.BackOffBy = b.left(now), b.By
	}
	e.Slowed = r.spacing(now)
	blocked := r.list == nil && !h.mayStart(r, now)
	switch {
	case e.BackOff > 0 && e.BackOff >= most, r.isBackedOffTooLong(now):
		e.Reason = BackedOff
	case wait > most || !blocked:
		e.Reason = WaitTooLong
	default:
		e.Reason = ConcurrencyFull
	}
	if blocked && len(h.expiry) > 0 {
		e.RetryAfter = max(e.RetryAfter, now.Sub(h.expiry[0].since))
	}
	e.RetryAfter = max(e.RetryAfter, minRetry)
	return e
}
