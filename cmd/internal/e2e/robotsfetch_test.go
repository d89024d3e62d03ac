package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// fetchRecords are the records of fetches of robots.txt, by the address of the file.
func fetchRecords(t testing.TB, file string) map[string][]record {
	t.Helper()
	all := map[string][]record{}
	for _, r := range readLines(t, file) {
		if r.Kind == "robots" {
			all[r.URL] = append(all[r.URL], r)
		}
	}
	return all
}

// Sites whose robots.txt is redirected to a page of another site reach nothing that the
// other site's robots.txt disallows, and every GET is in the audit.
func TestRedirectedRobotsTxtIsJudged(t *testing.T) {
	t.Parallel()
	const sites = 8
	target := newOrigin(t, "hop-target", "User-agent: robotsproxy\nDisallow: /private/\n")
	target.handle("/private/x", textPage("text/plain", "User-agent: *\nAllow: /\n"))
	target.handle("/public/robots", textPage("text/plain", "User-agent: *\nDisallow: /no/\n"))
	p := startProxy(t, outOfTheWay)
	client := p.client(t, false)
	for i := range sites {
		for path, want := range map[string]int{"/private/x": http.StatusForbidden, "/public/robots": http.StatusOK} {
			o := newOrigin(t, fmt.Sprintf("hop-%d-%s", i, strings.Split(path, "/")[1]), "")
			o.handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target.url("http", path), http.StatusFound)
			})
			o.handle("/page", textPage("text/plain", "page"))
			if got := get(t, client, o.url("http", "/page")); got.Status != want {
				t.Errorf("redirected to %s: %d, want %d: %s", path, got.Status, want, got.Body)
			}
		}
	}
	p.end(t)
	arrived := map[string]int{}
	for _, h := range target.arrivals("http") {
		arrived[h.Path]++
	}
	if arrived["/private/x"] != 0 || arrived["/public/robots"] != sites || arrived["/robots.txt"] != 1 {
		t.Errorf("at the site that they lead to arrived %v", arrived)
	}
	recorded := map[string]int{}
	for _, all := range fetchRecords(t, p.audit) {
		for _, r := range all {
			for _, hop := range append(r.Hops, r.URL) {
				if rest, found := strings.CutPrefix(hop, target.url("http", "")); found {
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
	for _, r := range readAudit(t, p.audit) {
		if r.Decision == "block" && !strings.HasSuffix(r.RobotsURL, "/robots.txt") {
			t.Errorf("a request's record names %s, which was not asked", r.RobotsURL)
		}
	}
}

// What is fetched is in the audit, also where only refusals are.
func TestFetchesOfRobotsTxtAreRecorded(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "fetch-records", "")
	status := http.StatusOK
	o.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	o.handle("/page", textPage("text/plain", "page"))
	p := startProxy(t, outOfTheWay.with(settings{"audit.include": "blocked"}))
	get(t, p.client(t, false), o.url("http", "/page"))
	p.end(t)
	all := fetchRecords(t, p.audit)[o.url("http", "/robots.txt")]
	if len(all) != 1 || all[0].Status != status || all[0].Outcome != "rules" || all[0].SHA256 == "" || len(all[0].Hops) != 0 {
		t.Errorf("%+v", all)
	}
	if slices.ContainsFunc(readAudit(t, p.audit), func(r record) bool { return r.Decision == "allow" }) {
		t.Error("an allowed request is recorded")
	}
}
