package e2e

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An origin that nothing is known of costs one round trip for its robots.txt: the
// page goes over the same connection, and the next one asks for nothing else.
func TestColdOriginCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	p := startProxy(t, outOfTheWay)
	for _, c := range []struct {
		name, scheme string
		h2           bool // inside the tunnel
		origin       func(t testing.TB, label, robots string) *origin
	}{
		{"http", "http", false, newOrigin},
		{"https", "https", false, newOrigin},
		{"https by h2", "https", true, newOrigin},
		{"https to h2", "https", true, newOrigin2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := c.origin(t, "cold", "User-agent: *\nDisallow: /private\n")
			o.handle("/page", textPage("text/plain", "hello"))
			client := p.client(t, c.h2)
			want := []string{"GET /robots.txt", "GET /page"}
			for range 2 {
				if got := get(t, client, o.url(c.scheme, "/page")); got.Status != http.StatusOK {
					t.Fatalf("%v", got)
				}
				var arrived []string
				for _, h := range o.arrivals(c.scheme) {
					arrived = append(arrived, h.Method+" "+h.Path)
				}
				if diff := cmp.Diff(want, arrived); diff != "" {
					t.Errorf("at the origin (-want +got):\n%s", diff)
				}
				if n := o.connections(); n != 1 {
					t.Errorf("%d connections, want one for all", n)
				}
				want = append(want, "GET /page")
			}
		})
	}
}
