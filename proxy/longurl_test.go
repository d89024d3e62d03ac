package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// TestLongURL checks that a URL longer than limits.url is refused with 414 and truncated in the
// record, and that a URL of exactly that length passes.
func TestLongURL(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, func(http.ResponseWriter, *http.Request) {})
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			c := route.client(r)
			url := func(size int) string {
				return origin.URL + "/page?" + strings.Repeat("q", size-len(origin.URL+"/page?"))
			}
			if resp, body, err := get(c, url(8<<10)); err != nil || resp.StatusCode != 200 {
				t.Errorf("a URL of 8 KiB: %v %s", err, body)
			}
			resp, body, err := get(c, url(8<<10+1))
			testkit.Must(t, err)
			if resp.StatusCode != 414 || !strings.Contains(resp.Header.Get("Proxy-Status"), "error=http_request_error") || len(body) > 4<<10 {
				t.Errorf("a longer URL: %s %v, %d bytes", resp.Status, resp.Header, len(body))
			}
			rec := r.records.last(t, 2)
			if d := rec.Decision; d.Verdict != policy.Refuse || d.Reason != policy.ReasonMalformed || rec.Status != 414 || rec.Request.Origin.Host != "127.0.0.1" || len(rec.Request.PathQuery) != 1<<10 {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// TestLongURLAsConfigured checks that limits.url may be as high as 64 KiB.
func TestLongURLAsConfigured(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, func(http.ResponseWriter, *http.Request) {})
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Rules.MaxURL = 64 << 10 }})
			c := route.client(r)
			if resp, body, err := get(c, origin.URL+"/page?"+strings.Repeat("q", 62<<10)); err != nil || resp.StatusCode != 200 {
				t.Errorf("%v %s", err, body)
			}
		})
	}
}
