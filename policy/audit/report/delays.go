package report

import (
	"math"
	"time"

	"robotsproxy/policy/audit/trail"
)

// An effectiveDelay is the interval between requests to a host that was in force for some of them, from the first to the last.
type effectiveDelay struct {
	delayKey

	// Requests is the number of records with this delay, and First and Last are when the first and the last was sent.
	Requests int64     `json:"requests"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`

	// Longest is above Delay if the delay changed with the responses of a slow host. Burst is the most requests that could follow
	// each other at once.
	Longest seconds `json:"delay_max_s"`
	Burst   int     `json:"burst"`
}

type delayKey struct {
	Host string `json:"host"`

	// Source is a delaySource.
	Source delaySource `json:"source"`

	// Delay is the shortest delay; the key has it only if it does not change with the responses of a slow host.
	Delay seconds `json:"delay_s"`

	// Asked is the Crawl-delay of the robots.txt, and Line its line; zero: the delay is from elsewhere.
	Asked seconds `json:"crawl_delay_asked_s,omitempty"`
	Line  int     `json:"line,omitempty"`

	// Entry and EntryReason are those of the entry of hosts that applied.
	Entry       string `json:"entry,omitempty"`
	EntryReason string `json:"entry_reason,omitempty"`

	// Ignored says that the entry ignores robots.txt, and so its Crawl-delay.
	Ignored bool `json:"robots_ignored,omitempty"`
}

// A delaySource says where a delay is from.
type delaySource string

const (
	fromCrawlDelay delaySource = "crawl-delay" // robots.txt
	fromSlowHost   delaySource = "slow-host"   // the response times of the host
	fromShare      delaySource = "store-away"  // the replica's share of the rate, while the store was unavailable
	fromRate       delaySource = "rate"        // the configuration
)

// maxDelays bounds the rows of delays, and maxHostDelays those of one host.
const (
	maxDelays     = 2_000
	maxHostDelays = 20
)

// delayOf returns the key for the delay under which a request was sent.
func delayOf(e *trail.Entry, delay time.Duration) delayKey {
	k := delayKey{
		Host: e.Host, Source: fromRate, Delay: seconds(delay),
		Entry: e.Entry, EntryReason: e.EntryReason, Ignored: e.Reason == "override",
	}
	same := func(inForce float64) bool { return inForce > 0 && math.Abs(delay.Seconds()-inForce) < 1e-3 }
	switch {
	case e.StoreAway:
		k.Source = fromShare
	case same(e.Slowed):
		k.Source, k.Delay = fromSlowHost, 0
	case same(e.CrawlDelay):
		k.Source, k.Asked, k.Line = fromCrawlDelay, seconds(milliseconds(e.CrawlAsked*1000)), e.CrawlLine
	}
	return k
}

// addDelay counts the delay under which a request was sent.
func (b *paceBuilder) addDelay(e *trail.Entry, s *sending) {
	if s.delay == 0 {
		return
	}
	k := delayOf(e, s.delay)
	if b.delays.rows[k] == nil {
		if b.delaysOf[e.Host] >= maxHostDelays {
			b.delays.rest.Requests++
			return
		}
		b.delaysOf[e.Host]++
	}
	d, own := b.delays.at(k)
	d.Requests++
	if !own {
		return
	}
	if d.Requests == 1 {
		d.delayKey = k
	}
	if d.First.IsZero() || s.at.Before(d.First) {
		d.First = s.at
	}
	if s.at.After(d.Last) {
		d.Last = s.at
	}
	if d.Delay == 0 || s.delay < time.Duration(d.Delay) {
		d.Delay = seconds(s.delay)
	}
	d.Longest, d.Burst = max(d.Longest, seconds(s.delay)), max(d.Burst, int(s.burst))
}
