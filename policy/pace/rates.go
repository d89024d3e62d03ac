package pace

import (
	"math"
	"time"

	"robotsproxy/policy/pace/limiter"
)

const (
	// maxPerSecond is the highest rate that is kept: one request a nanosecond.
	maxPerSecond = 1e9

	// never is a wait that no passing of time ends.
	never = limiter.Never

	// maxPresumed is the longest gap that [Options.Since] counts for.
	maxPresumed = time.Minute
)

// terms are what a rateLimiter goes by.
type terms struct {
	perSecond float64
	burst     int
	delay     time.Duration // least time between two requests; zero: none
	alone     *outage       // of the Store, in which other processes send too; nil: none
}

// terms returns those of the host's limiter. spacing is the least time between two
// requests because of slow answers; zero: they are not slow.
func (l *Limits) terms(spacing time.Duration) terms {
	t := terms{perSecond: min(l.PerSecond, maxPerSecond), burst: l.Burst, delay: l.CrawlDelay}
	if l.asset() {
		t.burst = l.AssetBurst
		if l.Client.PerSecond > 0 {
			t.perSecond = min(t.perSecond, l.Client.PerSecond)
		}
	}
	if !l.Adapt || spacing <= 0 {
		return t
	}
	if slow := 1 / spacing.Seconds(); slow < t.perSecond {
		t.perSecond, t.burst = slow, 1
	}
	return t
}

// terms returns those of one client's limiter.
func (r Rate) terms() terms { return terms{perSecond: min(r.PerSecond, maxPerSecond), burst: r.Burst} }

// limit returns t as package limiter wants it. The gap is the delay, or the time in which
// perSecond permits one request if the burst is 1, whichever is longer.
func (t terms) limit() limiter.Limit {
	l := limiter.Limit{PerSecond: t.perSecond, Burst: t.burst, Gap: t.delay}
	if t.burst == 1 {
		l.Gap = max(l.Gap, limiter.Nanoseconds(l.Each()))
	}
	return l
}

// interval returns how long one request keeps the next one waiting in a long queue.
func (t terms) interval() time.Duration {
	return max(time.Duration(float64(time.Second)/t.perSecond), t.delay)
}

// An outage is a time in which the Store is away.
type outage struct {
	Standing
	phase float64 // from 0 to 1, at random: this process's place among all of them
}

// rateLimiter is a limiter and the permits to send that it gave. It counts a request when
// the request is sent. It gives a permit when the limiter has a token for it beyond those
// promised to the permits that are not used yet. Guarded by host.mu, as are the times
// handed in, which come in order.
type rateLimiter struct {
	state limiter.State
	terms terms // in force, of the request that came last

	last      time.Time // the last request sent; before the first apply: by a process before this one
	presumed  time.Time // what counts as sent for gaps of at most maxPresumed, see Options.Since
	preparing int       // requests that may soon ask for a permit
	unsent    int       // permits that are not used yet
	strict    int       // of these, given under a gap: no request may come before them
}

// apply puts t in force; no request may go by that alone, see [limiter.Apply].
func (r *rateLimiter) apply(t terms, now time.Time) {
	if r.terms == t {
		return
	}
	before := r.last
	if r.presumed.After(r.last) {
		if t.interval() <= maxPresumed {
			before = r.presumed
		}
		// The state is that of other terms, for which before may differ; no request is
		// counted in it yet.
		r.state = limiter.State{Longest: r.state.Longest}
	}
	if t.alone != nil && r.last.Before(t.alone.Since) {
		before = t.presumedSent(before)
		r.state = limiter.State{Longest: r.state.Longest}
	}
	r.state = limiter.Apply(r.state, t.limit(), before, now)
	r.terms = t
}

// presumedSent returns when a request counts as sent to the host, by any process, if this
// process is alone and has sent nothing since before the outage. That is before, this
// process's own last request, if not each of the others may have had its turn since then.
// Else it is a time that differs from process to process, so that they do not all come at
// once, and that keeps one whole gap free after the outage began.
func (t terms) presumedSent(before time.Time) time.Time {
	if !(t.alone.Slowdown > 1) {
		return before
	}
	round := time.Duration(float64(t.interval()) * (1 - 1/t.alone.Slowdown)) // the gaps of all other processes
	if !before.Before(t.alone.Since.Add(-round)) {
		return before
	}
	return t.alone.Since.Add(-time.Duration(t.alone.phase * float64(round)))
}

// due returns how long until one more permit may be given under t; never means not before
// a permit is used or given back.
func (r *rateLimiter) due(t terms, now time.Time) time.Duration {
	if r.strict > 0 {
		return never
	}
	r.apply(t, now)
	if r.unsent >= t.burst || r.state.Gap > 0 && r.unsent > 0 {
		return never
	}
	return r.wait(r.unsent+1, now)
}

// forecast returns how long a request waits under t if ahead others go first under t, and
// nothing goes before start.
func (r *rateLimiter) forecast(t terms, ahead int, now, start time.Time) time.Duration {
	r.apply(t, now)
	lead := max(0, start.Sub(now))
	d := r.wait(r.unsent+ahead+1, now.Add(lead))
	if d > never-lead {
		return never
	}
	return lead + d
}

// startIn returns how long until a request should begin to make its connection ready, if
// that takes lead and ahead others go first; never means not before a permit is used or
// given back.
func (r *rateLimiter) startIn(t terms, ahead int, now time.Time, lead time.Duration) time.Duration {
	if r.due(t, now) == never {
		return never
	}
	return max(0, r.wait(r.unsent+ahead+1, now)-lead)
}

// within returns how many requests may be sent in d, at the most.
func (r *rateLimiter) within(d time.Duration, now time.Time) int {
	n := r.state.TokensAt(now) + r.terms.perSecond*d.Seconds()
	return int(min(max(0, math.Ceil(n)), math.MaxInt32))
}

// wait returns how long after now the n-th request may be sent.
func (r *rateLimiter) wait(n int, now time.Time) time.Duration { return r.state.Due(n, now).Sub(now) }

// sent counts a request that goes out now, whether or not it had a permit.
func (r *rateLimiter) sent(now time.Time) {
	r.state = limiter.Take(r.state, now)
	r.last = now
}

// followed counts a request that shares the slot of the request before it: no token is
// taken, and the gap counts from now.
func (r *rateLimiter) followed(now time.Time) { r.state.Last, r.last = now, now }

// idle reports whether the requests so far hold up no other one.
func (r *rateLimiter) idle(now time.Time) bool {
	return r.preparing == 0 && r.unsent == 0 && !r.holds(now)
}

// holds reports whether the requests so far may hold up another one, under the terms in
// force or under a gap that was in force before.
func (r *rateLimiter) holds(now time.Time) bool {
	return !r.last.IsZero() && (now.Sub(r.last) < minQuiet || r.state.Rested().After(now))
}

// left returns how long the requests so far may still hold up another one.
func (r *rateLimiter) left(now time.Time) time.Duration {
	if r.last.IsZero() {
		return 0
	}
	return r.state.Rested().Sub(now)
}

// reach returns how long after the last request holds is true, beyond minQuiet.
func (r *rateLimiter) reach() time.Duration { return max(0, r.state.Rested().Sub(r.last)) }

// restore takes over what a process before this one has sent. No terms were in force yet.
func (r *rateLimiter) restore(sent time.Time, gap time.Duration, now time.Time) {
	r.last = localTime(sent, now, now)
	r.state = limiter.State{Last: r.last, Longest: max(0, gap)}
}
