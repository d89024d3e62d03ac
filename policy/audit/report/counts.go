package report

import (
	"math"
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

// outcomes are what became of some of the requests.
type outcomes struct {
	Allowed     int64   `json:"allowed"`
	Blocked     int64   `json:"blocked"`      // decided against and refused
	NotEnforced int64   `json:"not_enforced"` // decided against and sent on all the same: mode: monitor
	Waited      int64   `json:"waited"`       // those that had to wait for their turn
	Wait        seconds `json:"wait_s"`       // all they waited
}

// counts are what is counted of some of the requests.
type counts struct {
	Requests int64 `json:"requests"`
	outcomes
	WaitMean  seconds   `json:"wait_mean_s"` // of those that waited
	WaitMax   seconds   `json:"wait_max_s"`
	Bytes     int64     `json:"bytes"`
	Clamped   int64     `json:"clamped"`    // sent on after a shorter Crawl-delay than the site asks for
	Stale     int64     `json:"stale"`      // judged by an older copy, as robots.txt failed
	BackedOff int64     `json:"back_offs"`  // held up by a pause after a 429 or 503, or began one
	Slowed    int64     `json:"slowed"`     // held up as the host answered slowly
	Away      int64     `json:"store_away"` // paced without what the replicas share
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`
}

// seconds is a duration that JSON has as seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// longest is the longest wait that is believed of one record.
const longest = 365 * 24 * time.Hour

// duration makes of a record's milliseconds what can be summed.
func duration(ms float64) time.Duration {
	if !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms/1000, longest.Seconds()) * float64(time.Second)).Round(time.Microsecond)
}

// plus adds, and stops at the largest number: a trail may be anybody's.
func plus[N ~int64](a, b N) N {
	if b = max(b, 0); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (o *outcomes) add(e *trail.Entry) {
	switch {
	case !e.Blocked():
		o.Allowed++
	case e.Enforced:
		o.Blocked++
	default:
		o.NotEnforced++
	}
	if wait := duration(e.WaitMS); wait > 0 {
		o.Waited++
		o.Wait = plus(o.Wait, seconds(wait))
	}
}

func (o *outcomes) merge(other *outcomes) {
	o.Allowed = plus(o.Allowed, other.Allowed)
	o.Blocked = plus(o.Blocked, other.Blocked)
	o.NotEnforced = plus(o.NotEnforced, other.NotEnforced)
	o.Waited = plus(o.Waited, other.Waited)
	o.Wait = plus(o.Wait, other.Wait)
}

func (c *counts) add(e *trail.Entry) {
	c.Requests++
	c.outcomes.add(e)
	c.WaitMean = c.mean()
	c.WaitMax = max(c.WaitMax, seconds(duration(e.WaitMS)))
	c.Bytes = plus(c.Bytes, e.Bytes)
	c.Clamped += one(e.CrawlAsked > e.CrawlDelay && !(e.Blocked() && e.Enforced))
	c.Stale += one(e.RobotsStale)
	c.BackedOff += one(e.BackOff > 0)
	c.Slowed += one(e.Slowed > 0)
	c.Away += one(e.StoreAway)
	c.within(e.Time, e.Time)
}

func (c *counts) all() *counts { return c }

// mean is how long those waited that did.
func (o *outcomes) mean() seconds {
	mean := time.Duration(o.Wait) / time.Duration(max(o.Waited, 1))
	return seconds(mean.Round(time.Microsecond))
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// within widens the time from the first to the last. A record is written when its
// request ends and bears the time when it came, so that they are not in order.
func (c *counts) within(first, last time.Time) {
	if !first.IsZero() && (c.First.IsZero() || first.Before(c.First)) {
		c.First = first
	}
	if last.After(c.Last) {
		c.Last = last
	}
}

// merge adds what was counted of others.
func (c *counts) merge(o *counts) {
	c.Requests = plus(c.Requests, o.Requests)
	c.outcomes.merge(&o.outcomes)
	c.WaitMean = c.mean()
	c.WaitMax = max(c.WaitMax, o.WaitMax)
	c.Bytes = plus(c.Bytes, o.Bytes)
	c.Clamped = plus(c.Clamped, o.Clamped)
	c.Stale = plus(c.Stale, o.Stale)
	c.BackedOff = plus(c.BackedOff, o.BackedOff)
	c.Slowed = plus(c.Slowed, o.Slowed)
	c.Away = plus(c.Away, o.Away)
	c.within(o.First, o.Last)
}
