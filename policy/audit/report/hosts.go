package report

import (
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
)

// A host has the counts of one host.
type host struct {
	Host string `json:"host"`
	counts

	// CrawlAsked is the longest Crawl-delay that the host asked for, and CrawlKept is what was applied instead of it.
	CrawlAsked float64 `json:"crawl_delay_asked_s"`
	CrawlKept  float64 `json:"crawl_delay_s"`

	// SHA256 is that of the last robots.txt that decided, and robotsAt is the time of the last request that it decided.
	SHA256   string `json:"robots_sha256"`
	robotsAt time.Time

	// outage is the current outage, if it has requests, and outages is the number of those that ended.
	outage  outage
	outages int
}

// add counts a record, and returns the outage that it ended, if any.
func (h *host) add(e *trail.Entry) (ended outage) {
	h.counts.add(e)
	if e.CrawlAsked > h.CrawlAsked {
		h.CrawlAsked, h.CrawlKept = e.CrawlAsked, e.CrawlDelay
	}
	if e.RobotsSHA256 != "" && !e.Time.Before(h.robotsAt) {
		h.SHA256, h.robotsAt = clip(e.RobotsSHA256), e.Time
	}
	switch {
	case e.Reason == string(policy.ReasonUnreachable):
		if h.outage.Requests == 0 {
			h.outage = outage{First: e.Time, Last: e.Time}
		}
		h.outage.Requests++
		if e.Time.After(h.outage.Last) {
			h.outage.Last = e.Time
		}
	case explain.ByRobots(policy.Reason(e.Reason)):
		// Other reasons do not say whether the site gave a robots.txt, and a record with an earlier time does
		// not end the outage. Nor does a stale copy: the proxy uses it because the site still gives no new one.
		if !e.RobotsStale && h.outage.Requests > 0 && e.Time.After(h.outage.Last) {
			ended, h.outage = h.outage, outage{}
			ended.Ended = true
		}
	}
	return ended
}
