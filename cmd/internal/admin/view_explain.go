package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain"
)

// An explainView is the form, and the result if there is one.
type explainView struct {
	frame
	Form    explainRequest
	Methods []string

	// Error says what is wrong with the form; "": nothing is.
	Error string

	// Result is nil if nothing was submitted.
	Result *resultView
}

// A resultView is a decision on the explain page.
type resultView struct {
	Badge   badge
	Request string
	Facts   factList
	Lines   []textLine
}

func (s *Server) newExplainView(q explainRequest) explainView {
	q.URL, q.UserAgent, q.Client = clipPrintable(q.URL, 8<<10), clipPrintable(q.UserAgent, 8<<10), clipPrintable(q.Client, maxCell)
	methods := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
	if q.Method != "" && !slices.Contains(methods, q.Method) {
		q.Method = clipPrintable(q.Method, maxCell)
		methods = append(methods, q.Method)
	}
	return explainView{frame: s.newFrame("Explain", "/explain"), Form: q, Methods: methods}
}

func formExplainRequest(values url.Values) explainRequest {
	return explainRequest{
		URL: values.Get("url"), UserAgent: values.Get("agent"), Client: values.Get("client"), Method: values.Get("method"),
	}
}

// showExplain serves the form, filled in from the query. It explains nothing yet.
func (s *Server) showExplain(w http.ResponseWriter, r *http.Request) {
	s.render(w, http.StatusOK, "explain", "frame", s.newExplainView(formExplainRequest(r.URL.Query())))
}

// postExplain explains the request that the form, or the query of a link beside a decision,
// describes.
func (s *Server) postExplain(w http.ResponseWriter, r *http.Request) {
	if !s.parseForm(w, r) {
		return
	}
	q := formExplainRequest(r.Form)
	// The client of a record is not known by its pseudonym.
	if audit.IsPseudonym(q.Client) {
		q.Client = ""
	}
	v := s.newExplainView(q)
	request, err := s.policyRequest(&q)
	if err != nil {
		v.Error = clipPrintable(err.Error(), 2048)
		s.render(w, http.StatusBadRequest, "explain", "frame", v)
		return
	}
	var d policy.Decision
	var wait time.Duration
	if failure := s.waitForOrigin(w, r, func(ctx context.Context) { d, wait = s.opts.Explain(ctx, request) }); failure != nil {
		v.Flash = errorFlash(failure.Detail)
		s.render(w, failure.Status, "explain", "frame", v)
		return
	}
	v.Result = s.newResultView(request, d, wait)
	s.render(w, http.StatusOK, "explain", "frame", v)
}

func (s *Server) newResultView(r policy.Request, d policy.Decision, wait time.Duration) *resultView {
	x := explain.Of(&d)
	v := &resultView{Request: r.Method + " " + clipPrintable(r.Target.String(), maxCell)}
	v.Badge = classBadges[live.ClassOf(policy.OutcomeOf(d.Verdict, d.Reason), !s.opts.Monitor())]
	v.Facts.add("Why", x.Sentence())
	v.Facts = append(v.Facts, fact{Name: "Host", Value: printable(r.Origin.Host), Href: hostHref(r.Origin.Host)})
	for _, f := range newFacts(x.Decided()) {
		if f.Name == "Rule" {
			f.Href = s.ruleHref(r.Origin, d.Line)
		}
		v.Facts = append(v.Facts, f)
	}
	v.Facts = append(v.Facts, newFacts(x.Basis())...)
	v.Facts = append(v.Facts, s.paceFacts(&d, wait)...)
	if a := d.Ruling.Result; a != nil {
		v.Lines = excerptLines(x.Excerpt(string(a.Body)), v.Badge)
	}
	return v
}

// paceFacts says how many requests the pace allows, and when this one could be sent.
func (s *Server) paceFacts(d *policy.Decision, wait time.Duration) (all factList) {
	if d.Verdict != policy.Allow || d.Pace.Key == "" {
		return all
	}
	state, _ := s.opts.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey)
	all.add("Time between requests", positiveDuration(requestGap(&d.Pace, &state)))
	all.add("Wait now", cmp.Or(positiveDuration(wait), "none"))
	return all
}

// excerptLines returns the lines around the rule that decided, after the User-agent lines of
// its group.
func excerptLines(e *explain.Excerpt, verdict badge) (all []textLine) {
	if e == nil {
		return nil
	}
	agents, _, lines := e.Shown()
	for _, l := range agents {
		all = append(all, textLine{Number: l.Number, Class: "agent", Text: clipPrintable(l.Text, maxLineBytes)})
	}
	for i, l := range lines {
		shown := textLine{Number: l.Number, Class: "rule", Text: clipPrintable(l.Text, maxLineBytes)}
		if i == 0 && len(all) > 0 && all[len(all)-1].Number < l.Number-1 {
			// There are lines between the group and this one.
			shown.Class += " begins"
		}
		if l.Decides {
			shown.Class, shown.Effect = "block", &ruleEffect{verdict.Icon, "decides"}
			if verdict.Kind == "allow" {
				shown.Class = "allow"
			}
		}
		all = append(all, shown)
	}
	return all
}
