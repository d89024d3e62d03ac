package report

import (
	"math"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
)

// outcomes count requests by outcome.
type outcomes struct {
	Allowed int64 `json:"allowed"`

	// Blocked is the sum of the next three.
	Blocked int64 `json:"blocked"`

	// Disallowed requests were refused because robots.txt or the operator forbids them.
	Disallowed int64 `json:"disallowed"`

	// Deferred requests were refused, and may be sent later.
	Deferred int64 `json:"deferred"`

	// Failed requests were not sent or not answered, because of the origin, the network, the client or the proxy.
	Failed int64 `json:"failed"`

	// NotEnforced requests were sent against the decision (mode: monitor). It is the sum of the next three, which say what
	// would have become of the requests.
	NotEnforced     int64 `json:"not_enforced"`
	WouldDisallowed int64 `json:"would_be_disallowed"`
	WouldDeferred   int64 `json:"would_be_deferred"`
	WouldFailed     int64 `json:"would_have_failed"`

	// Waited requests were sent after a wait for a slot.
	Waited int64 `json:"waited"`

	// Wait is the sum of these waits, which may have been at the same time.
	Wait seconds `json:"wait_s"`

	// WaitMax is the longest of them.
	WaitMax seconds `json:"wait_max_s"`
}

// An outcomeKind is an outcome as people see it: a column, a colour and a word.
type outcomeKind struct {
	outcome policy.Outcome

	// enforced is always true for an allowed request.
	enforced bool

	// class is that of the drawings.
	class string
	word  string
	of    func(*outcomes) *int64
}

// outcomeKinds are in the order of columns and drawings. Those that are not enforced appear only in
// a report that has some.
var outcomeKinds = []outcomeKind{
	{policy.Allowed, true, "allowed", "allowed", func(o *outcomes) *int64 { return &o.Allowed }},
	{policy.Disallowed, true, "disallowed", "disallowed", func(o *outcomes) *int64 { return &o.Disallowed }},
	{policy.Deferred, true, "deferred", "deferred", func(o *outcomes) *int64 { return &o.Deferred }},
	{policy.Failed, true, "failed", "failed", func(o *outcomes) *int64 { return &o.Failed }},
	{policy.Disallowed, false, "would-disallowed", "would be disallowed", func(o *outcomes) *int64 { return &o.WouldDisallowed }},
	{policy.Deferred, false, "would-deferred", "would be deferred", func(o *outcomes) *int64 { return &o.WouldDeferred }},
	{policy.Failed, false, "would-failed", "would have failed", func(o *outcomes) *int64 { return &o.WouldFailed }},
}

// counts are the counts of some of the requests.
type counts struct {
	Requests int64 `json:"requests"`
	outcomes

	// WaitMean and WaitMedian are of the requests that waited. Only totals, clients, replicas and hosts have the median.
	WaitMean   seconds `json:"wait_mean_s"`
	WaitMedian seconds `json:"wait_median_s,omitzero"`
	Bytes      int64   `json:"bytes"`

	// Clamped requests were sent after a shorter Crawl-delay than the site asks for.
	Clamped int64 `json:"clamped"`

	// Reserved requests were sent although the site disallows a purpose of the client.
	Reserved int64 `json:"reserved"`

	// Stale requests were decided by an older copy, since robots.txt could not be fetched.
	Stale int64 `json:"stale"`

	// BackedOff requests were delayed by a back-off after a 429 or 503, or were the reason for one.
	BackedOff int64 `json:"back_offs"`

	// Slowed requests were delayed since the host responded slowly.
	Slowed int64 `json:"slowed"`

	// StoreAway requests were paced without the shared store.
	StoreAway int64 `json:"store_away"`

	// First and Last are when the first and the last request arrived, and Ended is when the last one ended.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	Ended time.Time `json:"ended,omitzero"`

	// waits are for WaitMedian.
	waits waits
}

// addCapped adds, up to the largest number, since a trail may come from anybody.
func addCapped[N ~int64](a, b N) N {
	if b = max(b, 0); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (o *outcomes) add(e *trail.Entry) {
	o.Blocked += oneIf(e.Blocked() && e.Enforced)
	o.NotEnforced += oneIf(e.Blocked() && !e.Enforced)
	outcome := explain.Outcome(e)
	for i := range outcomeKinds {
		k := &outcomeKinds[i]
		*k.of(o) += oneIf(k.outcome == outcome && k.enforced == (e.Enforced || outcome == policy.Allowed))
	}
	if wait := waitOf(e); wait > 0 {
		o.Waited++
		o.Wait = addCapped(o.Wait, seconds(wait))
		o.WaitMax = max(o.WaitMax, seconds(wait))
	}
}

func (o *outcomes) merge(other *outcomes) {
	o.Blocked = addCapped(o.Blocked, other.Blocked)
	o.NotEnforced = addCapped(o.NotEnforced, other.NotEnforced)
	for _, k := range outcomeKinds {
		*k.of(o) = addCapped(*k.of(o), *k.of(other))
	}
	o.Waited = addCapped(o.Waited, other.Waited)
	o.Wait = addCapped(o.Wait, other.Wait)
	o.WaitMax = max(o.WaitMax, other.WaitMax)
}

func (c *counts) add(e *trail.Entry) {
	c.Requests++
	c.outcomes.add(e)
	c.WaitMean = c.mean()
	c.Bytes = addCapped(c.Bytes, e.Bytes)
	c.Clamped += oneIf(e.CrawlAsked > e.CrawlDelay && (e.Withheld || !(e.Blocked() && e.Enforced)))
	c.Reserved += oneIf(e.UsageSource != "" && !(e.Blocked() && e.Enforced))
	c.Stale += oneIf(e.RobotsStale)
	c.BackedOff += oneIf(e.BackOff > 0)
	c.Slowed += oneIf(e.Slowed > 0)
	c.StoreAway += oneIf(e.StoreAway)
	c.within(e.Time, e.Time, e.End())
}

// addWait counts how long a record's request waited, for the median.
func (c *counts) addWait(e *trail.Entry) {
	if wait := waitOf(e); wait > 0 {
		c.waits.add(wait)
	}
}

// setMedian sets WaitMedian.
func (c *counts) setMedian() { c.WaitMedian = c.waits.median(c.WaitMax) }

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

// within extends the times. A record is written when its request ends, and has the time when it
// arrived, so that the times are not in order.
func (c *counts) within(first, last, ended time.Time) {
	if !first.IsZero() && (c.First.IsZero() || first.Before(c.First)) {
		c.First = first
	}
	if last.After(c.Last) {
		c.Last = last
	}
	if ended.After(c.Ended) {
		c.Ended = ended
	}
}

// merge adds other counts.
func (c *counts) merge(o *counts) {
	c.Requests = addCapped(c.Requests, o.Requests)
	c.outcomes.merge(&o.outcomes)
	c.WaitMean = c.mean()
	c.waits = c.waits.merged(o.waits)
	c.setMedian()
	c.Bytes = addCapped(c.Bytes, o.Bytes)
	c.Clamped = addCapped(c.Clamped, o.Clamped)
	c.Reserved = addCapped(c.Reserved, o.Reserved)
	c.Stale = addCapped(c.Stale, o.Stale)
	c.BackedOff = addCapped(c.BackedOff, o.BackedOff)
	c.Slowed = addCapped(c.Slowed, o.Slowed)
	c.StoreAway = addCapped(c.StoreAway, o.StoreAway)
	c.within(o.First, o.Last, o.Ended)
}
