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

// An aboutView is the page about this proxy.
type aboutView struct {
	frame
	Connect connectView
	Facts   []fact
	Reloads []fact

	// Why the last reload was refused.
	ReloadErrors   []string
	Healthy, Ready badge

	// State of the replica; nil: the proxy is no replica.
	Replica []fact

	// Whether it paces together with the other replicas.
	Shared    badge
	CanReload bool
	Audit     []fact

	// What the last verification of the audit has found.
	Chain     badge
	CanVerify bool
	API       []apiRow
}

// An apiRow is an endpoint of the API. It has an Href if a browser can open it.
type apiRow struct{ Method, Path, Href, About string }

func (s *Server) newAboutView(r *http.Request) aboutView {
	v := aboutView{frame: s.newFrame("About", "/about"), CanReload: s.opts.Reload != nil}
	v.Connect = s.newConnectView(r)
	now := nowUTC()
	v.Facts = s.aboutFacts(v.Connect.Proxy, now)
	if r := s.opts.reloadStatus(); r != nil {
		v.Reloads, v.ReloadErrors = r.facts(now), clipErrors(r.Errors)
	}
	v.Audit, v.Chain, v.CanVerify = s.auditFacts(now), s.chain.badge(now), s.opts.Evidence != nil
	if s.opts.Store != nil {
		store := s.opts.Store()
		v.Replica, v.Shared = store.facts(now), store.sharedBadge()
	}
	v.Healthy, v.Ready = healthBadge(s.opts.Healthy()), healthBadge(s.opts.Ready())
	for _, e := range s.endpoints() {
		row := apiRow{Method: e.Method, Path: e.Path, About: e.Description}
		if e.Method == http.MethodGet && !strings.Contains(e.Path, "{") {
			row.Href = e.Path
		}
		v.API = append(v.API, row)
	}
	return v
}

// aboutFacts returns the version, the files and the CA of this proxy.
func (s *Server) aboutFacts(proxy string, now time.Time) []fact {
	a := s.opts.About()
	all := []fact{
		{Name: "Version", Value: printable(s.opts.Version)}, {Name: "Commit", Value: printable(a.Commit), Code: true}, {Name: "Go", Value: runtime.Version()},
		{Name: "Started", Value: timeWithAge(now, a.Started)},
		{Name: "Proxy address", Value: printable(proxy), Code: true}, {Name: "Mode", Value: s.modeText()}, {Name: "Dialect of robots.txt", Value: s.opts.Dialect().Name},
		{Name: "Configuration", Value: printable(a.Config), Code: true}, {Name: "State", Value: printable(a.State), Code: true},
	}
	if c := s.opts.caCertificate(); c != nil {
		all = append(all, fact{Name: "CA", Value: printable(c.Subject)}, fact{Name: "SHA-256 of the CA", Value: c.SHA256, Code: true}, fact{Name: "CA expires", Value: c.Expires})
	}
	if of := a.Archive; of != nil {
		all = append(all, fact{Name: "Archive", Value: printable(of.Dir), Code: true}, fact{Name: "Archived", Value: of.text()})
	}
	for _, by := range a.Signing {
		of := ""
		if by.Client != "" {
			of = " of client " + printable(by.Client)
		}
		all = append(all, fact{Name: "Signing key" + of, Value: printable(by.KeyID), Code: true}, fact{Name: "Agent" + of, Value: printable(by.Agent), Code: true})
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// text says what an archive has.
func (a *Archive) text() string {
	if a.Err != nil {
		return "cannot be written: " + clipPrintable(a.Err.Error(), maxCell)
	}
	lost := ""
	if a.Lost > 0 {
		lost = ", " + humanize.Number(a.Lost) + " responses not archived"
	}
	return fmt.Sprintf("%s records since the start, %s of them revisits%s; %s on the disk, %s free",
		humanize.Number(a.Records), humanize.Number(a.Revisits), lost, humanize.Bytes(a.Bytes), humanize.Bytes(a.Free))
}

// modeText says whether decisions are enforced.
func (s *Server) modeText() string {
	if s.opts.Monitor() {
		return "monitor: the proxy decides and records, but blocks and delays no request"
	}
	return "enforce"
}

// facts returns the outcome of the reloads for the page.
func (r *reloadStatus) facts(now time.Time) []fact {
	last := "none so far"
	switch {
	case r.Errors != nil:
		last = "failed"
	case r.OK > 0:
		last = "succeeded"
	}
	all := []fact{
		{Name: "Active since", Value: timeWithAge(now, r.since)},
		{Name: "Reloads so far", Value: humanize.Number(r.OK) + " succeeded, " + humanize.Number(r.Refused) + " failed"}, {Name: "Last reload", Value: last},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// timeWithAge formats a time and its age for people. It returns "" for the zero time.
func timeWithAge(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return utcTime(t) + ", " + timeAgo(now, t)
}

func clipErrors(lines []string) (all []string) {
	for _, line := range lines {
		if line = strings.TrimRight(line, "\r"); line != "" {
			all = append(all, clipPrintable(line, 2048))
		}
	}
	return all
}

func healthBadge(err error) badge {
	if err != nil {
		return badge{Kind: "block", Icon: "block", Word: "No", Note: printable(err.Error())}
	}
	return badge{Kind: "allow", Icon: "allow", Word: "Yes"}
}

func (s *Server) showAbout(w http.ResponseWriter, r *http.Request) {
	v := s.newAboutView(r)
	if r.URL.Query().Get("done") == "reload" {
		v.Flash = successFlash("The configuration was reloaded.")
	}
	s.render(w, http.StatusOK, "about", "frame", v)
}

// postReload reloads the configuration and shows the errors line by line.
func (s *Server) postReload(w http.ResponseWriter, r *http.Request) {
	if s.opts.Reload == nil {
		s.refuse(w, r, http.StatusNotImplemented, "This proxy has no configuration file to reload.")
		return
	}
	// A reload must finish even if the client disconnects.
	err := s.opts.Reload(context.WithoutCancel(r.Context()))
	if err == nil {
		http.Redirect(w, r, "/about?done=reload", http.StatusSeeOther)
		return
	}
	v := s.newAboutView(r)
	// The flash has the errors already.
	v.Flash, v.ReloadErrors = errorFlash("The reload failed. The previous configuration stays active.", clipErrors(strings.Split(err.Error(), "\n"))...), nil
	s.render(w, http.StatusUnprocessableEntity, "about", "frame", v)
}

// facts returns the state of the replica for the page.
func (s *Store) facts(now time.Time) []fact {
	since := "Shared since"
	if s.StoreAway {
		since = "Alone since"
	}
	all := []fact{
		{Name: "This replica", Value: printable(s.Replica), Code: true},
		{Name: "Replicas", Value: fmt.Sprintf("%d of %d seen", s.Members, s.Expected)},
		{Name: "Pace", Value: s.paceText()},
		{Name: since, Value: timeWithAge(now, s.Since)},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// sharedBadge says whether the replica paces together with the others.
func (s *Store) sharedBadge() badge {
	if warning := s.warning(); warning != "" {
		return badge{Kind: "wait", Icon: "info", Word: "No", Note: warning}
	}
	return badge{Kind: "allow", Icon: "allow", Word: "Yes"}
}
