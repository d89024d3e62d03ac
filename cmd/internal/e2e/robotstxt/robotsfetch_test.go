package robotstxt

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// fetchRecords returns the records of robots.txt fetches, by the URL of the file.
func fetchRecords(t testing.TB, file string) map[string][]e2e.Record {
	t.Helper()
	all := map[string][]e2e.Record{}
	for _, r := range e2e.ReadLines(t, file) {
		if r.Kind == "robots" {
			all[r.URL] = append(all[r.URL], r)
		}
	}
	return all
}

// If the robots.txt of a site is redirected to a page of another site, nothing is
// requested that the other site's robots.txt disallows, and every GET is in the audit.
func TestRedirectedRobotsTxtIsJudged(t *testing.T) {
	t.Parallel()
	const sites = 8
	target := e2e.NewOrigin(t, "hop-target", "User-agent: robotsproxy\nDisallow: /private/\n")
	target.Handle("/private/x", e2e.TextPage("text/plain", "User-agent: *\nAllow: /\n"))
	target.Handle("/public/robots", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /no/\n"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, false)
	for i := range sites {
		for path, want := range map[string]int{"/private/x": http.StatusForbidden, "/public/robots": http.StatusOK} {
			o := e2e.NewOrigin(t, fmt.Sprintf("hop-%d-%s", i, strings.Split(path, "/")[1]), "")
			o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target.URL("http", path), http.StatusFound)
			})
			o.Handle("/page", e2e.TextPage("text/plain", "page"))
			if got := e2e.Get(t, client, o.URL("http", "/page")); got.Status != want {
				t.Errorf("redirected to %s: %d, want %d: %s", path, got.Status, want, got.Body)
			}
		}
	}
	p.End(t)
	arrived := map[string]int{}
	for _, h := range target.Arrivals("http") {
		arrived[h.Path]++
	}
	if arrived["/private/x"] != 0 || arrived["/public/robots"] != sites || arrived["/robots.txt"] != 1 {
		t.Errorf("at the site that they lead to arrived %v", arrived)
	}
	recorded := map[string]int{}
	for _, all := range fetchRecords(t, p.Audit) {
		for _, r := range all {
			for _, hop := range append(r.Hops, r.URL) {
				if rest, found := strings.CutPrefix(hop, target.URL("http", "")); found {
					recorded[rest]++
				}
			}
			if r.Decision != "" || r.Outcome == "" || !strings.HasPrefix(r.UserAgent, "robotsproxy/") {
				t.Errorf("%+v", r)
			}
		}
	}
	if recorded["/private/x"] != 0 || recorded["/public/robots"] != sites || recorded["/robots.txt"] != 1 {
		t.Errorf("recorded %v", recorded)
	}
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		if r.Decision == "block" && !strings.HasSuffix(r.RobotsURL, "/robots.txt") {
			t.Errorf("a request's record names %s, which was not asked", r.RobotsURL)
		}
	}
}

// Fetches are recorded even if only refusals are.
func TestFetchesOfRobotsTxtAreRecorded(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "fetch-records", "")
	status := http.StatusOK
	o.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.include": "blocked"}))
	e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
	p.End(t)
	all := fetchRecords(t, p.Audit)[o.URL("http", "/robots.txt")]
	if len(all) != 1 || all[0].Status != status || all[0].Outcome != "rules" || all[0].SHA256 == "" || len(all[0].Hops) != 0 {
		t.Errorf("%+v", all)
	}
	if slices.ContainsFunc(e2e.ReadAudit(t, p.Audit), func(r e2e.Record) bool { return r.Decision == "allow" }) {
		t.Error("an allowed request is recorded")
	}
}
