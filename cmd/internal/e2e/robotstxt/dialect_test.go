package robotstxt

import (
	"net/http"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// TestDialectOfClients: two clients with different dialects use one proxy. The origin
// gets one fetch of robots.txt, and requests for the page only from the client that may
// have it.
func TestDialectOfClients(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "dialects", "User-agent: foobot\nDisallow: /private\n\nUser-agent: *\nDisallow: /other\n")
	o.Handle("/private", e2e.SizedPage(e2e.RandomBytes(10)))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{
		"robots.dialect": "rfc9309",
		"open":           true, // for clients other than lab-a
		"clients": []any{
			map[string]any{"name": "lab-a", "networks": []string{"127.0.0.2/32"}, "robots": map[string]any{"dialect": "coccoc"}},
		},
	}))
	for _, scheme := range []string{"http", "https"} {
		for _, c := range []struct {
			address, name, dialect string
			status                 int
		}{
			{"127.0.0.1", "127.0.0.1", "rfc9309", http.StatusOK},
			{"127.0.0.2", "lab-a", "coccoc", http.StatusForbidden},
		} {
			got := e2e.Get(t, e2e.From(t, p.Client(t, false), c.address), o.URL(scheme, "/private"), "User-Agent", "FooBot-Images/1.0")
			if got.Status != c.status {
				t.Errorf("%s for %s: status %d, want %d: %s", scheme, c.name, got.Status, c.status, got.Body)
			}
		}
		if fetches := len(o.Arrivals(scheme)) - len(o.Pages(scheme)); fetches != 1 || len(o.Pages(scheme)) != 1 {
			t.Errorf("%s: %d fetches of robots.txt, %d pages", scheme, fetches, len(o.Pages(scheme)))
		}
	}
	p.End(t)
	seen := map[string]string{}
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		seen[r.Client+" "+r.Decision] = r.Dialect
	}
	if len(seen) != 2 || seen["127.0.0.1 allow"] != "rfc9309" || seen["lab-a block"] != "coccoc" {
		t.Errorf("in the audit: %v", seen)
	}
}
