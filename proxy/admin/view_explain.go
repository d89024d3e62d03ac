package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// An explainView is the form, and what was answered.
type explainView struct {
	frame
	Ask     inquiry
	Methods []choice
	Wrong   string      // with the question
	Answer  *answerView // nil: nothing was asked
}

// An answerView is a decision, for people.
type answerView struct {
	Is      is
	Request string
	Facts   []fact
	Lines   []textLine
}

func (s *server) explainView(q inquiry) explainView {
	q.URL, q.UserAgent, q.Client = cut(q.URL, 8<<10), cut(q.UserAgent, 8<<10), cut(q.Client, maxCell)
	v := explainView{frame: s.frame("Explain", "/explain"), Ask: q}
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	if q.Method != "" && !slices.Contains(methods, q.Method) {
		q.Method = cut(q.Method, maxCell)
		methods = append(methods, q.Method)
	}
	for _, m := range methods {
		v.Methods = append(v.Methods, choice{Name: m, Chosen: m == q.Method})
	}
	return v
}

func inquiryOf(values url.Values) inquiry {
	return inquiry{URL: values.Get("url"), UserAgent: values.Get("agent"), Client: values.Get("client"), Method: values.Get("method")}
}

// showExplain shows the form; what stands in the address is filled in and not asked.
func (s *server) showExplain(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, "explain", "frame", s.explainView(inquiryOf(r.URL.Query())))
}

// answerExplain asks who decides: about what the form has, or where it stands beside a
// decision, about what is in its address.
func (s *server) answerExplain(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	q := inquiryOf(r.Form)
	if audit.IsPseudonym(q.Client) { // of a record: whose it is is not known
		q.Client = ""
	}
	v := s.explainView(q)
	request, err := s.request(&q)
	if err != nil {
		v.Wrong = cut(err.Error(), 2048)
		s.show(w, http.StatusBadRequest, "explain", "frame", v)
		return
	}
	var d policy.Decision
	if unasked := s.patiently(w, r, func(ctx context.Context) { d = s.o.Explain(ctx, request) }); unasked != nil {
		v.Flash = bad(unasked.why)
		s.show(w, unasked.status, "explain", "frame", v)
		return
	}
	v.Answer = s.answerView(request, d)
	s.show(w, http.StatusOK, "explain", "frame", v)
}

func (s *server) answerView(r policy.Request, d policy.Decision) *answerView {
	x := explain.Of(&d)
	v := &answerView{Request: r.Method + " " + cut(r.Origin.String()+r.PathQuery, maxCell)}
	v.Is.Kind, v.Is.Icon, v.Is.Word = verdictSign(d.Verdict.String(), true)
	v.Facts = append(v.Facts, fact{Name: "Why", Value: x.Sentence()}, fact{Name: "Host", Value: visible(r.Origin.Host), Href: hostHref(r.Origin.Host)})
	for _, f := range factsOf(x.Decided()) {
		if f.Name == "Rule" {
			f.Href = s.lineOf(r.Origin, d.Line)
		}
		v.Facts = append(v.Facts, f)
	}
	v.Facts = append(v.Facts, factsOf(x.Rested())...)
	v.Facts = append(v.Facts, s.paceFacts(&d)...)
	if a := d.Ruling.Result; a != nil {
		v.Lines = excerptView(x.Excerpt(string(a.Body)), v.Is)
	}
	return v
}

// factsOf gives facts of an explanation as they stand on a page.
func factsOf(facts []explain.Fact) (all []fact) {
	for _, f := range facts {
		if f.Name != "robots.txt" {
			f.Name = strings.ToUpper(f.Name[:1]) + f.Name[1:]
		}
		all = append(all, fact{Name: f.Name, Value: visible(f.Value), Code: f.Quoted})
	}
	return all
}

// paceFacts says how fast such requests go, and when this one would.
func (s *server) paceFacts(d *policy.Decision) (all []fact) {
	if d.Verdict != policy.Allow || d.Pace.Key == "" {
		return all
	}
	state, _ := s.o.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey)
	at := time.Now() // not before: an idle host's slot is then
	if gap := gapOf(&d.Pace, &state); gap > 0 {
		all = append(all, fact{Name: "One request in", Value: humanize.Duration(gap)})
	}
	wait := "none"
	if state.NextSlot.After(at) {
		wait = humanize.Duration(state.NextSlot.Sub(at))
	}
	if wait != "none" && d.Pace.MaxWait < state.NextSlot.Sub(at) {
		wait += ", which is longer than it may be: it would be refused for now"
	}
	return append(all, fact{Name: "Wait now", Value: wait})
}

// excerptView shows the lines around the rule that decided, and before them the User-agent lines of
// its group.
func excerptView(e *explain.Excerpt, verdict is) (all []textLine) {
	if e == nil {
		return nil
	}
	agents, _, lines := e.Shown()
	for _, l := range agents {
		all = append(all, textLine{Number: l.Number, Class: "agent", Text: cut(l.Text, maxLine)})
	}
	for i, l := range lines {
		shown := textLine{Number: l.Number, Class: "rule", Text: cut(l.Text, maxLine)}
		if i == 0 && len(all) > 0 && all[len(all)-1].Number < l.Number-1 {
			shown.Class += " begins" // lines are left out
		}
		if l.Decides {
			shown.Class, shown.Fired = verdict.Kind, &fired{verdict.Icon, "decides"}
		}
		all = append(all, shown)
	}
	return all
}
