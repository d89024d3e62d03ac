package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// maxEntries bounds the rows of entries of hosts, or of clients, on a page.
const maxEntries = 1000

// An exceptionsView is the page of the entries of hosts.
type exceptionsView struct {
	frame
	Entries []entryRow
	Count   string

	// More is the number of rows that are left out.
	More int
}

// An entryRow is an entry of hosts, or one of its paths.
type entryRow struct {
	Match, Reason string
	Robots        badge

	// Settings are what it says besides; "": nothing.
	Settings string
	Expires  string
	Expired  bool
	Requests string

	// Href leads to its decisions; "": there are none.
	Href string
	Last string
}

func (s *Server) showExceptions(w http.ResponseWriter, r *http.Request) {
	entries := s.opts.Engine().Entries()
	rows := s.entryRows(entries, nowUTC())
	v := exceptionsView{
		frame: s.newFrame("Exceptions", "/exceptions"), Count: humanize.Number(len(entries)) + " entries of hosts",
		More: max(0, len(rows)-maxEntries),
	}
	if len(entries) == 1 {
		v.Count = "1 entry of hosts"
	}
	v.Entries = rows[:len(rows)-v.More]
	s.render(w, http.StatusOK, "exceptions", "frame", v)
}

// entryRows returns the rows of entries, one for each of their paths.
func (s *Server) entryRows(entries []policy.Host, now time.Time) (rows []entryRow) {
	for i := range entries {
		for _, name := range entries[i].Names() {
			rows = append(rows, s.newEntryRow(&entries[i], name, now))
		}
	}
	return rows
}

// newEntryRow returns the row of an entry, or of one of its paths. name is policy.Decision.Entry.
func (s *Server) newEntryRow(h *policy.Host, name string, now time.Time) entryRow {
	r := entryRow{
		Match: clipPrintable(name, maxCell), Reason: clipPrintable(h.Reason, maxCell), Robots: treatmentBadge(h.Robots),
		Settings: entrySettings(h), Expires: "never", Expired: !h.Until.IsZero() && !now.Before(h.Until),
	}
	switch {
	case r.Expired:
		// What it said is not in force.
		r.Robots = badge{Icon: "none", Word: "Expired"}
		r.Expires = "expired " + timeWithAge(now, h.Until)
	case !h.Until.IsZero():
		r.Expires = utcTime(h.Until) + ", " + timeUntil(now, h.Until)
	}
	n := s.opts.Live.Entry(live.Entry{Match: name, Reason: h.Reason})
	r.Requests, r.Last = talliedText(&n), timeAgo(now, n.Last)
	if n.Counts.Total() > 0 {
		r.Href = decisionsHref("entry", name)
	}
	return r
}

// talliedText lists the requests of each class that there are.
func talliedText(n *live.Tallied) string {
	if n.Counts.Total() == 0 {
		return "none"
	}
	var there []live.Class
	for _, c := range classOrder {
		if n.Counts[c] > 0 {
			there = append(there, c)
		}
	}
	return countsText(&n.Counts, there)
}

func treatmentBadge(t policy.Treatment) badge {
	switch t {
	case policy.Enforce:
		return badge{Icon: "info", Word: "Enforced"}
	case policy.Ignore:
		return badge{Kind: "wait", Icon: "none", Word: "Ignored"}
	}
	return badge{Kind: "block", Icon: "block", Word: "Host denied"}
}

// entrySettings describes what an entry says besides the treatment of robots.txt.
func entrySettings(h *policy.Host) string {
	all := limitTexts(h.Pace.PerSecond, h.Pace.Burst)
	add := func(n int, text string) {
		if n > 0 {
			all = append(all, fmt.Sprintf(text, humanize.Number(n)))
		}
	}
	add(h.Pace.MaxConcurrent, "%s at once")
	add(h.Pace.MaxQueue, "queue of %s")
	if h.Pace.MaxWait > 0 {
		all = append(all, "wait up to "+humanize.Duration(h.Pace.MaxWait))
	}
	switch h.Readings {
	case policy.AllReadings:
		all = append(all, "all readings of a path")
	case policy.LiteralReadings:
		all = append(all, "paths as sent")
	}
	switch h.Forbidden {
	case policy.AllowForbidden:
		all = append(all, "all allowed after 401 or 403 for robots.txt")
	case policy.RefuseForbidden:
		all = append(all, "nothing allowed after 401 or 403 for robots.txt")
	}
	if h.IgnoreUsage {
		all = append(all, "usage preferences ignored")
	}
	for _, s := range h.Hours {
		all = append(all, "at "+s.String())
	}
	if h.RobotsHours {
		all = append(all, "at its Visit-time")
	}
	switch c := h.CoolDown; {
	case c == nil:
	case c.After == 0:
		all = append(all, "no cool-down")
	default:
		all = append(all, fmt.Sprintf("cool-down of %s after %d refusals", humanize.Duration(c.Pause), c.After))
	}
	if h.Parent != "" {
		all = append(all, "upstream proxy: "+clipPrintable(h.Parent, maxCell))
	}
	if text := explain.Budget(h.Budget); text != "" {
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// limitTexts describes a rate and a burst. A zero value is left out.
func limitTexts(perSecond float64, burst int) (all []string) {
	if perSecond > 0 {
		all = append(all, strconv.FormatFloat(perSecond, 'g', 6, 64)+" requests/s")
	}
	if burst > 0 {
		all = append(all, "burst "+humanize.Number(burst))
	}
	return all
}
