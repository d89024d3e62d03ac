package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/hours"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// closedToday returns hours that are not open on this day, the one before and the next one.
func closedToday(t *testing.T) []*hours.Schedule {
	t.Helper()
	s, err := hours.Parse(time.Now().UTC().AddDate(0, 0, 3).Format("Mon"))
	testkit.Must(t, err)
	return []*hours.Schedule{s}
}

// TestOutsideHours: outside the hours of a host, it gets neither a request nor a connection, and clients learn when to come back.
func TestOutsideHours(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ overTLS, passThrough bool }{
		"http": {}, "https": {overTLS: true}, "a tunnel that is passed through": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			origin := serve(t, c.overTLS, "User-agent: *\nDisallow: /private\n", func(http.ResponseWriter, *http.Request) {})
			r := start(t, setup{
				origins:       []*httptest.Server{origin.Server},
				change:        func(o *proxy.Options) { o.PassThrough = func(string) bool { return c.passThrough } },
				policyOptions: func(o *policy.Options) { o.Hosts = []policy.Host{{Match: "*", Hours: closedToday(t)}} },
			})
			if c.passThrough {
				r.roots.AddCert(origin.Certificate())
			}
			for n, path := range []string{"/", "/robots.txt", "/private"} {
				resp, body, err := get(r.client(false), origin.URL+path)
				rec := r.records.last(t, n+1)
				if rec.Decision.Reason != policy.ReasonHours || rec.Decision.Verdict != policy.Refuse || rec.Status != http.StatusTooManyRequests || rec.Slot {
					t.Errorf("%s: the record says %v %s %d", path, rec.Decision.Verdict, rec.Decision.Reason, rec.Status)
				}
				if c.passThrough {
					// The client library does not show the refusal of a CONNECT.
					if err == nil || !strings.Contains(err.Error(), "Too Many Requests") {
						t.Errorf("%s: %v", path, err)
					}
					continue
				}
				testkit.Must(t, err)
				after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
				if resp.StatusCode != http.StatusTooManyRequests || after < 24*60*60 || !strings.Contains(body, "only at these hours") {
					t.Errorf("%s: %s, Retry-After %d\n%s", path, resp.Status, after, body)
				}
			}
			for result, n := range r.egress.Stats().Origins.Dialed {
				if n != 0 {
					t.Errorf("%d connections: %s", n, result)
				}
			}
			if seen := origin.paths(); len(seen) != 0 {
				t.Errorf("the origin saw %q", seen)
			}
		})
	}
}

// TestMonitorKeepsNoHours: in monitor mode a request outside the hours is sent, and recorded as one that would have been refused.
func TestMonitorKeepsNoHours(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(http.ResponseWriter, *http.Request) {})
	r := start(t, setup{
		change:        func(o *proxy.Options) { o.Monitor = true },
		policyOptions: func(o *policy.Options) { o.Hosts = []policy.Host{{Match: "*", Hours: closedToday(t)}} },
	})
	resp, _, err := get(r.client(false), origin.URL+"/page")
	testkit.Must(t, err)
	if rec := r.records.last(t, 1); resp.StatusCode != http.StatusOK || rec.Decision.Reason != policy.ReasonHours || !rec.Monitor {
		t.Errorf("%s, %+v", resp.Status, rec)
	}
}
