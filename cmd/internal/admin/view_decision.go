package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// A decisionRow is an audit line in the table of decisions. The zero decisionRow is the blank
// row that the script fills in.
type decisionRow struct {
	Number uint64

	// JSON is the audit line.
	JSON string

	// Stamp is when the request ended, for the datetime attribute. Lines are in this order.
	Stamp string

	// Clock is the same time, for people.
	Clock string

	// Kind, Icon and Word are those of the badge of the decision.
	Kind, Icon, Word string

	// HostHref is "" if the line has no host.
	Host, HostHref string
	Method, Path   string

	// Reason is the reason in a few words; "" if Rule says everything.
	Reason string

	// Why is the reason in a sentence.
	Why        string
	Rule, Line string

	// Use names the uses that the site does not permit.
	Use            string
	Client, Agent  string
	Waited, Status string

	// ExplainHref is the URL of the filled-in form; "": the request cannot be explained.
	ExplainHref string
}

func newDecisionRow(l live.Line) decisionRow {
	r := decisionRow{Number: l.Number, JSON: string(l.JSON), Kind: "plain", Icon: "info"}
	a, err := trail.Read(l.JSON)
	if err != nil {
		r.Word = "Unreadable"
		return r
	}
	if !a.Time.IsZero() {
		// The script computes with whole milliseconds, too.
		ended := a.Time.UTC().Truncate(time.Millisecond).Add(time.Duration(a.DurationMS) * time.Millisecond)
		r.Stamp, r.Clock = ended.Format("2006-01-02T15:04:05.000Z"), ended.Format("15:04:05")
	}
	if a.Event != "" {
		r.Word, r.Path = "Event", clipPrintable(a.Event+" "+a.Detail, maxCell)
		return r
	}
	if r.Word = clipPrintable(a.Kind, maxCell); a.Kind == "" {
		b := classBadges[classOf(a.Decision, a.Reason, a.Enforced)]
		r.Kind, r.Icon, r.Word = b.Kind, b.Icon, b.Word
	}
	r.Host, r.Method = clipPrintable(a.Host, maxCell), clipPrintable(a.Method, maxCell)
	r.Path = clipPrintable(pathOfURL(a.URL), maxCell)
	r.Rule, r.Use = clipPrintable(a.Rule, maxCell), explain.Disallowed(a.Usage)
	r.Reason = reasonText(a.Reason, a.Rule, r.Use)
	r.Why = explain.Reason(a.Reason)
	if a.Line > 0 {
		r.Line = "line " + strconv.Itoa(a.Line)
	}
	r.Client, r.Agent = clipPrintable(a.Client, maxCell), clipPrintable(a.Agent, maxCell)
	if a.WaitMS >= 1 {
		r.Waited = humanize.Duration(time.Duration(a.WaitMS * float64(time.Millisecond)))
	}
	if a.Status > 0 {
		r.Status = strconv.Itoa(a.Status)
	}
	if a.Host != "" {
		r.HostHref = hostHref(a.Host)
	}
	if address := explainURL(&a); address != "" {
		q := explainRequest{URL: address, UserAgent: a.UserAgent, Client: a.Client, Method: a.Method}
		r.ExplainHref = explainHref(q)
	}
	return r
}

// reasonText returns a reason in a few words, or "" if the rule or the use that is shown beside it
// says everything.
func reasonText(reason, rule, use string) string {
	if reason == "" || rule != "" && reason == string(policy.ReasonRule) || use != "" && reason == string(policy.ReasonUsage) {
		return ""
	}
	return explain.Label(reason)
}

// explainURL returns the URL to explain for a line, or "" if the line is not about a request that can be explained. For a
// CONNECT this is the root of the tunnel's origin.
func explainURL(e *trail.Entry) string {
	address := e.URL
	if e.Method == http.MethodConnect {
		address = "https://" + e.URL + "/"
	}
	if e.Kind != "" || e.Host == "" || e.Reason == string(policy.ReasonMalformed) || !strings.Contains(address, "://") {
		return ""
	}
	return address
}

// pathOfURL returns a URL without its origin.
func pathOfURL(address string) string {
	_, rest, found := strings.Cut(address, "://")
	if !found {
		return address
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return "/"
}

// explainHref returns the URL of the explain form, filled in. A POST to the same URL explains
// the request.
func explainHref(q explainRequest) string {
	v := url.Values{"url": {q.URL}}
	for name, value := range map[string]string{"agent": q.UserAgent, "client": q.Client, "method": q.Method} {
		if value != "" && value != http.MethodGet && value != http.MethodConnect {
			v.Set(name, value)
		}
	}
	return "/explain?" + v.Encode()
}

// A recordView is the page of one audit line.
type recordView struct {
	frame
	Name  string
	Badge badge

	// Facts are the decision in words; nil: the line cannot be read.
	Facts  factList
	Record []jsonMember

	// Missing says why there is no record.
	Missing               string
	HostHref, ExplainHref string
}

// recordFacts describes an audit line in words; nil: it cannot be read.
func recordFacts(line []byte) (all factList) {
	e, err := trail.Read(line)
	if err != nil {
		return nil
	}
	add := func(name, value string) { all.add(name, clipPrintable(value, maxCell)) }
	if !e.Time.IsZero() {
		add("Time", utcTime(e.Time))
	}
	add("Event", e.Event)
	add("Detail", e.Detail)
	add("Request", strings.TrimSpace(e.Method+" "+e.URL))
	if e.IsRequest() {
		if e.Blocked() && !e.Enforced {
			add("Enforced", "no: the proxy sent the request and only recorded the decision (mode: monitor)")
		}
		x := explain.OfRecord(&e, nil)
		add("Why", x.Sentence())
		all = append(append(all, newFacts(x.Decided())...), newFacts(x.Basis())...)
	}
	add("Outcome", e.FetchOutcome)
	add("Client", e.Client)
	add("User-Agent", e.UserAgent)
	add("Labels", e.Labels)
	if e.WaitMS >= 1 {
		add("Waited", humanize.Duration(time.Duration(e.WaitMS*float64(time.Millisecond))))
	}
	add("Signed", e.Signed)
	add("Unsigned", e.Unsigned)
	if e.Status > 0 {
		add("Status", strconv.Itoa(e.Status))
	}
	return all
}

type jsonMember struct{ Name, Value string }

// jsonMembers returns the members of an audit line in their order, as readable text, without the salts, which nobody reads.
func jsonMembers(line []byte) (all []jsonMember) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return all
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return all
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		if key, ok := name.(string); ok && key != "salts" {
			all = append(all, jsonMember{printable(key), printable(text)})
		}
	}
	return all
}

// showRecord serves the page of one audit line, if the line is still in memory.
func (s *Server) showRecord(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseUint(r.PathValue("number"), 10, 64)
	v := recordView{frame: s.newFrame("Record", ""), Name: "No such record"}
	newest := s.opts.Live.Newest()
	switch {
	case err != nil || n == 0:
		v.Missing = "Invalid record number. Records are numbered from 1."
	case newest == 0:
		v.Missing = "There is no record since the proxy started. Earlier records are in the audit."
	case n > newest:
		v.Missing = fmt.Sprintf("No record has this number yet. The newest is %d.", newest)
	default:
		v.Name, v.Missing = fmt.Sprintf("Record %d", n), "This record is no longer in memory. The audit has it."
		if lines, _ := s.opts.Live.After(n-1, 1); len(lines) == 1 && lines[0].Number == n {
			shown := newDecisionRow(lines[0])
			v.Record, v.HostHref, v.ExplainHref = jsonMembers(lines[0].JSON), shown.HostHref, shown.ExplainHref
			v.Badge, v.Facts = badge{Kind: shown.Kind, Icon: shown.Icon, Word: shown.Word}, recordFacts(lines[0].JSON)
		}
	}
	status := http.StatusOK
	if v.Record == nil {
		status = http.StatusNotFound
	}
	s.render(w, status, "decision", "frame", v)
}
