package admin

import (
	"fmt"
	"net/http"
	"net/url"
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

	// Of the last hour.
	Faults []faultRow
	Chart  chartView

	// Value is the URL of the span.
	Spans    []option
	Blockers []causeView
	Outcomes []outcomeOption
	Reasons  []reasonOption
	Connect  connectView
	Filter   filterView
	Rows     []decisionRow
	Blank    decisionRow

	// The last line that was scanned.
	Newest uint64
	Shown  string
	Clock  string
}

// A figure is a number at the top of a page.
type figure struct {
	Name, Value, Note string
	Kind, Icon        string

	// Value is a word, no number.
	Words bool

	// Link to the list that it counts; "": none.
	Href string
}

// An option is an entry of a list to choose from.
type option struct {
	Name, Value string
	Selected    bool
}

// An outcomeOption is a class of requests in the filter. Scripts take the badge of a row from it.
type outcomeOption struct {
	option
	Badge badge
}

// A reasonOption is a reason in the filter. Scripts take from it what a row shows of the reason.
type reasonOption struct {
	option

	// Of refusals for this reason.
	Outcome string

	// The reason in a sentence.
	Why string
}

// A filterView has the values of the filter's fields.
type filterView struct {
	Text, Host, Client, Agent string

	// Parameters without a field; "": not given.
	Decision, Entry string
	Any             bool
}

// A connectView says how to connect a client.
type connectView struct{ Proxy string }

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
		Host: clipPrintable(c.Host, maxCell), Href: hostHref(c.Host), Rule: clipPrintable(c.Rule, maxCell), Reason: explain.Label(c.Reason), Line: c.Line, Badge: classBadge(c.Class),
		Count: c.Count, Stamp: machineTime(c.Last), Ago: timeAgo(now, c.Last),
	}
	return v
}

// overviewState returns the parts of the overview that change all the time, without the
// decisions.
func (s *Server) overviewState(r *http.Request) overview {
	now := nowUTC()
	v := overview{frame: s.newFrame("Overview", "/"), Chart: newChartView(s.opts.Live, r.URL.Query().Get("span"), s.opts.Monitor(), now), Clock: now.Format("15:04:05") + " UTC", Connect: s.newConnectView(r)}
	v.Figures = s.figures(&v.Chart)
	v.Faults = s.faultRows(now, now.Add(-faultsRecent), maxFaultsShown)
	query := r.URL.Query()
	for _, span := range []struct{ name, word string }{{"15 min", "15min"}, {"Hour", "hour"}, {"Day", "day"}} {
		query.Set("span", span.word)
		v.Spans = append(v.Spans, option{span.name, "/?" + query.Encode(), v.Chart.Span == span.word})
	}
	for _, c := range s.opts.Live.Blockers(maxBlockersShown) {
		shown := newCauseView(c, now)
		// No host, so no page about it.
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
	if p.BackedOff+p.Slowed > 0 {
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
		b := classBadge(c)
		f := figure{Name: b.Word, Value: humanize.Number(counts[c]), Kind: b.Kind, Icon: b.Icon, Href: classHref(c, params...)}
		if c != live.Allowed && total > 0 {
			f.Note = fmt.Sprintf("%.1f %% of all ", 100*float64(counts[c])/float64(total))
		}
		all = append(all, f)
	}
	return all
}

func (s *Server) newConnectView(r *http.Request) connectView {
	if proxy := s.opts.proxyAddress(r.Host); proxy != "" {
		return connectView{proxy}
	}
	return connectView{s.opts.Proxy.String()}
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
	v.Filter = filterView{printable(query.Get("q")), printable(query.Get("host")), printable(query.Get("client")), printable(query.Get("agent")), f.decision, printable(f.entry), f != filter{}}
	for _, c := range classOrder {
		v.Outcomes = append(v.Outcomes, outcomeOption{option{classBadges[c].Word, c.String(), f.outcome == c.String()}, classBadges[c]})
	}
	for _, r := range policy.Reasons() {
		name := string(r.Name)
		v.Reasons = append(v.Reasons, reasonOption{option{r.Label, name, f.reason == name}, r.Outcome.String(), r.Text})
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
	case scanned == 0:
		return "None since the start"
	case filtered:
		return fmt.Sprintf("%s of the last %s match, %s shown", humanize.Number(matched), humanize.Number(scanned), humanize.Number(shown))
	default:
		return fmt.Sprintf("The last %s of %s in memory", humanize.Number(shown), humanize.Number(scanned))
	}
}

// decisionsHref returns the URL of some decisions. params are names and values of the query.
func decisionsHref(params ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	return "/?" + q.Encode() + "#decisions"
}
