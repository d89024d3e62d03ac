package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

const (
	maxRows          = 100 // decisions in the page as the server sends it
	maxBlockersShown = 9
	maxNoteHost      = 40 // bytes of a host in the note of a figure
)

// An overview is the first page.
type overview struct {
	frame
	Figures []figure

	// Faults are those of the last hour.
	Faults []faultRow
	Chart  chartView

	// Spans have the URL of the span as Value.
	Spans    []option
	Blockers []causeView

	// Outcomes and Reasons are those of the filter. Scripts take from its options the badge of a row, and what a row shows
	// of a reason.
	Outcomes []live.Class
	Reasons  []policy.ReasonInfo
	Connect  string
	Filter   filterView
	Rows     []decisionRow
	Blank    decisionRow

	// Newest is the number of the last line that was scanned.
	Newest uint64
	Shown  string
	Clock  string
}

// A filterView has the values of the filter's fields.
type filterView struct {
	Text, Host, Client, Agent, Outcome, Reason string

	// Decision and Entry are parameters without a field; "": not given.
	Decision, Entry string

	// Any is set if the filter leaves out lines.
	Any bool
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

func newCauseView(c live.Cause, now time.Time) causeView {
	return causeView{
		Host: clipPrintable(c.Host, maxCell), Href: hostHref(c.Host), Rule: clipPrintable(c.Rule, maxCell), Line: c.Line,
		Reason: explain.Label(c.Reason), Badge: classBadges[c.Class], Count: c.Count,
		Stamp: machineTime(c.Last), Ago: timeAgo(now, c.Last),
	}
}

// overviewState returns the parts of the overview that change all the time, without the
// decisions.
func (s *Server) overviewState(r *http.Request) overview {
	now := nowUTC()
	query := r.URL.Query()
	v := overview{
		frame: s.newFrame("Overview", "/"), Chart: newChartView(s.opts.Live, query.Get("span"), s.opts.Monitor(), now),
		Clock: now.Format("15:04:05") + " UTC", Connect: s.connectAddress(r),
		Faults: s.faultRows(now, now.Add(-faultsRecent), maxFaultsShown),
	}
	v.Figures = s.figures(&v.Chart)
	for _, span := range []struct{ name, word string }{{"15 min", "15min"}, {"Hour", "hour"}, {"Day", "day"}} {
		query.Set("span", span.word)
		v.Spans = append(v.Spans, option{span.name, "/?" + query.Encode(), v.Chart.Span == span.word})
	}
	for _, c := range s.opts.Live.Blockers(maxBlockersShown) {
		shown := newCauseView(c, now)
		// A cause without a host has no page about a host.
		if c.Host == "" {
			shown.Host, shown.Href = "No host", classHref(c.Class, "reason", c.Reason)
		}
		v.Blockers = append(v.Blockers, shown)
	}
	return v
}

func (s *Server) figures(c *chartView) []figure {
	period := chartSpans[c.Span].phrase
	figures := classFigures(&c.counts, shownClasses(&c.counts, s.opts.Monitor()), "span", c.Span)
	for i := range figures {
		figures[i].Note += "in " + period
	}
	p, known := s.opts.Pacer.Stats(), s.opts.hostsByName()
	hosts := figure{
		Name: "Hosts known", Value: humanize.Number(len(known)), Href: "/hosts",
		Note: fmt.Sprintf("%s in back-off, %s slowed down", humanize.Number(p.BackedOff), humanize.Number(p.Slowed)),
	}
	paused := 0
	for _, h := range known {
		if h.Pause != nil {
			paused++
		}
	}
	if paused > 0 {
		hosts.Note = humanize.Number(paused) + " paused, " + hosts.Note
	}
	if paused+p.BackedOff+p.Slowed > 0 {
		hosts.Href += "?sort=paused"
	}
	waiting := figure{
		Name: "Waiting now", Value: humanize.Number(p.Waiting), Note: humanize.Number(p.UnderWay) + " in flight",
		Kind: "wait", Icon: "wait", Href: "/hosts?sort=queue",
	}
	if host, queue := s.longestQueue(known); queue > 0 {
		waiting.Note = fmt.Sprintf("%s for %s; %s", humanize.Number(queue), clipPrintable(host, maxNoteHost), waiting.Note)
	}
	return append(figures, waiting, hosts)
}

// longestQueue returns the host for which most requests wait, and their number. Hosts that share a
// pace key share a queue, so it returns the key.
func (s *Server) longestQueue(hosts map[string]*hostState) (key string, queue int) {
	for name, h := range hosts {
		q := h.paceOrZero().Queue
		if q == 0 || q < queue {
			continue
		}
		if k := s.opts.PaceKey(name); q > queue || k < key {
			key, queue = k, q
		}
	}
	return key, queue
}

// classFigures returns a figure for each class, with a link to its decisions. params are further
// parameters of the link.
func classFigures(counts *live.Counts, classes []live.Class, params ...string) (all []figure) {
	total := counts.Total()
	for _, c := range classes {
		b := classBadges[c]
		f := figure{Name: b.Word, Value: humanize.Number(counts[c]), Kind: b.Kind, Icon: b.Icon, Href: classHref(c, params...)}
		if c != live.Allowed && total > 0 {
			f.Note = fmt.Sprintf("%.1f %% of all ", 100*float64(counts[c])/float64(total))
		}
		all = append(all, f)
	}
	return all
}

// connectAddress returns the address of the proxy for clients that reach this listener as r does.
func (s *Server) connectAddress(r *http.Request) string {
	return cmp.Or(s.opts.proxyAddress(r.Host), s.opts.Proxy.String())
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
		v.Flash = errorFlash("The filter is invalid: " + params.err.Error() + ".")
	}
	v.Filter = filterView{
		printable(query.Get("q")), printable(query.Get("host")), printable(query.Get("client")), printable(query.Get("agent")),
		f.outcome, f.reason, f.decision, printable(f.entry), f != filter{},
	}
	v.Outcomes, v.Reasons = classOrder, policy.Reasons()
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
	case scanned == 0:
		return "None since the start"
	case filtered:
		return fmt.Sprintf("%s of the last %s match, %s shown", humanize.Number(matched), humanize.Number(scanned), humanize.Number(shown))
	default:
		return fmt.Sprintf("The last %s of %s in memory", humanize.Number(shown), humanize.Number(scanned))
	}
}
