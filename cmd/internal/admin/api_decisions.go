package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"robotsproxy/policy/audit/live"
)

const (
	// maxDecisions bounds the lines in a response.
	maxDecisions = 1000
	// maxScannedLines bounds the lines of the feed that are filtered for one response.
	maxScannedLines = 5000
)

// filterParams are the query parameters of a filter.
var filterParams = []string{"decision", "outcome", "reason", "entry", "host", "client", "agent", "q"}

// A filter selects audit lines. A line matches if it has the value of every non-empty field; q
// matches a part of one of several members. The zero filter matches all lines.
type filter struct{ decision, outcome, reason, entry, host, client, agent, q string }

// parseFilter reads the query parameters of a filter.
func parseFilter(params *queryParams) filter {
	return filter{
		decision: params.oneOf("decision", "", "allow", "block"),
		outcome:  params.oneOf("outcome", append([]string{""}, classWords()...)...),
		reason:   params.get("reason"),
		entry:    params.get("entry"),
		host:     strings.ToLower(params.get("host")),
		client:   params.get("client"),
		agent:    strings.ToLower(params.get("agent")),
		q:        strings.ToLower(params.get("q")),
	}
}

// matches reports whether the filter selects an audit line.
func (f *filter) matches(line []byte) bool {
	if *f == (filter{}) {
		return true
	}
	var l struct {
		ID, Client, URL, Host, Agent, Decision, Reason, Rule, Entry string
		UserAgent                                                   string `json:"user_agent"`
		Enforced                                                    bool
	}
	if json.Unmarshal(line, &l) != nil {
		return false
	}
	if f.outcome != "" && (l.Decision == "" || f.outcome != classOf(l.Decision, l.Reason, l.Enforced).String()) {
		return false
	}
	equal := func(want, have string) bool { return want == "" || want == have }
	return equal(f.decision, l.Decision) && equal(f.reason, l.Reason) && equal(f.entry, l.Entry) && equal(f.host, l.Host) &&
		equal(f.client, l.Client) && equal(f.agent, strings.ToLower(l.Agent)) &&
		f.containsText(l.URL, l.Host, l.UserAgent, l.Agent, l.Client, l.Rule, l.ID)
}

func (f *filter) containsText(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), f.q) })
}

// decisions answers with the last audit lines, or with the first ones after a given line. If
// the feed has no such line yet, the list is empty and newest tells the last number. Lines are
// copied byte for byte from the audit trail, so that their hashes can be verified.
func (s *Server) decisions(w http.ResponseWriter, _ *http.Request, params *queryParams) (any, error) {
	f, limit := parseFilter(params), params.intUpTo("limit", 100, maxDecisions)
	after, resume := params.lineNumber("after")
	if params.err != nil {
		return nil, params.err
	}
	// Read first: lines that come in between are returned by the next request.
	newest := s.opts.Live.Newest()
	lines, missed := s.opts.Live.After(after, maxScannedLines)
	if n := len(lines); n > 0 {
		newest = lines[n-1].Number
	}
	matched := f.selectLines(lines)
	switch {
	case len(matched) <= limit:
	// The client continues after newest and misses nothing.
	case resume:
		matched = matched[:limit]
		newest = matched[limit-1].Number
	default:
		matched = matched[len(matched)-limit:]
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(encodeDecisions(matched, missed, newest))
	return nil, nil
}

// linesAfter returns the lines after a given one, for a stream that resumes. If that number
// does not exist yet, it comes from the feed of another process, and linesAfter begins with
// the oldest line.
func (s *Server) linesAfter(number uint64, limit int) (lines []live.Line, missed uint64) {
	if newest := s.opts.Live.Newest(); newest > 0 && newest < number {
		number = 0
	}
	return s.opts.Live.After(number, limit)
}

// selectLines removes the lines that the filter does not select.
func (f *filter) selectLines(lines []live.Line) []live.Line {
	return slices.DeleteFunc(lines, func(l live.Line) bool { return !f.matches(l.JSON) })
}

// encodeDecisions copies lines as they are. encoding/json would change them.
func encodeDecisions(lines []live.Line, missed, newest uint64) []byte {
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

// series answers with the counts over time.
func (s *Server) series(_ http.ResponseWriter, _ *http.Request, params *queryParams) (any, error) {
	span := params.oneOf("span", "hour", "day", "15min")
	if params.err != nil {
		return nil, params.err
	}
	series := s.opts.Live.Series(chartSpans[span].span)
	all := seriesJSON{Start: formatTime(series.Start), Step: series.Step.Seconds(), Waiting: series.Waiting}
	for i := range series.Counts {
		c := &series.Counts[i]
		all.Allowed, all.Blocked = append(all.Allowed, c[live.Allowed]), append(all.Blocked, c.Blocked())
		all.Disallowed, all.Deferred = append(all.Disallowed, c[live.Disallowed]), append(all.Deferred, c[live.Deferred])
		all.Failed, all.NotEnforced = append(all.Failed, c[live.Failed]), append(all.NotEnforced, c[live.NotEnforced])
	}
	return all, nil
}

// A seriesJSON is a [live.Series] in the API. Blocked counts all requests that are not Allowed.
type seriesJSON struct {
	Start       string  `json:"start"`
	Step        float64 `json:"step_s"`
	Allowed     []int64 `json:"allowed"`
	Blocked     []int64 `json:"blocked"`
	Disallowed  []int64 `json:"disallowed"`
	Deferred    []int64 `json:"deferred"`
	Failed      []int64 `json:"failed"`
	NotEnforced []int64 `json:"not_enforced"`
	Waiting     []int64 `json:"waiting"`
}

// maxBlockers bounds the causes in a response.
const maxBlockers = 200

// blockers answers with the rules and reasons for which most requests were not allowed.
func (s *Server) blockers(_ http.ResponseWriter, _ *http.Request, params *queryParams) (any, error) {
	limit := params.intUpTo("limit", 20, maxBlockers)
	if params.err != nil {
		return nil, params.err
	}
	return struct {
		Blockers []cause `json:"blockers"`
	}{newCauses(s.opts.Live.Blockers(limit))}, nil
}

// A cause is a rule or a reason that has decided requests.
type cause struct {
	Host     string `json:"host"`
	Robots   string `json:"robots_url,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Line     int    `json:"line,omitempty"`
	Reason   string `json:"reason"`
	Decision string `json:"decision"`
	Outcome  string `json:"outcome"`
	Count    int64  `json:"count"`
	Last     string `json:"last,omitempty"`
}

func newCauses(all []live.Cause) []cause {
	causes := []cause{}
	for _, c := range all {
		causes = append(causes, cause{
			c.Host, c.Robots, c.Rule, c.Line, c.Reason, c.Decision, c.Class.String(), c.Count, formatTime(c.Last),
		})
	}
	return causes
}
