package pace

import (
	"math"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// maxPerSecond is the highest rate that is kept: one request a nanosecond.
const maxPerSecond = 1e9

// never is a wait that no passing of time ends.
const never = limiter.Never

// terms are what a clock goes by: so many a second with a burst, and the least
// time between two.
type terms struct {
	perSecond float64
	burst     int
	delay     time.Duration // zero: none
	alone     *absence      // others go whom nobody asks; nil: there are none
}

// terms are those of the host's clock: spacing is the least time between two
// requests that its slow answers permit, zero where they are not slow.
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

// asset says whether the request goes by the clock of the host's assets. What
// Crawl-delay forbids no burst spends.
func (l *Limits) asset() bool { return l.AssetBurst > 0 && l.CrawlDelay <= 0 }

// terms are those of one client's clock.
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

// interval is how long one request keeps the next one waiting where many do.
func (t terms) interval() time.Duration {
	return max(time.Duration(float64(time.Second)/t.perSecond), t.delay)
}

// rates is a clock: what was sent, and so when more may be sent. It counts a request when
// the request is sent. A right to send is given when the limiter has a token for it beyond
// those promised to the rights that are not used yet (unsent). Guarded by host.mu, as are
// the times handed in, which come in order.
type rates struct {
	state limiter.State
	terms terms // in force, of the request that asked last

	last      time.Time // the last request sent; before the first apply: by a process before this one
	presumed  time.Time // what counts as sent for gaps of at most maxPresumed, see Options.Since
	preparing int       // may soon ask for a right
	unsent    int       // rights given and not used yet
	strict    int       // of these, given under a gap: nothing may come before them
}

// apply puts t in force and hands out nothing by it, see [limiter.Apply].
func (r *rates) apply(t terms, now time.Time) {
	if r.terms == t {
		return
	}
	before := r.last
	if r.presumed.After(r.last) {
		if t.interval() <= maxPresumed {
			before = r.presumed
		}
		r.state = limiter.State{Longest: r.state.Longest} // of other terms, for which before may differ; nothing else is counted yet
	}
	if t.alone != nil && r.last.Before(t.alone.Since) {
		before = r.others(t, before)
		r.state = limiter.State{Longest: r.state.Longest} // likewise, but of this process's own
	}
	r.state = limiter.Apply(r.state, t.limit(), before, now)
	r.terms = t
}

// due is how long until one more right may be given under t: zero is now, and never
// is not before one already given is used or given back.
func (r *rates) due(t terms, now time.Time) time.Duration {
	if r.strict > 0 {
		return never
	}
	r.apply(t, now)
	if r.unsent >= t.burst || r.state.Gap > 0 && r.unsent > 0 {
		return never
	}
	return r.owed(r.unsent+1, now)
}

// forecast is how long one waits who has ahead others before it, all under t, when
// nothing goes before start.
func (r *rates) forecast(t terms, ahead int, now, start time.Time) time.Duration {
	r.apply(t, now)
	lead := max(0, start.Sub(now))
	d := r.owed(r.unsent+ahead+1, now.Add(lead))
	if d > never-lead {
		return never
	}
	return lead + d
}

// wanted is how long until one should be let go that needs lead to be ready, and has
// ahead others before it: zero is now, and never is not before a right already given
// is used or given back.
func (r *rates) wanted(t terms, ahead int, now time.Time, lead time.Duration) time.Duration {
	if r.due(t, now) == never {
		return never
	}
	return max(0, r.owed(r.unsent+ahead+1, now)-lead)
}

// within is how many may be sent in so long a time, at the most.
func (r *rates) within(d time.Duration, now time.Time) int {
	n := r.state.TokensAt(now) + r.terms.perSecond*d.Seconds()
	return int(min(max(0, math.Ceil(n)), math.MaxInt32))
}

// owed is how long after now the limiter permits the n-th request.
func (r *rates) owed(n int, now time.Time) time.Duration { return r.state.Due(n, now).Sub(now) }

// sent counts a request that goes out now, whether or not a right was given for it.
func (r *rates) sent(now time.Time) {
	r.state = limiter.Take(r.state, now)
	r.last = now
}

// followed counts a request that shares the slot of the request before it: no token is
// taken, and the gap counts from now.
func (r *rates) followed(now time.Time) { r.state.Last, r.last = now, now }

// rested says that all is as if nothing had ever been sent, or will soon be.
func (r *rates) rested(now time.Time) bool {
	return r.preparing == 0 && r.unsent == 0 && !r.holds(now)
}

// holds says that what was sent may hold up another, under the terms in force or
// under a gap that was in force before.
func (r *rates) holds(now time.Time) bool {
	return !r.last.IsZero() && (now.Sub(r.last) < minQuiet || r.state.Rested().After(now))
}

// left gives how long what was sent may still hold up another request, as far as is known.
func (r *rates) left(now time.Time) time.Duration {
	if r.last.IsZero() {
		return 0
	}
	return r.state.Rested().Sub(now)
}

// reach is how long from the last request on its holds is true, beyond minQuiet.
func (r *rates) reach() time.Duration { return max(0, r.state.Rested().Sub(r.last)) }
