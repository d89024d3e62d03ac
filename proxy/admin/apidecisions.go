package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"robotsproxy/policy/audit/live"
)

const (
	maxDecisions = 1000 // in an answer
	maxLines     = 5000 // of the feed that are looked at at once
)

// filters are the parameters that a filter is made of.
var filters = []string{"decision", "reason", "host", "client", "agent", "q"}

// A filter says which lines are asked for: those where each of its members that is not
// empty is the line's; q is a part of one of several. The zero filter takes all.
type filter struct{ decision, reason, host, client, agent, q string }

// filterOf reads the filters.
func filterOf(g *given) filter {
	return filter{
		decision: g.oneOf("decision", "", "allow", "block"),
		reason:   g.text("reason"),
		host:     strings.ToLower(g.text("host")),
		client:   g.text("client"),
		agent:    strings.ToLower(g.text("agent")),
		q:        strings.ToLower(g.text("q")),
	}
}

// takes says whether a line of the audit is asked for.
func (f *filter) takes(line []byte) bool {
	if *f == (filter{}) {
		return true
	}
	var l struct {
		ID, Client, URL, Host, Agent, Decision, Reason, Rule string
		UserAgent                                            string `json:"user_agent"`
	}
	if json.Unmarshal(line, &l) != nil {
		return false
	}
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.decision, l.Decision) && is(f.reason, l.Reason) && is(f.host, l.Host) && is(f.client, l.Client) &&
		is(f.agent, strings.ToLower(l.Agent)) && f.within(l.URL, l.Host, l.UserAgent, l.Agent, l.Client, l.Rule, l.ID)
}

func (f *filter) within(texts ...string) bool {
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), f.q) {
			return true
		}
	}
	return false
}

// decisions answers with the last lines, or with the first behind one; behind one that
// there never was are none, and newest tells so. Each is the audit's very octets, so that
// its hash can be worked out.
func (s *server) decisions(w http.ResponseWriter, r *http.Request) {
	g, ok := parameters(w, r, append([]string{"limit", "after"}, filters...)...)
	if !ok {
		return
	}
	f, limit := filterOf(&g), g.number("limit", 100, maxDecisions)
	after, from := g.line("after")
	if g.bad(w) {
		return
	}
	newest := s.o.Live.Newest() // first: what comes meanwhile is then asked for next
	lines, missed := s.o.Live.After(after, maxLines)
	if n := len(lines); n > 0 {
		newest = lines[n-1].Number
	}
	taken := f.all(lines)
	switch {
	case len(taken) <= limit:
	case from: // who asks on from there misses none
		taken = taken[:limit]
		newest = taken[limit-1].Number
	default:
		taken = taken[len(taken)-limit:]
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(listed(taken, missed, newest))
}

// after gives the lines behind one, to a stream that comes back. Where there is no line
// of that number yet, those that it had are of another audit: it begins with the oldest.
func (s *server) after(number uint64, most int) (lines []live.Line, missed uint64) {
	if newest := s.o.Live.Newest(); newest > 0 && newest < number {
		number = 0
	}
	return s.o.Live.After(number, most)
}

func (f *filter) all(lines []live.Line) []live.Line {
	taken := lines[:0]
	for _, l := range lines {
		if f.takes(l.JSON) {
			taken = append(taken, l)
		}
	}
	return taken
}

// listed writes lines as they are, which encoding/json would not.
func listed(lines []live.Line, missed, newest uint64) []byte {
	b := []byte(`{"decisions":[`)
	for i, l := range lines {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, l.JSON...)
	}
	b = strconv.AppendUint(append(b, `],"missed":`...), missed, 10)
	b = strconv.AppendUint(append(b, `,"newest":`...), newest, 10)
	return append(b, "}\n"...)
}

// series answers with what has been counted over time.
func (s *server) series(w http.ResponseWriter, r *http.Request) {
	g, ok := parameters(w, r, "span")
	if !ok {
		return
	}
	span := g.oneOf("span", "hour", "day")
	if g.bad(w) {
		return
	}
	counted := s.o.Live.Series(map[string]live.Span{"hour": live.Hour, "day": live.Day}[span])
	writeJSON(w, http.StatusOK, struct {
		Start   string  `json:"start"`
		Step    float64 `json:"step_s"`
		Allowed []int64 `json:"allowed"`
		Blocked []int64 `json:"blocked"`
		Waiting []int64 `json:"waiting"`
	}{stamp(counted.Start), counted.Step.Seconds(), counted.Allowed, counted.Blocked, counted.Waiting})
}

const maxBlockers = 200 // in an answer

// blockers answers with what has blocked most.
func (s *server) blockers(w http.ResponseWriter, r *http.Request) {
	g, ok := parameters(w, r, "limit")
	if !ok {
		return
	}
	limit := g.number("limit", 20, maxBlockers)
	if g.bad(w) {
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Blockers []cause `json:"blockers"`
	}{causesOf(s.o.Live.Blockers(limit))})
}

// A cause is what has decided requests.
type cause struct {
	Host     string `json:"host"`
	Robots   string `json:"robots_url,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Line     int    `json:"line,omitempty"`
	Reason   string `json:"reason"`
	Decision string `json:"decision"`
	Count    int64  `json:"count"`
	Last     string `json:"last,omitempty"`
}

func causesOf(all []live.Cause) []cause {
	causes := []cause{}
	for _, c := range all {
		causes = append(causes, cause{c.Host, c.Robots, c.Rule, c.Line, c.Reason, c.Decision, c.Count, stamp(c.Last)})
	}
	return causes
}
