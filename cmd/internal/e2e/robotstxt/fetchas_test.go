package robotstxt

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// picky makes an origin answer 403 for its robots.txt to one User-Agent and to an empty
// one, as many firewalls do. All others get the rules.
func picky(t *testing.T, label, refused string) *e2e.Origin {
	t.Helper()
	o := e2e.NewOrigin(t, label, "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		if agent := r.UserAgent(); agent == "" || strings.Contains(agent, refused) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, "User-agent: *\nDisallow: /private/\n")
	})
	o.Handle("/private/page", e2e.TextPage("text/plain", "private"))
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	return o
}

// agentsOfFetches returns the User-Agents of the fetches of an origin's robots.txt.
func agentsOfFetches(o *e2e.Origin) (all []string) {
	for _, h := range o.Arrivals("http") {
		if h.Path == "/robots.txt" {
			all = append(all, h.Header.Get("User-Agent"))
		}
	}
	return all
}

// A site's response to one client's User-Agent decides for no other client.
func TestFetchAs(t *testing.T) {
	t.Parallel()
	hostile, honest := []string{"User-Agent", "sqlmap/1.8"}, []string{"User-Agent", "FooBot/1.0 (+https://foo.example)"}
	for _, c := range []struct {
		fetchAs string
		fetched []string // User-Agents of the fetches
		sqlmap  int      // status of /private/page for the hostile client
	}{
		{"auto", []string{"robotsproxy"}, 403},
		{"proxy", []string{"robotsproxy"}, 403},
		{"client", []string{"sqlmap", "FooBot"}, 200}, // "no file", for this client only (RFC 9309 2.3.1.3)
	} {
		t.Run(c.fetchAs, func(t *testing.T) {
			t.Parallel()
			o := picky(t, "fetchas-"+c.fetchAs, "sqlmap")
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.fetch_as": c.fetchAs}))
			client := p.Client(t, false)
			private := o.URL("http", "/private/page")
			if got := e2e.Get(t, client, private, hostile...); got.Status != c.sqlmap {
				t.Errorf("the hostile client is answered %d, want %d", got.Status, c.sqlmap)
			}
			refused := e2e.Get(t, client, private, honest...)
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
			for _, r := range e2e.RecordsOf(e2e.ReadAudit(t, p.Audit), private) {
				if r.RobotsAgent == "" || !slices.Contains(agentsOfFetches(o), r.RobotsAgent) {
					t.Errorf("the record says that robots.txt was fetched as %q", r.RobotsAgent)
				}
			}
		})
	}
}

// A command of one user identifies itself: by its product token, or by the configured
// one.
func TestRunAndCheckFetchAsTheClient(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := picky(t, "fetchas-run", "nobody")
	h := e2e.NewSetup(t, e2e.Unpaced)
	prepareRun := func(flags ...string) []string {
		args := append([]string{"run", "-c", h.Config}, flags...)
		return append(args, "--", curl, "-q", "-sS", "-A", "FooBot/1.0 (+https://foo.example)", o.URL("http", "/page"))
	}
	e2e.Command(t, prepareRun()...).Want(t, 0)
	e2e.Command(t, prepareRun("-A", "BarBot/2.0 (+https://bar.example)")...).Want(t, 0)
	e2e.Command(t, "check", "-c", h.Config, "-A", "BazBot/3.0", o.URL("http", "/page")).Want(t, 0)
	want := []string{"FooBot", "BarBot/2.0 (+https://bar.example)", "BazBot/3.0"}
	if got := agentsOfFetches(o); !slices.Equal(got, want) {
		t.Errorf("robots.txt was fetched as %q, want %q", got, want)
	}
}
