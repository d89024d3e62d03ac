package robotstxt

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/e2e"
)

// An unknown origin costs one additional round trip for its robots.txt: the page uses the
// same connection, and the next page needs no fetch.
func TestColdOriginCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, c := range []struct {
		name, scheme string
		h2           bool // inside the tunnel
		origin       func(t testing.TB, label, robots string) *e2e.Origin
	}{
		{"http", "http", false, e2e.NewOrigin},
		{"https", "https", false, e2e.NewOrigin},
		{"https by h2", "https", true, e2e.NewOrigin},
		{"https to h2", "https", true, e2e.NewOrigin2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := c.origin(t, "cold", "User-agent: *\nDisallow: /private\n")
			o.Handle("/page", e2e.TextPage("text/plain", "hello"))
			client := p.Client(t, c.h2)
			want := []string{"GET /robots.txt", "GET /page"}
			for range 2 {
				if got := e2e.Get(t, client, o.URL(c.scheme, "/page")); got.Status != http.StatusOK {
					t.Fatalf("%v", got)
				}
				var arrived []string
				for _, h := range o.Arrivals(c.scheme) {
					arrived = append(arrived, h.Method+" "+h.Path)
				}
				if diff := cmp.Diff(want, arrived); diff != "" {
					t.Errorf("at the origin (-want +got):\n%s", diff)
				}
				if n := o.Connections(); n != 1 {
					t.Errorf("%d connections, want one for all", n)
				}
				want = append(want, "GET /page")
			}
		})
	}
}
