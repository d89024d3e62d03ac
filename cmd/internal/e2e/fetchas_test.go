package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// picky has an origin answer 403 for its robots.txt to one User-Agent and to an empty
// one, as many firewalls do, and with its rules to all others.
func picky(t *testing.T, label, refused string) *origin {
	t.Helper()
	o := newOrigin(t, label, "")
	o.handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		if agent := r.UserAgent(); agent == "" || strings.Contains(agent, refused) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, "User-agent: *\nDisallow: /private/\n")
	})
	o.handle("/private/page", textPage("text/plain", "private"))
	o.handle("/page", textPage("text/plain", "page"))
	return o
}

// agentsOfFetches are the User-Agents that an origin's robots.txt was asked for with.
func agentsOfFetches(o *origin) (all []string) {
	for _, h := range o.arrivals("http") {
		if h.Path == "/robots.txt" {
			all = append(all, h.Header.Get("User-Agent"))
		}
	}
	return all
}

// What a site answers to one client's User-Agent decides for no other client.
func TestFetchAs(t *testing.T) {
	t.Parallel()
	hostile, honest := []string{"User-Agent", "sqlmap/1.8"}, []string{"User-Agent", "FooBot/1.0 (+https://foo.example)"}
	for _, c := range []struct {
		fetchAs string
		fetched []string // as
		sqlmap  int      // what the hostile client gets for /private/page
	}{
		{"auto", []string{"robotsproxy"}, 403},
		{"proxy", []string{"robotsproxy"}, 403},
		{"client", []string{"sqlmap", "FooBot"}, 200}, // "no file" for itself alone (RFC 9309 2.3.1.3)
	} {
		t.Run(c.fetchAs, func(t *testing.T) {
			t.Parallel()
			o := picky(t, "fetchas-"+c.fetchAs, "sqlmap")
			p := startProxy(t, outOfTheWay.with(settings{"robots.fetch_as": c.fetchAs}))
			client := p.client(t, false)
			private := o.url("http", "/private/page")
			if got := get(t, client, private, hostile...); got.Status != c.sqlmap {
				t.Errorf("the hostile client is answered %d, want %d", got.Status, c.sqlmap)
			}
			refused := get(t, client, private, honest...)
			if refused.Status != http.StatusForbidden || !strings.Contains(string(refused.Body), "fetched as:") {
				t.Errorf("the honest client is answered %d: %s", refused.Status, refused.Body)
			}
			fetched := agentsOfFetches(o)
			for i, agent := range fetched {
				fetched[i], _, _ = strings.Cut(agent, "/")
			}
			if !slices.Equal(fetched, c.fetched) {
				t.Errorf("robots.txt was fetched as %q, want %q", fetched, c.fetched)
			}
			for _, r := range recordsOf(readAudit(t, p.audit), private) {
				if r.RobotsAgent == "" || !slices.Contains(agentsOfFetches(o), r.RobotsAgent) {
					t.Errorf("the record says that robots.txt was fetched as %q", r.RobotsAgent)
				}
			}
		})
	}
}

// A command of one user speaks for itself: by its product token, or as it is told to.
func TestRunAndCheckFetchAsTheClient(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := picky(t, "fetchas-run", "nobody")
	h := newHouse(t, outOfTheWay)
	prepareRun := func(flags ...string) []string {
		args := append([]string{"run", "-c", h.config}, flags...)
		return append(args, "--", curl, "-q", "-sS", "-A", "FooBot/1.0 (+https://foo.example)", o.url("http", "/page"))
	}
	command(t, prepareRun()...).want(t, 0)
	command(t, prepareRun("-A", "BarBot/2.0 (+https://bar.example)")...).want(t, 0)
	command(t, "check", "-c", h.config, "-A", "BazBot/3.0", o.url("http", "/page")).want(t, 0)
	want := []string{"FooBot", "BarBot/2.0 (+https://bar.example)", "BazBot/3.0"}
	if got := agentsOfFetches(o); !slices.Equal(got, want) {
		t.Errorf("robots.txt was fetched as %q, want %q", got, want)
	}
}
