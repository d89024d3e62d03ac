package admin

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
)

// An aboutView is the page about this proxy.
type aboutView struct {
	frame
	Connect string
	Facts   factList
	Reloads factList

	// ReloadErrors say why the last reload was refused.
	ReloadErrors   []string
	Healthy, Ready badge

	// Replica is the state of the replica; nil: the proxy is no replica.
	Replica factList

	// Shared says whether it paces together with the other replicas.
	Shared    badge
	CanReload bool
	Audit     factList

	// Chain says what the last verification of the audit has found.
	Chain     badge
	CanVerify bool
	API       []apiRow
}

// An apiRow is an endpoint of the API. It has an Href if a browser can open it.
type apiRow struct{ Method, Path, Href, About string }

func (s *Server) newAboutView(r *http.Request) aboutView {
	v := aboutView{frame: s.newFrame("About", "/about"), CanReload: s.opts.Reload != nil}
	v.Connect = s.connectAddress(r)
	now := nowUTC()
	v.Facts = s.aboutFacts(v.Connect, now)
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
func (s *Server) aboutFacts(proxy string, now time.Time) (all factList) {
	a := s.opts.About()
	all.add("Version", printable(s.opts.Version))
	all.addCode("Commit", a.Commit)
	all.add("Go", runtime.Version())
	all.add("Started", timeWithAge(now, a.Started))
	all.addCode("Proxy address", proxy)
	all.add("Mode", s.modeText())
	all.add("Dialect of robots.txt", s.opts.Dialect().Name)
	all.addCode("Configuration", a.Config)
	all.addCode("State", a.State)
	if c := s.opts.caCertificate(); c != nil {
		all.add("CA", printable(c.Subject))
		all.addCode("SHA-256 of the CA", c.SHA256)
		all.add("CA expires", c.Expires)
	}
	if a.Archive != nil {
		all.addCode("Archive", a.Archive.Dir)
		all.add("Archived", a.Archive.text())
	}
	for _, signing := range a.Signing {
		of := ""
		if signing.Client != "" {
			of = " of client " + printable(signing.Client)
		}
		all.addCode("Signing key"+of, signing.KeyID)
		all.addCode("Agent"+of, signing.Agent)
	}
	return all
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
func (r *reloadStatus) facts(now time.Time) (all factList) {
	last := "none so far"
	switch {
	case r.Errors != nil:
		last = "failed"
	case r.OK > 0:
		last = "succeeded"
	}
	all.add("Active since", timeWithAge(now, r.since))
	all.add("Reloads so far", humanize.Number(r.OK)+" succeeded, "+humanize.Number(r.Refused)+" failed")
	all.add("Last reload", last)
	return all
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
	v.Flash, v.ReloadErrors = errorFlash(reloadFailed, clipErrors(strings.Split(err.Error(), "\n"))...), nil
	s.render(w, http.StatusUnprocessableEntity, "about", "frame", v)
}

// facts returns the state of the replica for the page.
func (s *Store) facts(now time.Time) (all factList) {
	since := "Shared since"
	if s.StoreAway {
		since = "Alone since"
	}
	all.addCode("This replica", s.Replica)
	all.add("Replicas", fmt.Sprintf("%d of %d seen", s.Members, s.Expected))
	all.add("Pace", s.paceText())
	all.add(since, timeWithAge(now, s.Since))
	return all
}

// sharedBadge says whether the replica paces together with the others.
func (s *Store) sharedBadge() badge {
	if warning := s.warning(); warning != "" {
		return badge{Kind: "wait", Icon: "info", Word: "No", Note: warning}
	}
	return badge{Kind: "allow", Icon: "allow", Word: "Yes"}
}
