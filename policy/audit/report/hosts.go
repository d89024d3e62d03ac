package report

import (
	"strings"
	"time"
	"unicode"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// A host is what is known of one.
type host struct {
	Host string `json:"host"`
	counts
	CrawlAsked float64 `json:"crawl_delay_asked_s"` // the longest that was asked for
	CrawlKept  float64 `json:"crawl_delay_s"`       // and what was kept of it
	SHA256     string  `json:"robots_sha256"`       // of the last file that was judged by

	robotsAt time.Time // when the last request came that was judged by it
	outage   outage    // under way, where it has requests
}

// add counts a record, and gives the time without robots.txt that it ended, if one.
func (h *host) add(e *trail.Entry) (ended outage) {
	h.counts.add(e)
	if e.CrawlAsked > h.CrawlAsked {
		h.CrawlAsked, h.CrawlKept = e.CrawlAsked, e.CrawlDelay
	}
	if e.RobotsSHA256 != "" && !e.Time.Before(h.robotsAt) {
		h.SHA256, h.robotsAt = humanize.Clip(e.RobotsSHA256, maxText), e.Time
	}
	switch e.Reason {
	case "unreachable":
		if h.outage.Requests == 0 {
			h.outage = outage{First: e.Time, Last: e.Time}
		}
		h.outage.Requests++
		if e.Time.After(h.outage.Last) {
			h.outage.Last = e.Time
		}
	case "rule", "no-rule", "no-file", "crawl-delay", "too-complex", "tunnel":
		// Other reasons do not tell what became of robots.txt; and a record that
		// is written late tells of before.
		if h.outage.Requests > 0 && e.Time.After(h.outage.Last) {
			ended, h.outage = h.outage, outage{}
			ended.Ended = true
		}
	}
	return ended
}

// A said is what a host said under one name.
type said struct{ host, name string }

// signalNames are the members of a record that hold what a site says of the use of
// its content.
var signalNames = []struct {
	name  string
	value func(*trail.Entry) string
}{
	{"x_robots_tag", func(e *trail.Entry) string { return e.XRobotsTag }},
	{"robots_content_signal", func(e *trail.Entry) string { return e.RobotsContentSignal }},
	{"robots_content_usage", func(e *trail.Entry) string { return e.RobotsContentUsage }},
	{"content_signal", func(e *trail.Entry) string { return e.ContentSignal }},
	{"content_usage", func(e *trail.Entry) string { return e.ContentUsage }},
	{"tdm_reservation", func(e *trail.Entry) string { return e.TDMReservation }},
	{"tdm_policy", func(e *trail.Entry) string { return e.TDMPolicy }},
}

// signals counts what a record's host said.
func (s *Sum) signal(e *trail.Entry) {
	for i := range signalNames {
		n := &signalNames[i]
		value := n.value(e)
		if value == "" {
			continue
		}
		row, _ := s.signals.at(said{e.Host, n.name})
		row.Requests++
		row.Last = humanize.Clip(value, maxText)
		row.NoIndex += one(n.name == "x_robots_tag" && isNoIndex(value))
	}
}

// isNoIndex says whether an X-Robots-Tag keeps a page out of indexes, for whomever it
// is meant: noindex, or none, which is noindex and nofollow.
func isNoIndex(tag string) bool {
	for word := range strings.FieldsFuncSeq(tag, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && r != '_' }) {
		if strings.EqualFold(word, "noindex") || strings.EqualFold(word, "none") {
			return true
		}
	}
	return false
}
