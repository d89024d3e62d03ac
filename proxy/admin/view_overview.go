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
	maxRows     = 100 // of decisions, in a page as it is served
	shownBlocks = 9   // rules that block
)

// reasons are what decisions rest on, as one may ask for them.
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
	Spans    []choice // with where they are
	Blockers []causeView
	Verdicts []choice
	Reasons  []choice
	Filter   filterView
	Rows     []row
	Blank    row
	Newest   uint64 // the last line that was looked at
	Shown    string
	Clock    string
}

// A figure is a number that a page begins with.
type figure struct {
	Name, Value, Note string
	Kind, Icon        string
	Words             bool // the value is no number
}

// A choice is one of a list.
type choice struct {
	Name, Value string
	Chosen      bool
}

// A filterView is what stands in the filter's fields.
type filterView struct {
	Text, Host, Client, Agent string
	Any                       bool
}

// A causeView is what decided requests.
type causeView struct {
	Host, Href   string
	Rule, Reason string
	Line         int
	Is           is
	Count        int64
	Stamp, Ago   string
}

// An is says what a thing is: by a sign and a word, and a colour beside.
type is struct{ Kind, Icon, Word, Note string }

func newCauseView(c live.Cause, now time.Time) causeView {
	v := causeView{
		Host: cut(c.Host, maxCell), Href: hostHref(c.Host), Rule: cut(c.Rule, maxCell), Reason: cut(c.Reason, maxCell), Line: c.Line,
		Count: c.Count, Stamp: stampOf(c.Last), Ago: ago(now, c.Last),
	}
	v.Is.Kind, v.Is.Icon, v.Is.Word = verdictSign(c.Decision, true)
	return v
}

// state is what an overview has that changes all the time, but for the decisions.
func (s *server) state(r *http.Request) overview {
	at := now()
	v := overview{frame: s.frame("Overview", "/"), Chart: newChartView(s.o.Live, r.URL.Query().Get("span"), at), Clock: at.Format("15:04:05")}
	v.Figures = s.figures(&v.Chart)
	asked := r.URL.Query()
	for _, span := range []struct{ name, word string }{{"Hour", "hour"}, {"Day", "day"}} {
		asked.Set("span", span.word)
		v.Spans = append(v.Spans, choice{span.name, "/?" + asked.Encode(), v.Chart.Span == span.word})
	}
	for _, c := range s.o.Live.Blockers(shownBlocks) {
		shown := newCauseView(c, at)
		if c.Host == "" { // it has no page
			shown.Host, shown.Href = "No host", "/?"+url.Values{"decision": {"block"}, "reason": {c.Reason}}.Encode()+"#decisions"
		}
		v.Blockers = append(v.Blockers, shown)
	}
	return v
}

func (s *server) figures(c *chartView) []figure {
	share, in := "none", spans[c.Span].last
	if all := c.allowed + c.blocked; all > 0 {
		share = fmt.Sprintf("%.1f %% of all", 100*float64(c.blocked)/float64(all))
	}
	p := s.o.Pacer.Stats()
	return []figure{
		{Name: "Allowed", Value: humanize.Number(c.allowed), Note: "in " + in, Kind: "allow", Icon: "allow"},
		{Name: "Blocked", Value: humanize.Number(c.blocked), Note: share + ", in " + in, Kind: "block", Icon: "block"},
		{Name: "Waiting now", Value: humanize.Number(p.Waiting), Note: humanize.Number(p.UnderWay) + " under way", Kind: "wait", Icon: "wait"},
		{Name: "Hosts paused", Value: humanize.Number(p.BackedOff), Note: humanize.Number(p.Slowed) + " slowed down", Icon: "pause"},
		{Name: "Hosts known", Value: humanize.Number(len(s.o.known())), Note: humanize.Count(p.BackOffs, "back-off") + " so far"},
	}
}

// showState shows the parts of the overview that scripts put in place of the old ones.
func (s *server) showState(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, "overview", "state", s.state(r))
}

func (s *server) showOverview(w http.ResponseWriter, r *http.Request) {
	v := s.state(r)
	asked := r.URL.Query()
	g := given{values: asked}
	f := filterOf(&g)
	if g.wrong != nil {
		f = filter{}
		v.Flash = bad("The filter could not be read: " + g.wrong.Error() + ".")
	}
	v.Filter = filterView{visible(asked.Get("q")), visible(asked.Get("host")), visible(asked.Get("client")), visible(asked.Get("agent")), f != filter{}}
	v.Verdicts = []choice{{"Allowed", "allow", f.decision == "allow"}, {"Blocked", "block", f.decision == "block"}}
	for _, reason := range reasons {
		v.Reasons = append(v.Reasons, choice{string(reason), string(reason), f.reason == string(reason)})
	}
	lines, _ := s.after(0, maxLines)
	if n := len(lines); n > 0 {
		v.Newest = lines[n-1].Number
	}
	looked := len(lines)
	lines = f.all(lines)
	v.Shown = shownRows(len(lines), looked, f != filter{})
	for _, l := range slices.Backward(lines[max(0, len(lines)-maxRows):]) {
		v.Rows = append(v.Rows, newRow(l))
	}
	s.show(w, http.StatusOK, "overview", "frame", v)
}

// shownRows says how much of what is kept stands in the table.
func shownRows(fit, kept int, filtered bool) string {
	switch shown := min(fit, maxRows); {
	case filtered:
		return fmt.Sprintf("%s of the last %s fit, %s shown", humanize.Number(fit), humanize.Number(kept), humanize.Number(shown))
	default:
		return fmt.Sprintf("The last %s of %s in memory", humanize.Number(shown), humanize.Number(kept))
	}
}

// decisionsOf is where the decisions of one host are.
func decisionsOf(host string) string {
	return "/?" + url.Values{"host": {host}}.Encode() + "#decisions"
}
