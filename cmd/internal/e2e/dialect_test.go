package e2e

import (
	"net/http"
	"testing"
)

// TestDialectOfClients: two clients that read robots.txt in two ways ask one
// proxy. The origin sees one fetch of it, and the page only where it may be had.
func TestDialectOfClients(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "dialects", "User-agent: foobot\nDisallow: /private\n\nUser-agent: *\nDisallow: /other\n")
	o.handle("/private", sizedPage(octets(10)))
	p := startProxy(t, outOfTheWay.with(settings{
		"robots.dialect": "rfc9309",
		"open":           true, // to others than lab-a
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
			got := get(t, from(t, p.client(t, false), c.address), o.url(scheme, "/private"), "User-Agent", "FooBot-Images/1.0")
			if got.Status != c.status {
				t.Errorf("%s for %s: status %d, want %d: %s", scheme, c.name, got.Status, c.status, got.Body)
			}
		}
		if fetches := len(o.arrivals(scheme)) - len(o.pages(scheme)); fetches != 1 || len(o.pages(scheme)) != 1 {
			t.Errorf("%s: %d fetches of robots.txt, %d pages", scheme, fetches, len(o.pages(scheme)))
		}
	}
	p.end(t)
	seen := map[string]string{}
	for _, r := range readAudit(t, p.audit) {
		seen[r.Client+" "+r.Decision] = r.Dialect
	}
	if len(seen) != 2 || seen["127.0.0.1 allow"] != "rfc9309" || seen["lab-a block"] != "coccoc" {
		t.Errorf("in the audit: %v", seen)
	}
}
