package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/robots"
)

// A question is what stands in the form.
type question struct{ URL, Agent, Client, Method string }

// An explainView is the form, and what was answered.
type explainView struct {
	frame
	Ask     question
	Methods []choice
	Wrong   string      // with the question
	Answer  *answerView // nil: nothing was asked
}

// An answerView is a decision, for people.
type answerView struct {
	Is       is
	Sentence string
	Facts    []fact
	Lines    []textLine
}

func (s *server) explainView(q question) explainView {
	q.URL, q.Agent, q.Client = cut(q.URL, 8<<10), cut(q.Agent, 8<<10), cut(q.Client, maxCell)
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

func questionOf(values url.Values) question {
	return question{values.Get("url"), values.Get("agent"), values.Get("client"), values.Get("method")}
}

// showExplain shows the form; what stands in the address is filled in and not asked.
func (s *server) showExplain(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, "explain", "frame", s.explainView(questionOf(r.URL.Query())))
}

// answerExplain asks who decides: about what the form has, or where it stands beside a
// decision, about what is in its address.
func (s *server) answerExplain(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	q := questionOf(r.Form)
	if audit.IsPseudonym(q.Client) { // of a record: whose it is is not known
		q.Client = ""
	}
	v := s.explainView(q)
	request, err := s.request(&inquiry{URL: q.URL, UserAgent: q.Agent, Client: q.Client, Method: q.Method})
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
	v.Answer = s.answerView(request, d, now())
	s.show(w, http.StatusOK, "explain", "frame", v)
}

func (s *server) answerView(r policy.Request, d policy.Decision, at time.Time) *answerView {
	v := &answerView{Sentence: r.Origin.String() + r.PathQuery}
	v.Sentence = r.Method + " " + cut(v.Sentence, maxCell)
	v.Is.Kind, v.Is.Icon, v.Is.Word = verdictSign(d.Verdict.String(), true)
	add := func(f fact) {
		if f.Value != "" {
			v.Facts = append(v.Facts, f)
		}
	}
	add(fact{Name: "Because of", Value: cut(string(d.Reason), maxCell)})
	if d.Line > 0 {
		add(fact{Name: "Rule", Value: fmt.Sprintf("%s (line %d)", cut(d.Rule, maxCell), d.Line), Code: true, Href: s.lineOf(r.Origin, d.Line)})
	}
	if d.Form != 0 {
		add(fact{Name: "Path read as", Value: cut(d.Read, maxCell) + " (" + d.Form.String() + ")", Code: true})
	}
	add(fact{Name: "Group", Value: cut(d.Group, maxCell), Code: true})
	add(fact{Name: "Taken for", Value: cut(d.Token, maxCell), Code: true})
	add(fact{Name: "Host", Value: visible(r.Origin.Host), Href: hostHref(r.Origin.Host)})
	add(fact{Name: "Entry of hosts", Value: visible(d.Entry), Code: true})
	add(fact{Name: "Its reason", Value: visible(d.EntryReason)})
	if a := d.Ruling.Result; a != nil {
		add(fact{Name: "robots.txt", Value: cut(a.URL, maxCell), Code: true})
		add(fact{Name: "Fetched", Value: ago(at, d.Ruling.Fetched())})
		add(fact{Name: "Fetched as", Value: cut(a.UserAgent, maxCell)})
		add(fact{Name: "Read as", Value: visible(d.Dialect)})
		v.Lines = excerptView(string(a.Body), &d)
	}
	if d.Ruling.Stale {
		add(fact{Name: "Old copy", Value: "The site fails now; the copy from before is in force."})
	}
	v.Facts = append(v.Facts, s.paceFacts(&d)...)
	add(fact{Name: "Content-Signal", Value: d.Signals.String()})
	add(fact{Name: "Content-Usage", Value: cut(d.Usage, maxCell)})
	if d.Err != nil {
		add(fact{Name: "Went wrong", Value: cut(d.Err.Error(), 2048)})
	}
	return v
}

// paceFacts says how fast such requests go, and when this one would.
func (s *server) paceFacts(d *policy.Decision) (all []fact) {
	if d.Asked > 0 {
		all = append(all, fact{Name: "Crawl-delay asked for", Value: length(d.Asked)}, fact{Name: "Crawl-delay in force", Value: length(d.Pace.CrawlDelay)})
	}
	if d.Verdict != policy.Allow || d.Pace.Key == "" {
		return all
	}
	state, _ := s.o.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey)
	at := time.Now() // not before: an idle host's slot is then
	if gap := gapOf(&d.Pace, &state); gap > 0 {
		all = append(all, fact{Name: "One request in", Value: length(gap)})
	}
	wait := "none"
	if state.NextSlot.After(at) {
		wait = length(state.NextSlot.Sub(at))
	}
	if wait != "none" && d.Pace.MaxWait < state.NextSlot.Sub(at) {
		wait += ", which is longer than it may be: it would be refused for now"
	}
	return append(all, fact{Name: "Wait now", Value: wait})
}

// excerptView shows the lines around the rule that decided, and before them whom its
// group is for.
func excerptView(text string, d *policy.Decision) (all []textLine) {
	dialect, err := robots.DialectByName(d.Dialect)
	if err != nil || d.Line == 0 {
		return nil
	}
	near, agents := robots.Excerpt(text, dialect, d.Line, around)
	add := func(l robots.Line, class string) {
		shown := textLine{Number: l.Number, Class: class, Text: cut(l.Text, maxLine)}
		if l.Number == d.Line {
			kind, icon, _ := verdictSign(d.Verdict.String(), true)
			shown.Class, shown.Fired = kind, &fired{icon, "decides"}
		}
		all = append(all, shown)
	}
	for _, l := range agents[:min(maxAgents, len(agents))] {
		if len(near) == 0 || l.Number < near[0].Number {
			add(l, "agent")
		}
	}
	for i, l := range near {
		class := "rule"
		if i == 0 && len(all) > 0 && all[len(all)-1].Number < l.Number-1 {
			class += " begins" // lines are left out
		}
		add(l, class)
	}
	return all
}
