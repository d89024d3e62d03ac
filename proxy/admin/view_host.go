package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

const (
	maxOriginTexts = 8 // origins of one host whose files are shown
)

// A hostView is the page of one host.
type hostView struct {
	frame
	Host      string
	Known     bool
	Decisions string // where they are
	Explain   string
	Action    string // where its forms go
	Figures   []figure
	Causes    []causeView
	Origins   []originView
}

// An originView is what is shown of one origin.
type originView struct {
	ID      string
	Origin  string
	Is      is
	Facts   []fact
	Silent  string // why there are no lines
	Remarks []robots.Remark
	fileListing
}

// A fact is a line of a list of them.
type fact struct {
	Name, Value string
	Href        string
	Code        bool
}

func (s *server) showHostPage(w http.ResponseWriter, r *http.Request) {
	name, at := r.PathValue("host"), now()
	h, known := s.o.host(name)
	v := hostView{
		frame: s.frame(cut(name, maxCell), "/hosts"), Host: cut(name, maxCell), Known: known, Decisions: decisionsOf(name),
		Explain: explainHref(inquiry{URL: "https://" + name + "/"}), Action: hostHref(name),
	}
	v.Flash = doneFlash(r.URL.Query().Get("done"))
	status := http.StatusOK
	if !known && v.Flash == nil {
		status = http.StatusNotFound
	}
	v.Figures = hostFigures(&h, at)
	causes := s.o.Live.Causes(name)
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	for i := range h.Origins {
		v.Origins = append(v.Origins, s.originView(&h.Origins[i], i, from, causes, at))
	}
	for _, c := range causes {
		shown := newCauseView(c, at)
		shown.Href = hrefOfLine(v.Origins, h.Origins, &c)
		v.Causes = append(v.Causes, shown)
	}
	s.show(w, status, "host", "frame", v)
}

// hrefOfLine leads to the line of a cause, where its file is on the page; "" where not.
func hrefOfLine(views []originView, origins []originState, c *live.Cause) string {
	for i := range views {
		if c.Line > 0 && views[i].last > 0 && live.Clip(origins[i].URL) == c.Robots {
			return views[i].lineHref(c.Line)
		}
	}
	return ""
}

func hostFigures(h *hostState, now time.Time) []figure {
	state := stateOf(h.Pace, now)
	figures := []figure{
		{Name: "Allowed", Value: humanize.Number(h.Allowed), Note: "last request " + orNever(ago(now, h.Last)), Kind: "allow", Icon: "allow"},
		{Name: "Blocked", Value: humanize.Number(h.Blocked), Note: "as far as it is remembered", Kind: "block", Icon: "block"},
		{Name: "Queue", Value: humanize.Number(h.pace().Queue), Note: "waited " + humanize.Duration(secondsOf(h.WaitedS)) + " in all", Kind: "wait", Icon: "wait"},
		{Name: "State", Value: state.Word, Note: state.Note, Icon: state.Icon, Kind: state.Kind, Words: true},
	}
	p := h.Pace
	if p == nil {
		return figures
	}
	figures[2].Note = fmt.Sprintf("%s under way; %s", humanize.Number(p.UnderWay), figures[2].Note)
	gap := figure{Name: "Delay in force", Value: "none", Note: "last sent " + orNever(ago(now, p.Sent)), Words: true}
	if p.GapS > 0 {
		gap.Value = humanize.Duration(secondsOf(p.GapS))
	}
	next := figure{Name: "Next slot", Value: nextSlot(p, now), Note: "for a request that comes now", Words: true}
	return append(figures, gap, next)
}

func orNever(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}

// originView shows one origin, the i-th of its host; from is the line that its file is
// shown from on.
func (s *server) originView(o *originState, i, from int, causes []live.Cause, now time.Time) originView {
	x := explain.OfRuling(&o.ruling, s.o.Dialect().Name)
	v := originView{ID: "o" + strconv.Itoa(i+1), Origin: visible(o.Origin), Is: fileSign(o), Silent: silence(o, &x), Facts: originFacts(o, &x, now)}
	if o.ruling.Outcome != cache.Rules || i >= maxOriginTexts {
		return v
	}
	text := string(o.ruling.Result.Body)
	v.fileListing = newListing(text, s.o.Dialect(), prefixOf(i), from, fires(causes, o.URL))
	if len(text) <= maxLinted {
		for _, remark := range robots.Lint([]byte(text), s.o.Dialect()) {
			remark.Text = cut(remark.Text, maxCell)
			v.Remarks = append(v.Remarks, remark)
		}
	}
	return v
}

// prefixOf is what the lines of the i-th origin's file are called by, before their number.
func prefixOf(i int) string {
	if i == 0 {
		return "L"
	}
	return "o" + strconv.Itoa(i+1) + "L"
}

// lineOf leads to a line of an origin's file, on the page of its host.
func (s *server) lineOf(o robots.Origin, line int) string {
	h, _ := s.o.host(o.Host)
	i := slices.IndexFunc(h.Origins, func(s originState) bool { return s.of == o })
	if i < 0 || line == 0 {
		return hostHref(o.Host)
	}
	return hostHref(o.Host) + (&fileListing{prefix: prefixOf(i), from: 1}).lineHref(line)
}

// maxLinted is of how many octets of a file one is told what is likely wrong with it.
const maxLinted = 64 << 10

// silence says why no file is shown, and what that means.
func silence(o *originState, x *explain.Explanation) string {
	switch {
	case o.ruling.Outcome != cache.Rules:
		return x.Sentence()
	case o.Bytes == 0:
		return "The file is empty: everything is allowed."
	}
	return "This file is not shown: the host has too many."
}

func originFacts(o *originState, x *explain.Explanation, now time.Time) []fact {
	all := factsOf(x.Rested())
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{Name: name, Value: value})
		}
	}
	if o.ruling.Outcome == cache.Rules {
		add("Size", fmt.Sprintf("%s, %s", humanize.Bytes(o.Bytes), humanize.Count(o.Rules, "rule")))
	}
	add("Age", ago(now, o.Fetched))
	add("Fetched anew", onceAsked(now, o.Expires))
	add("Tried again", onceAsked(now, o.Retry))
	add("Error", humanize.Prose(o.Error))
	return all
}

// onceAsked says when something is done that is not done before somebody asks.
func onceAsked(now, t time.Time) string {
	if !t.IsZero() && !t.After(now) {
		return "when next asked"
	}
	return ahead(now, t)
}

// doneFlash says what a form has done, by a word that stands in the address.
func doneFlash(word string) *flash {
	switch word {
	case "refetch":
		return good("Fetched again. What came of it stands below.")
	case "purge":
		return good("Forgotten. Who asks next waits for a fetch.")
	case "nothing":
		return good("There was nothing to forget.")
	case "failed":
		return bad("Fetched again, but without a usable answer. What is in force stands below.")
	case "busy":
		return bad("Too many fetches are waited for; try again in a moment.")
	case "late":
		return bad(tooLate.why)
	}
	return nil
}

// changeOrigin does what a button of a host's page says, and leads back.
func (s *server) changeOrigin(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	o, err := parseOrigin(r.PostForm.Get("origin"))
	if err != nil || o.Host != r.PathValue("host") {
		s.refuse(w, r, http.StatusBadRequest, "That is no origin of this host.")
		return
	}
	s.o.Log.Info("the robots.txt of an origin is changed by hand", "origin", o.String(), "do", clip(r.PostForm.Get("do")))
	done := ""
	switch r.PostForm.Get("do") {
	case "refetch":
		done = s.refetchFor(w, r, o)
	case "purge":
		if done = "nothing"; s.o.Book.Purge(o) {
			done = "purge"
		}
	default:
		s.refuse(w, r, http.StatusBadRequest, "That is nothing that can be done here.")
		return
	}
	http.Redirect(w, r, hostHref(o.Host)+"?done="+done, http.StatusSeeOther)
}

func (s *server) refetchFor(w http.ResponseWriter, r *http.Request, o robots.Origin) string {
	done := "refetch"
	switch s.patiently(w, r, func(ctx context.Context) {
		if e, err := s.o.Book.Refetch(ctx, cache.Query{Origin: o}); err != nil || e.Under(s.o.Dialect()).Err != nil {
			done = "failed"
		}
	}) {
	case tooMany:
		return "busy"
	case tooLate:
		return "late"
	}
	return done
}
