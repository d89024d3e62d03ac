package pace

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// maxPerSecond is the fastest rate told from none: one request a nanosecond.
const maxPerSecond = 1e9

// never is a wait that no passing of time ends.
const never = time.Duration(math.MaxInt64)

// terms are what a clock goes by: so many a second with a burst, and the least
// time between two.
type terms struct {
	perSecond rate.Limit
	burst     int
	delay     time.Duration // zero: none
	alone     *absence      // others go whom nobody asks; nil: there are none
}

// terms are those of the host's clock: spacing is the least time between two
// requests that its slow answers permit, zero where they are not slow.
func (l *Limits) terms(spacing time.Duration) terms {
	t := terms{perSecond: limit(l.PerSecond), burst: l.Burst, delay: l.CrawlDelay}
	if l.asset() {
		t.burst = l.AssetBurst
		if l.Client.PerSecond > 0 {
			t.perSecond = min(t.perSecond, limit(l.Client.PerSecond))
		}
	}
	if !l.Adapt || spacing <= 0 {
		return t
	}
	if slow := rate.Every(spacing); slow < t.perSecond {
		t.perSecond, t.burst = slow, 1
	}
	return t
}

// asset says whether the request goes by the clock of the host's assets. What
// Crawl-delay forbids no burst spends.
func (l *Limits) asset() bool { return l.AssetBurst > 0 && l.CrawlDelay <= 0 }

// terms are those of one client's clock.
func (r Rate) terms() terms { return terms{perSecond: limit(r.PerSecond), burst: r.Burst} }

func limit(perSecond float64) rate.Limit { return rate.Limit(min(perSecond, maxPerSecond)) }

// gap is the rate of the least time between two requests: of delay, or of
// perSecond where the burst is 1, the slower; zero: there is none.
func (t terms) gap() rate.Limit {
	var r rate.Limit
	if t.burst == 1 {
		r = t.perSecond
	}
	if t.delay > 0 {
		if d := rate.Every(t.delay); r == 0 || d < r {
			r = d
		}
	}
	return r
}

// interval is how long one request keeps the next one waiting where many do.
func (t terms) interval() time.Duration {
	return max(time.Duration(float64(time.Second)/float64(t.perSecond)), t.delay)
}

// rates is a clock: what was sent, and so when more may be sent. Two limiters
// count each request when it is sent:
//
//   - bucket is perSecond with burst;
//   - gap, of burst 1, is the least time between two requests. Its last change is
//     always r.last, so that a changed gap can be counted from there.
//
// A right to send is given when the limiters have a token for it beyond those
// promised (unsent); the token is taken when the request is sent. Guarded by
// host.mu, as are the times handed in: a rate.Limiter wants them in order.
//
// No rounding lets two requests be closer than the gap: float64 tells a gap from
// one a nanosecond shorter up to gaps of a month.
type rates struct {
	bucket *rate.Limiter
	gap    *rate.Limiter // nil where no gap rules

	terms  terms      // in force, of the one who asked last
	perGap rate.Limit // the gap's rate; zero: none

	slowest   rate.Limit // the slowest gap ever in force
	last      time.Time  // the last request sent; before the first apply: by a process before this one
	presumed  time.Time  // what counts as sent for gaps of at most maxPresumed, see Options.Since
	preparing int        // may soon ask for a right
	unsent    int        // rights given and not used yet
	strict    int        // of these, given under a gap: nothing may come before them
}

// apply puts t in force and hands out nothing by it: what the bucket holds stays,
// within the smaller burst; a gap counts from the last request.
func (r *rates) apply(t terms, now time.Time) {
	if r.terms == t {
		return
	}
	before := r.last
	if r.presumed.After(r.last) {
		if t.interval() <= maxPresumed {
			before = r.presumed
		}
		r.bucket, r.gap = nil, nil // of other terms, for which before may differ; nothing else is counted yet
	}
	if t.alone != nil && r.last.Before(t.alone.Since) {
		before = r.others(t, before)
		r.bucket, r.gap = nil, nil // likewise, but of this process's own
	}
	if r.bucket == nil {
		r.bucket = newLimiter(t.perSecond, t.burst, before)
	} else {
		r.bucket.SetLimitAt(now, t.perSecond)
		r.bucket.SetBurstAt(now, t.burst)
	}
	r.terms = t

	perGap := t.gap()
	switch {
	case perGap == 0:
		r.gap = nil
	case r.gap == nil:
		r.gap = newLimiter(perGap, 1, before)
	default:
		r.gap.SetLimitAt(r.last, perGap)
	}
	r.perGap = perGap
	if perGap > 0 && (r.slowest == 0 || perGap < r.slowest) {
		r.slowest = perGap
	}
}

// newLimiter gives a limiter that was spent at a time, or, with the zero time, never.
func newLimiter(perSecond rate.Limit, burst int, spent time.Time) *rate.Limiter {
	lim := rate.NewLimiter(perSecond, burst)
	if !spent.IsZero() {
		lim.AllowN(spent, burst)
	}
	return lim
}

// due is how long until one more right may be given under t: zero is now, and never
// is not before one already given is used or given back.
func (r *rates) due(t terms, now time.Time) time.Duration {
	if r.strict > 0 {
		return never
	}
	r.apply(t, now)
	if r.unsent >= t.burst || r.gap != nil && r.unsent > 0 {
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
	n := r.bucket.TokensAt(now) + float64(r.terms.perSecond)*d.Seconds()
	return int(min(max(0, math.Ceil(n)), math.MaxInt32))
}

// owed is how long after now the limiters will have given n tokens.
func (r *rates) owed(n int, now time.Time) time.Duration {
	d := missing(r.bucket, r.terms.perSecond, n, now)
	if r.gap != nil {
		d = max(d, missing(r.gap, r.perGap, n, now))
	}
	return d
}

// missing rounds up, so that a timer set to it finds the token there.
func missing(lim *rate.Limiter, perSecond rate.Limit, n int, now time.Time) time.Duration {
	short := float64(n) - lim.TokensAt(now)
	if short <= 0 {
		return 0
	}
	return max(1, nanoseconds(short/float64(perSecond)*float64(time.Second)))
}

// nanoseconds rounds up, and is never where they are too many.
func nanoseconds(ns float64) time.Duration {
	if ns = math.Ceil(ns); !(ns < float64(never)) {
		return never
	}
	return time.Duration(ns)
}

// sent counts a request that goes out now, whether or not a right was given for it.
func (r *rates) sent(now time.Time) {
	count(r.bucket, now)
	if r.gap != nil {
		count(r.gap, now)
	}
	r.last = now
}

// followed counts a request that shares the slot of the request before it: no token is
// taken, and the gap counts from now.
func (r *rates) followed(now time.Time) {
	if r.gap != nil {
		r.gap = newLimiter(r.perGap, 1, now)
	}
	r.last = now
}

// count takes a token, as a debt where there is none (a replay, a smaller burst).
func count(lim *rate.Limiter, now time.Time) {
	if !lim.AllowN(now, 1) {
		lim.ReserveN(now, 1)
	}
}

// rested says that all is as if nothing had ever been sent, or will soon be.
func (r *rates) rested(now time.Time) bool {
	return r.preparing == 0 && r.unsent == 0 && !r.holds(now)
}

// holds says that what was sent may hold up another, under the terms in force or
// under a gap that was in force before.
func (r *rates) holds(now time.Time) bool {
	if r.last.IsZero() {
		return false
	}
	quiet := now.Sub(r.last)
	return quiet < minQuiet ||
		r.slowest > 0 && quiet.Seconds()*float64(r.slowest) < 1 ||
		r.untilWhole(now) > 0
}

// left gives how long what was sent may still hold up another request, as far as is known.
func (r *rates) left(now time.Time) time.Duration {
	if r.last.IsZero() {
		return 0
	}
	return r.reach(now) - now.Sub(r.last)
}

// untilWhole is how long until the terms in force would let go at once all that they
// ever do.
func (r *rates) untilWhole(now time.Time) time.Duration {
	if r.bucket == nil {
		return 0 // none are
	}
	d := missing(r.bucket, r.terms.perSecond, r.terms.burst, now)
	if r.gap != nil {
		d = max(d, missing(r.gap, r.perGap, 1, now))
	}
	return d
}

// reach is how long from the last request on its holds is true, beyond minQuiet.
func (r *rates) reach(now time.Time) time.Duration {
	var d time.Duration
	if r.slowest > 0 {
		d = nanoseconds(float64(time.Second) / float64(r.slowest))
	}
	if left := r.untilWhole(now); left > 0 {
		d = max(d, nanoseconds(float64(now.Sub(r.last))+float64(left)))
	}
	return d
}
