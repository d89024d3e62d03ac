package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots/testkit"
)

// TestDisallowedInAnotherReading checks that a path is refused if servers may normalise it to a
// disallowed path. The request is not sent, and the record and the refusal name the normalisation.
func TestDisallowedInAnotherReading(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			var arrived atomic.Int64
			origin := route.serve(t, "User-agent: *\nDisallow: /private\nAllow: /web/\n", func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			c := route.client(r)
			for i, one := range []struct{ path, form, read string }{
				{"/a/../private/x", "dots-removed", "/private/x"},
				{"//private/x?q", "slashes-merged", "/private/x?q"},
				{"/a//../private/x", "slashes-merged+dots-removed", "/private/x"},
				{"/private%2Fx", "", ""}, // as sent
				{"/a/..%2fprivate/x", "slashes-decoded+dots-removed", "/private/x"},
				{"/%5cprivate/x", "slashes-decoded+slashes-merged", "/private/x"},
				{"/a/..;/private/x", "parameters-stripped+dots-removed", "/private/x"},
			} {
				resp, body, err := get(c, origin.URL+one.path)
				testkit.Must(t, err)
				if resp.StatusCode != 403 || !strings.Contains(body, "Disallow: /private (line 2)") || !strings.Contains(body, one.read+" ("+one.form+")") && one.form != "" {
					t.Errorf("%s: %s %s", one.path, resp.Status, body)
				}
				d := r.records.last(t, i+1).Decision
				if d.Form.String() != one.form || d.Read != one.read || d.Reason != policy.ReasonRule || d.Verdict != policy.Refuse {
					t.Errorf("%s: record: %+v", one.path, d)
				}
			}
			if n := arrived.Load(); n > 0 {
				t.Errorf("%d requests arrived at the origin", n)
			}
			for _, path := range []string{"/web/2020/https://example.org/", "/a%252Fprivate", "/;private", "/x?//private"} {
				if resp, body, err := get(c, origin.URL+path); err != nil || resp.StatusCode != 200 {
					t.Errorf("%s: %v %s", path, err, body)
				}
			}
		})
	}
}
