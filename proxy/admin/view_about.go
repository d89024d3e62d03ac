package admin

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
)

// An aboutView says what this proxy is and what can be done with it.
type aboutView struct {
	frame
	Proxy       string
	Facts       []fact
	Reloads     []fact
	Why         []string // the last reload was refused
	Well, Ready is
	Replica     []fact // how it stands to the others; nil: there are none
	Shares      is     // with them, one pace
	CanReload   bool
	API         []apiRow
}

// An apiRow is a part of the API; one that can be looked at has an Href.
type apiRow struct{ Method, Path, Href, About string }

func (s *server) aboutView(r *http.Request) aboutView {
	v := aboutView{frame: s.frame("About", "/about"), CanReload: s.o.Reload != nil}
	if v.Proxy = s.proxyFor(r); v.Proxy == "" {
		v.Proxy = s.o.Proxy.String()
	}
	at := now()
	v.Facts = s.aboutFacts(v.Proxy, at)
	if r := s.o.reloads(); r != nil {
		v.Reloads, v.Why = r.facts(at), shownErrors(r.Errors)
	}
	if s.o.Store != nil {
		store := s.o.Store()
		v.Replica, v.Shares = store.facts(at), store.sharing()
	}
	v.Well, v.Ready = condition(s.o.Healthy()), condition(s.o.Ready())
	for _, e := range s.endpoints() {
		row := apiRow{Method: e.Method, Path: e.Path, About: e.What}
		if e.Method == http.MethodGet && !strings.Contains(e.Path, "{") {
			row.Href = e.Path
		}
		v.API = append(v.API, row)
	}
	return v
}

// aboutFacts says what this proxy is, and where it has its things.
func (s *server) aboutFacts(proxy string, at time.Time) []fact {
	a := s.o.About()
	all := []fact{
		{Name: "Version", Value: visible(s.o.Version)}, {Name: "Commit", Value: visible(a.Commit), Code: true}, {Name: "Go", Value: runtime.Version()},
		{Name: "Started", Value: moment(at, a.Started)},
		{Name: "Proxy address", Value: visible(proxy), Code: true}, {Name: "Reads robots.txt as", Value: s.o.Dialect().Name},
		{Name: "Configuration", Value: visible(a.Config), Code: true}, {Name: "State", Value: visible(a.State), Code: true}, {Name: "Audit", Value: visible(a.Audit), Code: true},
	}
	if c := s.o.ca(); c != nil {
		all = append(all, fact{Name: "CA", Value: visible(c.Subject)}, fact{Name: "Its SHA-256", Value: c.SHA256, Code: true}, fact{Name: "It expires", Value: c.Expires})
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// facts says what came of reloads.
func (r *reloading) facts(at time.Time) []fact {
	last := "none was asked for"
	switch {
	case r.Errors != nil:
		last = "refused"
	case r.OK > 0:
		last = "in force"
	}
	all := []fact{
		{Name: "In force since", Value: moment(at, r.since)},
		{Name: "Reloads so far", Value: humanize.Number(r.OK) + " in force, " + humanize.Number(r.Refused) + " refused"}, {Name: "The last one", Value: last},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// moment is a time for people, and how long ago it was; "" of the zero time.
func moment(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime) + ", " + ago(now, t)
}

func shownErrors(lines []string) (all []string) {
	for _, line := range lines {
		if line = strings.TrimRight(line, "\r"); line != "" {
			all = append(all, cut(line, 2048))
		}
	}
	return all
}

func condition(err error) is {
	if err != nil {
		return is{Kind: "block", Icon: "block", Word: "No", Note: visible(err.Error())}
	}
	return is{Kind: "allow", Icon: "allow", Word: "Yes"}
}

func (s *server) showAbout(w http.ResponseWriter, r *http.Request) {
	v := s.aboutView(r)
	if r.URL.Query().Get("done") == "reload" {
		v.Flash = good("The configuration was read and is in force.")
	}
	s.show(w, http.StatusOK, "about", "frame", v)
}

// reloadByHand reads the configuration anew, and says line by line what is wrong with it.
func (s *server) reloadByHand(w http.ResponseWriter, r *http.Request) {
	if s.o.Reload == nil {
		s.refuse(w, r, http.StatusNotImplemented, "This proxy has no configuration that it could read anew.")
		return
	}
	err := s.o.Reload(context.WithoutCancel(r.Context())) // whole or not at all
	if err == nil {
		http.Redirect(w, r, "/about?done=reload", http.StatusSeeOther)
		return
	}
	v := s.aboutView(r)
	v.Flash, v.Why = bad("The configuration stays as it was.", shownErrors(strings.Split(err.Error(), "\n"))...), nil // once is enough
	s.show(w, http.StatusUnprocessableEntity, "about", "frame", v)
}

// facts is how a replica stands, for the page about it.
func (s *Store) facts(at time.Time) []fact {
	since := "Shared since"
	if s.Alone {
		since = "Alone since"
	}
	all := []fact{
		{Name: "This replica", Value: visible(s.Replica), Code: true},
		{Name: "Replicas", Value: fmt.Sprintf("%d of %d seen", s.Members, s.Expected)},
		{Name: "Pace", Value: s.timesWords()},
		{Name: since, Value: moment(at, s.Since)},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// sharing is whether a replica paces with the others.
func (s *Store) sharing() is {
	if words := s.aloneWords(); words != "" {
		return is{Kind: "wait", Icon: "info", Word: "No", Note: words}
	}
	return is{Kind: "allow", Icon: "allow", Word: "Yes"}
}
