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

// rates is what a host has been sent, and so when it may be sent more. Two
// limiters count each request when it is sent:
//
//   - bucket is PerSecond with Burst;
//   - gap, of burst 1, is the least time between two requests: CrawlDelay, or
//     1/PerSecond where Burst is 1, the longer. Its last change is always r.last, so
//     that a changed gap can be counted from there.
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

	// The limits in force, of the one who asked last.
	perSecond rate.Limit
	burst     int
	delay     time.Duration
	perGap    rate.Limit // the gap's rate; zero: none

	slowest rate.Limit // the slowest gap ever in force
	last    time.Time  // the last request sent
	unsent  int        // rights given and not used yet
	strict  int        // of these, given to one under a gap: nothing may come before it
}

// spacing is the rate of the gap that l demands; zero: none.
func (l *Limits) spacing() rate.Limit {
	var r rate.Limit
	if l.Burst == 1 {
		r = l.rate()
	}
	if l.CrawlDelay > 0 {
		if d := rate.Every(l.CrawlDelay); r == 0 || d < r {
			r = d
		}
	}
	return r
}

func (l *Limits) rate() rate.Limit { return rate.Limit(min(l.PerSecond, maxPerSecond)) }

// apply puts l in force and hands out nothing by it: what the bucket holds stays,
// within the smaller burst; a gap counts from the last request.
func (r *rates) apply(l *Limits, now time.Time) {
	perSecond := l.rate()
	if r.perSecond == perSecond && r.burst == l.Burst && r.delay == l.CrawlDelay {
		return
	}
	switch {
	case r.bucket == nil:
		r.bucket = rate.NewLimiter(perSecond, l.Burst)
	default:
		r.bucket.SetLimitAt(now, perSecond)
		r.bucket.SetBurstAt(now, l.Burst)
	}
	r.perSecond, r.burst, r.delay = perSecond, l.Burst, l.CrawlDelay

	perGap := l.spacing()
	switch {
	case perGap == 0:
		r.gap = nil
	case r.gap == nil:
		r.gap = rate.NewLimiter(perGap, 1)
		if !r.last.IsZero() {
			r.gap.AllowN(r.last, 1)
		}
	default:
		r.gap.SetLimitAt(r.last, perGap)
	}
	r.perGap = perGap
	if perGap > 0 && (r.slowest == 0 || perGap < r.slowest) {
		r.slowest = perGap
	}
}

// due is how long until one more right may be given under l: zero is now, and never
// is not before one already given is used or given back.
func (r *rates) due(l *Limits, now time.Time) time.Duration {
	if r.strict > 0 {
		return never
	}
	r.apply(l, now)
	if r.unsent >= r.burst || r.gap != nil && r.unsent > 0 {
		return never
	}
	return r.owed(r.unsent+1, now)
}

// forecast is how long one waits who has ahead others before it, all under l, when
// nothing goes before start.
func (r *rates) forecast(l *Limits, ahead int, now, start time.Time) time.Duration {
	r.apply(l, now)
	lead := max(0, start.Sub(now))
	d := r.owed(r.unsent+ahead+1, now.Add(lead))
	if d > never-lead {
		return never
	}
	return lead + d
}

// owed is how long after now the limiters will have given n tokens.
func (r *rates) owed(n int, now time.Time) time.Duration {
	d := missing(r.bucket, r.perSecond, n, now)
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
	ns := math.Ceil(short / float64(perSecond) * float64(time.Second))
	if !(ns < float64(never)) {
		return never
	}
	return max(1, time.Duration(ns))
}

// sent counts a request that goes out now, whether or not a right was given for it.
func (r *rates) sent(now time.Time) {
	count(r.bucket, now)
	if r.gap != nil {
		count(r.gap, now)
	}
	r.last = now
}

// count takes a token, as a debt where there is none (a replay, a smaller burst).
func count(lim *rate.Limiter, now time.Time) {
	if !lim.AllowN(now, 1) {
		lim.ReserveN(now, 1)
	}
}

// rested says that all is as if nothing had ever been sent, under the limits in
// force and under every gap that was in force before.
func (r *rates) rested(now time.Time) bool {
	if r.unsent > 0 {
		return false
	}
	if r.last.IsZero() {
		return true
	}
	quiet := now.Sub(r.last)
	return quiet >= minQuiet &&
		(r.slowest == 0 || quiet.Seconds()*float64(r.slowest) >= 1) &&
		r.owed(r.burst, now) == 0
}
