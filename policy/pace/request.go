package pace

import (
	"slices"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// origin returns the host that r is for, which may share its rate with others. Only its backOff and
// latency may be used without its lock.
func (r *request) origin() *host {
	if r.backOffHost != nil {
		return r.backOffHost
	}
	return r.host
}

// spacing returns the minimum time between two requests to the host that r is for because of its
// slow responses; zero: they are not slow.
func (r *request) spacing(now time.Time) time.Duration {
	if !r.limits.Adapt {
		return 0
	}
	return r.origin().latency.spacing(now)
}

// backOff returns the back-off that applies to r.
func (r *request) backOff() BackOff {
	held := r.origin().backOff.get()
	if r.limits.fetch() {
		return held.host
	}
	return held.of(r.client)
}

// apartLeft returns how long r is delayed by what does not delay all requests of the same queue: Limits.NotBefore, a
// back-off of its client or, if hosts share a rate, a back-off and the slow responses of its host.
func (r *request) apartLeft(now time.Time) time.Duration {
	left := max(0, r.limits.NotBefore.Sub(now))
	switch held := r.origin().backOff.get(); {
	case r.host.shared && r.limits.Adapt:
		return max(left, r.backOff().left(now), r.origin().latency.turnLeft(r.admitted, now))
	case r.host.shared:
		return max(left, r.backOff().left(now))
	case len(held.clients) > 0 && !r.limits.fetch():
		if own := held.apart(r.client); own != nil {
			return max(left, own.left(now))
		}
	}
	return left
}

// mayGo returns when neither a back-off nor Limits.NotBefore delays r any more.
func (r *request) mayGo() time.Time { return limiter.Later(r.backOff().Until, r.limits.NotBefore) }

// heldLeft returns how long r is delayed by a back-off, or as apartLeft says.
func (r *request) heldLeft(now time.Time) time.Duration {
	return max(r.backOff().left(now), r.apartLeft(now))
}

// isApart reports whether r is delayed as apartLeft says by what does not delay o.
func (r *request) isApart(o *request, now time.Time) bool {
	if r.backOffHost != o.backOffHost {
		return r.heldLeft(now) > 0
	}
	return max(0, r.mayGo().Sub(now)) > max(0, o.mayGo().Sub(now))
}

// meetBackOff notes the back-off that delays r, for Held.
func (r *request) meetBackOff(now time.Time) {
	if b := r.backOff(); b.left(now) > r.held.BackOff {
		r.held.BackOff, r.held.By = b.left(now), b.By
	}
}

// isBackedOffTooLong reports whether the back-off lasts longer than Limits.MaxBackOff.
func (r *request) isBackedOffTooLong(now time.Time) bool {
	return r.limits.MaxBackOff > 0 && r.backOff().left(now) > r.limits.MaxBackOff
}

// unpin allows the host of the back-off to be forgotten. r is not used after that.
func (r *request) unpin() {
	if r.backOffHost != nil {
		r.backOffHost.pins.Add(-1)
	}
}

// limiters calls f for each limiter that applies to r.
func (r *request) limiters(f func(*rateLimiter)) {
	f(&r.queue.limiter)
	if r.own != nil {
		f(r.own)
	}
}

// terms returns the current terms of the host's limiter for r.
func (r *request) terms(now time.Time) terms {
	var spacing time.Duration
	// If hosts share the rate, the slow responses of one must not delay the others: see apartLeft.
	if !r.host.shared {
		spacing = r.spacing(now)
	}
	t := r.process.share(r.limits.terms(spacing))
	if t.alone != nil {
		t.delay = max(t.delay, t.alone.Turns.gap(r.limits.gap()))
	}
	return t
}

// turn returns when r may be sent while the Store is away, and until when: see Turns.next.
func (r *request) turn(away *outage, now time.Time) (from, until time.Time) {
	return away.Turns.next(r.limits.Key, r.limits.gap(), now)
}

// ownTerms returns the terms of the client's own limiter.
func (r *request) ownTerms() terms { return r.process.share(r.limits.Client.terms()) }

// maxActive returns how many requests may be in flight at once under the limits of r.
func (r *request) maxActive() int { return r.process.shareOf(r.limits.MaxConcurrent) }

// interval returns how long r delays the next request of a long queue.
func (r *request) interval(now time.Time) time.Duration { return r.terms(now).interval() }

// apply applies the terms of r to its limiters.
func (r *request) apply(now time.Time) {
	r.queue.limiter.apply(r.terms(now), now)
	if r.own != nil {
		r.own.apply(r.ownTerms(), now)
	}
}

// due returns the time until r may get the permit to send.
func (r *request) due(now time.Time) time.Duration {
	d := r.queue.limiter.due(r.terms(now), now)
	if wait, ok := r.queue.follows(r, 0, now); ok {
		d = min(d, wait)
	}
	return max(d, r.ownDue(now))
}

// ownDue returns how long r is delayed by limits that do not delay the requests behind it:
// its client's own limiter, and what apartLeft describes.
func (r *request) ownDue(now time.Time) time.Duration {
	d := r.apartLeft(now)
	if r.own != nil {
		d = max(d, r.own.due(r.ownTerms(), now))
	}
	return d
}

// prepare marks r as preparing its connection.
func (r *request) prepare() {
	r.stage = preparing
	r.limiters(func(l *rateLimiter) { l.preparing++ })
}

// dropPermit takes back a permit, used or not, or ends the preparation for one.
func (r *request) dropPermit() {
	switch r.stage {
	case preparing:
		r.queue.prepared(r)
		r.limiters(func(l *rateLimiter) { l.preparing-- })
	case granted:
		r.limiters(func(l *rateLimiter) {
			l.unsent--
			if r.strict {
				l.strict--
			}
		})
	}
	r.stage = idle
}

// moveTo removes r from its list and adds it to another list of its host; nil means none.
func (r *request) moveTo(list *[]*request) {
	if was := r.list; was != nil {
		last := len(*was) - 1
		moved := (*was)[last]
		(*was)[r.index], moved.index = moved, r.index
		(*was)[last] = nil
		*was = (*was)[:last]
	}
	if r.list = list; list != nil {
		r.index = int32(len(*list))
		*list = append(*list, r)
	}
}

// follows reports whether r, with ahead requests before it, may follow the last request
// without a gap. wait is then the time until the gap to the request before that one has
// passed.
func (q *queue) follows(r *request, ahead int, now time.Time) (wait time.Duration, ok bool) {
	if !q.shared || !r.limits.followsFetch() || ahead > 0 || q.limiter.unsent > 0 {
		return 0, false
	}
	gap := r.terms(now).limit().Gap
	if gap == 0 {
		return 0, true
	}
	before := q.before
	if gap <= maxPresumed && q.limiter.presumed.After(before) {
		before = q.limiter.presumed
	}
	if before.IsZero() {
		return 0, true
	}
	return max(0, gap-now.Sub(before)), true
}

// sharesFetch reports whether r shares the slot of the fetch before it if r is sent at a time.
func (q *queue) sharesFetch(r *request, at time.Time) bool {
	return q.shared && r.limits.followsFetch() && at.Sub(q.limiter.last) < q.limiter.terms.interval()
}

// prepared removes r from the requests that prepare their connections.
func (q *queue) prepared(r *request) {
	if i := slices.Index(q.preparing, r); i >= 0 {
		q.preparing = slices.Delete(q.preparing, i, i+1)
	}
}
