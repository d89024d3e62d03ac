package report

import (
	"math"
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

// outcomes count requests by outcome.
type outcomes struct {
	Allowed     int64   `json:"allowed"`
	Blocked     int64   `json:"blocked"`      // decided against and refused
	NotEnforced int64   `json:"not_enforced"` // decided against, but sent: mode: monitor
	Waited      int64   `json:"waited"`       // requests that waited for a slot
	Wait        seconds `json:"wait_s"`       // sum of these waits
}

// counts are the counts of some of the requests.
type counts struct {
	Requests int64 `json:"requests"`
	outcomes
	WaitMean  seconds   `json:"wait_mean_s"` // of the requests that waited
	WaitMax   seconds   `json:"wait_max_s"`
	Bytes     int64     `json:"bytes"`
	Clamped   int64     `json:"clamped"`    // sent after a shorter Crawl-delay than the site asks for
	Stale     int64     `json:"stale"`      // decided by an older copy, since robots.txt could not be fetched
	BackedOff int64     `json:"back_offs"`  // delayed by a back-off after a 429 or 503, or the reason for one
	Slowed    int64     `json:"slowed"`     // delayed since the host responded slowly
	Away      int64     `json:"store_away"` // paced without the shared store
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`
}

// seconds is a duration that JSON has in seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// maxWait is the longest plausible wait of one record.
const maxWait = 365 * 24 * time.Hour

// waitOf returns the milliseconds of a record as a duration that can be summed.
func waitOf(ms float64) time.Duration {
	if !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms/1000, maxWait.Seconds()) * float64(time.Second)).Round(time.Microsecond)
}

// addCapped adds, up to the largest number, since a trail may come from anybody.
func addCapped[N ~int64](a, b N) N {
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
	if wait := waitOf(e.WaitMS); wait > 0 {
		o.Waited++
		o.Wait = addCapped(o.Wait, seconds(wait))
	}
}

func (o *outcomes) merge(other *outcomes) {
	o.Allowed = addCapped(o.Allowed, other.Allowed)
	o.Blocked = addCapped(o.Blocked, other.Blocked)
	o.NotEnforced = addCapped(o.NotEnforced, other.NotEnforced)
	o.Waited = addCapped(o.Waited, other.Waited)
	o.Wait = addCapped(o.Wait, other.Wait)
}

func (c *counts) add(e *trail.Entry) {
	c.Requests++
	c.outcomes.add(e)
	c.WaitMean = c.mean()
	c.WaitMax = max(c.WaitMax, seconds(waitOf(e.WaitMS)))
	c.Bytes = addCapped(c.Bytes, e.Bytes)
	c.Clamped += oneIf(e.CrawlAsked > e.CrawlDelay && !(e.Blocked() && e.Enforced))
	c.Stale += oneIf(e.RobotsStale)
	c.BackedOff += oneIf(e.BackOff > 0)
	c.Slowed += oneIf(e.Slowed > 0)
	c.Away += oneIf(e.StoreAway)
	c.within(e.Time, e.Time)
}

func (c *counts) all() *counts { return c }

// mean returns the mean wait of the requests that waited.
func (o *outcomes) mean() seconds {
	mean := time.Duration(o.Wait) / time.Duration(max(o.Waited, 1))
	return seconds(mean.Round(time.Microsecond))
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// within extends the time from First to Last. A record is written when its request ends, and has
// the time when it arrived, so that the times are not in order.
func (c *counts) within(first, last time.Time) {
	if !first.IsZero() && (c.First.IsZero() || first.Before(c.First)) {
		c.First = first
	}
	if last.After(c.Last) {
		c.Last = last
	}
}

// merge adds other counts.
func (c *counts) merge(o *counts) {
	c.Requests = addCapped(c.Requests, o.Requests)
	c.outcomes.merge(&o.outcomes)
	c.WaitMean = c.mean()
	c.WaitMax = max(c.WaitMax, o.WaitMax)
	c.Bytes = addCapped(c.Bytes, o.Bytes)
	c.Clamped = addCapped(c.Clamped, o.Clamped)
	c.Stale = addCapped(c.Stale, o.Stale)
	c.BackedOff = addCapped(c.BackedOff, o.BackedOff)
	c.Slowed = addCapped(c.Slowed, o.Slowed)
	c.Away = addCapped(c.Away, o.Away)
	c.within(o.First, o.Last)
}
