package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
)

const (
	maxRows          = 100 // decisions in the page as the server sends it
	maxBlockersShown = 9
)

// reasons are the values of the filter on reasons.
var reasons = []policy.Reason{
	policy.ReasonRule, policy.ReasonNoRule, policy.ReasonNoFile, policy.ReasonRobotsTxt, policy.ReasonUnreachable, policy.ReasonOrigin,
	policy.ReasonParent, policy.ReasonCrawlDelay, policy.ReasonTooComplex, policy.ReasonTunnel, policy.ReasonIdentity, policy.ReasonDenied, policy.ReasonOverride,
	policy.ReasonPace, policy.ReasonQuota, policy.ReasonShutdown, policy.ReasonLimit, policy.ReasonAddress, policy.ReasonPort,
	policy.ReasonAuth, policy.ReasonMalformed, policy.ReasonLoop, policy.ReasonAudit, policy.ReasonClient, policy.ReasonInternal,
}

// An overview is the first page.
type overview struct {
	frame
	Figures  []figure
	Chart    chartView
	Spans    []option // Value is the URL of the span
	Blockers []causeView
	Verdicts []option
	Reasons  []option
	Filter   filterView
	Rows     []decisionRow
	Blank    decisionRow
	Newest   uint64 // the last line that was scanned
	Shown    string
	Clock    string
}

// A figure is a number at the top of a page.
type figure struct {
	Name, Value, Note string
	Kind, Icon        string
	Words             bool // Value is a word, no number
}

// An option is an entry of a list to choose from.
type option struct {
	Name, Value string
	Selected    bool
}

// A filterView has the values of the filter's fields.
type filterView struct {
	Text, Host, Client, Agent string
	Any                       bool
}

// A causeView is a rule or a reason that decided requests.
type causeView struct {
	Host, Href   string
	Rule, Reason string
	Line         int
	Badge        badge
	Count        int64
	Stamp, Ago   string
}

// A badge shows a state by an icon, a word and a colour.
type badge struct{ Kind, Icon, Word, Note string }

func newCauseView(c live.Cause, now time.Time) causeView {
	v := causeView{
		Host: clipPrintable(c.Host, maxCell), Href: hostHref(c.Host), Rule: clipPrintable(c.Rule, maxCell), Reason: clipPrintable(c.Reason, maxCell), Line: c.Line,
		Count: c.Count, Stamp: machineTime(c.Last), Ago: timeAgo(now, c.Last),
	}
	v.Badge.Kind, v.Badge.Icon, v.Badge.Word = verdictBadge(c.Decision, true)
	return v
}

// overviewState returns the parts of the overview that change all the time, without the
// decisions.
func (s *Server) overviewState(r *http.Request) overview {
	now := nowUTC()
	v := overview{frame: s.newFrame("Overview", "/"), Chart: newChartView(s.opts.Live, r.URL.Query().Get("span"), now), Clock: now.Format("15:04:05")}
	v.Figures = s.figures(&v.Chart)
	query := r.URL.Query()
	for _, span := range []struct{ name, word string }{{"Hour", "hour"}, {"Day", "day"}} {
		query.Set("span", span.word)
		v.Spans = append(v.Spans, option{span.name, "/?" + query.Encode(), v.Chart.Span == span.word})
	}
	for _, c := range s.opts.Live.Blockers(maxBlockersShown) {
		shown := newCauseView(c, now)
		if c.Host == "" { // no host, so no page about it
			shown.Host, shown.Href = "No host", "/?"+url.Values{"decision": {"block"}, "reason": {c.Reason}}.Encode()+"#decisions"
		}
		v.Blockers = append(v.Blockers, shown)
	}
	return v
}

func (s *Server) figures(c *chartView) []figure {
	share, period := "none", chartSpans[c.Span].phrase
	if all := c.totalAllowed + c.totalBlocked; all > 0 {
		share = fmt.Sprintf("%.1f %% of all", 100*float64(c.totalBlocked)/float64(all))
	}
	p := s.opts.Pacer.Stats()
	return []figure{
		{Name: "Allowed", Value: humanize.Number(c.totalAllowed), Note: "in " + period, Kind: "allow", Icon: "allow"},
		{Name: "Blocked", Value: humanize.Number(c.totalBlocked), Note: share + ", in " + period, Kind: "block", Icon: "block"},
		{Name: "Waiting now", Value: humanize.Number(p.Waiting), Note: humanize.Number(p.UnderWay) + " under way", Kind: "wait", Icon: "wait"},
		{Name: "Hosts paused", Value: humanize.Number(p.BackedOff), Note: humanize.Number(p.Slowed) + " slowed down", Icon: "pause"},
		{Name: "Hosts known", Value: humanize.Number(len(s.opts.hostsByName())), Note: humanize.Count(p.BackOffs, "back-off") + " so far"},
	}
}

// showState serves the parts of the overview that scripts replace regularly.
func (s *Server) showState(w http.ResponseWriter, r *http.Request) {
	s.render(w, http.StatusOK, "overview", "state", s.overviewState(r))
}

func (s *Server) showOverview(w http.ResponseWriter, r *http.Request) {
	v := s.overviewState(r)
	query := r.URL.Query()
	params := queryParams{values: query}
	f := parseFilter(&params)
	if params.err != nil {
		f = filter{}
		v.Flash = errorFlash("The filter could not be read: " + params.err.Error() + ".")
	}
	v.Filter = filterView{printable(query.Get("q")), printable(query.Get("host")), printable(query.Get("client")), printable(query.Get("agent")), f != filter{}}
	v.Verdicts = []option{{"Allowed", "allow", f.decision == "allow"}, {"Blocked", "block", f.decision == "block"}}
	for _, reason := range reasons {
		v.Reasons = append(v.Reasons, option{string(reason), string(reason), f.reason == string(reason)})
	}
	lines, _ := s.linesAfter(0, maxScannedLines)
	if n := len(lines); n > 0 {
		v.Newest = lines[n-1].Number
	}
	scanned := len(lines)
	lines = f.selectLines(lines)
	v.Shown = rowsSummary(len(lines), scanned, f != filter{})
	for _, l := range slices.Backward(lines[max(0, len(lines)-maxRows):]) {
		v.Rows = append(v.Rows, newDecisionRow(l))
	}
	s.render(w, http.StatusOK, "overview", "frame", v)
}

// rowsSummary says how many of the scanned lines are in the table.
func rowsSummary(matched, scanned int, filtered bool) string {
	switch shown := min(matched, maxRows); {
	case filtered:
		return fmt.Sprintf("%s of the last %s fit, %s shown", humanize.Number(matched), humanize.Number(scanned), humanize.Number(shown))
	default:
		return fmt.Sprintf("The last %s of %s in memory", humanize.Number(shown), humanize.Number(scanned))
	}
}

// decisionsHref returns the URL of the decisions about one host.
func decisionsHref(host string) string {
	return "/?" + url.Values{"host": {host}}.Encode() + "#decisions"
}
