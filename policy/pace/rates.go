package pace

import (
	"math"
	"time"

	"robotsproxy/policy/pace/limiter"
)

const (
	// maxPerSecond is the highest rate that is used: one request per nanosecond.
	maxPerSecond = 1e9

	// never is a wait that does not end by itself.
	never = limiter.Never

	// maxPresumed is the longest gap to which [Options.Since] applies.
	maxPresumed = time.Minute

	// minQuiet is the least time that a host is remembered after its last request, whatever its limits.
	minQuiet = time.Minute
)

// terms are the settings of a rateLimiter for one request.
type terms struct {
	perSecond float64
	burst     int

	// delay is the least time between two requests; zero means none.
	delay time.Duration

	// asked is the Limits.CrawlDelay from which delay is computed.
	asked time.Duration

	// alone is the outage of the Store, in which other processes send too; nil if there is none.
	alone *outage
}

// terms returns the terms of the host's limiter. spacing is the minimum time between two
// requests because of slow responses; zero means that they are not slow.
func (l *Limits) terms(spacing time.Duration) terms {
	t := terms{perSecond: min(l.PerSecond, maxPerSecond), burst: l.Burst, delay: l.CrawlDelay, asked: l.CrawlDelay}
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

// terms returns the terms of a client's own limiter.
func (r Rate) terms() terms { return terms{perSecond: min(r.PerSecond, maxPerSecond), burst: r.Burst} }

// limit returns t in the form of package limiter. The gap is the delay or, if the burst
// is 1, the time for one request at perSecond, whichever is longer.
func (t terms) limit() limiter.Limit {
	l := limiter.Limit{PerSecond: t.perSecond, Burst: t.burst, Gap: t.delay}
	if t.burst == 1 {
		l.Gap = max(l.Gap, limiter.Nanoseconds(l.Each()))
	}
	return l
}

// effectiveBurst returns how many requests may go at once after a quiet time.
func (t terms) effectiveBurst() int {
	if t.delay >= t.interval() {
		return 1
	}
	return t.burst
}

// interval returns how long one request delays the next one in a long queue.
func (t terms) interval() time.Duration {
	return max(time.Duration(float64(time.Second)/t.perSecond), t.delay)
}

// An outage is a time in which the Store is unavailable.
type outage struct {
	Standing

	// phase is the position of this process among all processes, a random number from 0 to 1.
	phase float64
}

// rateLimiter is a limiter and the permits that it gave. It counts a request when the
// request is sent. It gives a permit only if the limiter has a token that no unused
// permit will need. host.mu guards it, and also orders the times that callers pass.
type rateLimiter struct {
	state limiter.State

	// terms are the active terms, from the latest request.
	terms terms

	// last is when the last request was sent, by an earlier process until the first apply; zero if none was.
	last time.Time

	// presumed is when a request is assumed to have been sent, for gaps of at most maxPresumed; see Options.Since.
	presumed time.Time

	// preparing is how many requests may soon ask for a permit.
	preparing int

	// unsent is how many permits were not used yet.
	unsent int

	// strict is how many of these were given under a gap. No other request may go before them.
	strict int
}

// apply makes t the active terms. This alone lets no request out, see [limiter.Apply].
func (r *rateLimiter) apply(t terms, now time.Time) {
	if r.terms == t {
		return
	}
	before := r.last
	if r.presumed.After(r.last) {
		if t.interval() <= maxPresumed {
			before = r.presumed
		}
		// The state contains no request yet. It was computed with other terms, for which before may differ.
		r.state = limiter.State{Longest: r.state.Longest}
	}
	if t.alone != nil && !t.takesTurns() && r.last.Before(t.alone.Since) {
		before = t.presumedSent(before)
		r.state = limiter.State{Longest: r.state.Longest}
	}
	r.state = limiter.Apply(r.state, t.limit(), before, now)
	r.terms = t
}

// takesTurns reports whether the processes that are without the Store take turns under t.
func (t terms) takesTurns() bool { return t.alone.Turns.Of > 1 && t.delay > 0 }

// presumedSent returns when the host is assumed to have received a request from any
// process, if this process has sent nothing since the outage of the Store began. If the
// others cannot all have had a turn since this process's own last request (before), that
// is the time. Otherwise it is a time that differs between processes, so that they do not
// all send at once, and that keeps one whole gap free after the outage began.
func (t terms) presumedSent(before time.Time) time.Time {
	if !(t.alone.Slowdown > 1) {
		return before
	}
	// round is how long the gaps of all other processes take.
	round := time.Duration(float64(t.interval()) * (1 - 1/t.alone.Slowdown))
	if !before.Before(t.alone.Since.Add(-round)) {
		return before
	}
	return t.alone.Since.Add(-time.Duration(t.alone.phase * float64(round)))
}

// due returns the time until one more permit may be given under t. never means that a
// permit must first be used or returned.
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

// forecast returns how long a request waits under t if ahead others go first and no
// request is sent before start.
func (r *rateLimiter) forecast(t terms, ahead int, now, start time.Time) time.Duration {
	r.apply(t, now)
	lead := max(0, start.Sub(now))
	d := r.wait(r.unsent+ahead+1, now.Add(lead))
	if d > never-lead {
		return never
	}
	return lead + d
}

// startIn returns the time until a request should start to prepare its connection, if
// this takes lead and ahead others go first. never means that a permit must first be used
// or returned.
func (r *rateLimiter) startIn(t terms, ahead int, now time.Time, lead time.Duration) time.Duration {
	if r.due(t, now) == never {
		return never
	}
	return max(0, r.wait(r.unsent+ahead+1, now)-lead)
}

// within returns the maximum number of requests that may be sent in d.
func (r *rateLimiter) within(d time.Duration, now time.Time) int {
	n := r.state.TokensAt(now) + r.terms.perSecond*d.Seconds()
	return int(min(max(0, math.Ceil(n)), math.MaxInt32))
}

// wait returns how long after now the n-th request may be sent.
func (r *rateLimiter) wait(n int, now time.Time) time.Duration { return r.state.Due(n, now).Sub(now) }

// sent counts a request that is sent now, with or without a permit.
func (r *rateLimiter) sent(now time.Time) {
	r.state = limiter.Take(r.state, now)
	r.last = now
}

// followed counts a request that shares the slot of the request before it: it takes no
// token, and the gap counts from now.
func (r *rateLimiter) followed(now time.Time) { r.state.Last, r.last = now, now }

// idle reports whether the requests so far delay no other request.
func (r *rateLimiter) idle(now time.Time) bool {
	return r.preparing == 0 && r.unsent == 0 && !r.holds(now)
}

// holds reports whether the requests so far may delay another one, under the active terms
// or under a gap that was active before.
func (r *rateLimiter) holds(now time.Time) bool {
	return !r.last.IsZero() && (now.Sub(r.last) < minQuiet || r.state.IdleAt().After(now))
}

// left returns how long the requests so far may still delay another one.
func (r *rateLimiter) left(now time.Time) time.Duration {
	if r.last.IsZero() {
		return 0
	}
	return r.state.IdleAt().Sub(now)
}

// reach returns how long after the last request holds is true, beyond minQuiet.
func (r *rateLimiter) reach() time.Duration { return max(0, r.state.IdleAt().Sub(r.last)) }

// restore takes over the last request of an earlier process. It must be called before the
// first apply.
func (r *rateLimiter) restore(sent time.Time, gap time.Duration, now time.Time) {
	r.last = localTime(sent, now, now)
	r.state = limiter.State{Last: r.last, Longest: max(0, gap)}
}
