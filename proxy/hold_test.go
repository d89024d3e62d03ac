package proxy_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/hours"
	"robotsproxy/policy/pace"
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
				if resp.StatusCode != http.StatusTooManyRequests || after < 24*60*60 || !strings.Contains(body, "only at these hours") ||
					!strings.Contains(resp.Header.Get("Proxy-Status"), `details="hours: `) {
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

// TestCoolDown: a client that a host refuses in a row is stopped there, over http and https, and with requests inside a kept tunnel.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	for _, overTLS := range []bool{false, true} {
		t.Run("TLS "+strconv.FormatBool(overTLS), func(t *testing.T) {
			origin := serve(t, overTLS, "User-agent: *\nDisallow: /private\n", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server},
				policyOptions: func(o *policy.Options) {
					o.CoolDown = policy.CoolDown{After: 3, Within: time.Hour, Statuses: []int{403}, Pause: time.Hour}
				},
			})
			client := r.client(false)
			for n, want := range []struct {
				path   string
				status int
				reason policy.Reason
			}{
				{"/1", 403, policy.ReasonNoRule}, {"/2", 403, policy.ReasonNoRule}, {"/3", 403, policy.ReasonNoRule},
				{"/4", 429, policy.ReasonCoolDown}, {"/private", 403, policy.ReasonRule}, {"/robots.txt", 200, policy.ReasonRobotsTxt},
			} {
				resp, body, err := get(client, origin.URL+want.path)
				testkit.Must(t, err)
				rec := r.records.last(t, n+1)
				if resp.StatusCode != want.status || rec.Decision.Reason != want.reason {
					t.Errorf("%s: %s, reason %s, want %d, %s\n%s", want.path, resp.Status, rec.Decision.Reason, want.status, want.reason, body)
				}
				after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
				if held := want.reason == policy.ReasonCoolDown; held && (after < 3500 || !strings.Contains(body, "in a row (status 403)")) {
					t.Errorf("%s: Retry-After %d\n%s", want.path, after, body)
				}
			}
			if got := strings.Join(origin.paths(), " "); got != "/robots.txt /1 /2 /3" {
				t.Errorf("the origin saw %s", got)
			}
		})
	}
}

// TestCoolDownOfFetches: a host that refuses its robots.txt in a row is stopped for all clients.
func TestCoolDownOfFetches(t *testing.T) {
	t.Parallel()
	var fetches atomic.Int32
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetches.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(origin.Close)
	r := start(t, setup{policyOptions: func(o *policy.Options) {
		o.CoolDown = policy.CoolDown{After: 1, Within: time.Hour, Statuses: []int{503}, Pause: time.Hour}
	}})
	var reasons []policy.Reason
	for n, path := range []string{"/1", "/2", "/robots.txt"} {
		_, _, err := get(r.client(false), origin.URL+path)
		testkit.Must(t, err)
		reasons = append(reasons, r.records.last(t, n+1).Decision.Reason)
	}
	want := []policy.Reason{policy.ReasonUnreachable, policy.ReasonUnreachable, policy.ReasonCoolDown}
	if n := fetches.Load(); n != 1 || !slices.Equal(reasons, want) {
		t.Errorf("%d fetches, reasons %s", n, reasons)
	}
}

// TestFetchWaitsForTheHours: a request whose robots.txt is not known waits for the hours of its host, as one whose file is known.
func TestFetchWaitsForTheHours(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(http.ResponseWriter, *http.Request) {})
	from := time.Now().UTC().Add(3 * time.Minute)
	soon, err := hours.Parse(from.Format("15:04") + "-" + from.Add(time.Hour).Format("15:04"))
	testkit.Must(t, err)
	r := start(t, setup{
		limits:        pace.Limits{PerSecond: 1e6, Burst: 1, MaxConcurrent: 1, MaxWait: time.Hour, MaxQueue: 10},
		policyOptions: func(o *policy.Options) { o.Hosts = []policy.Host{{Match: "*", Hours: []*hours.Schedule{soon}}} },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin.URL+"/page", nil)
	testkit.Must(t, err)
	if resp, err := r.client(false).Do(req); err == nil {
		t.Errorf("answered with %s", resp.Status)
	}
	if rec := r.records.last(t, 1); rec.Decision.Reason != policy.ReasonClient || len(origin.paths()) != 0 {
		t.Errorf("reason %s, the origin saw %q", rec.Decision.Reason, origin.paths())
	}
}

// redirecting starts an origin at an address of its own whose robots.txt redirects to a URL, and returns its URL.
func redirecting(t *testing.T, address, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	testkit.Must(t, err)
	s := &http.Server{Handler: http.RedirectHandler(to, http.StatusFound)}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}

// TestRedirectedFetches: a robots.txt that redirects to another host does not stop that host, and does not get past the hours of its paths.
func TestRedirectedFetches(t *testing.T) {
	t.Parallel()
	site := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/admin/") {
			w.WriteHeader(http.StatusForbidden)
		}
	})
	r := start(t, setup{policyOptions: func(o *policy.Options) {
		o.CoolDown = policy.CoolDown{After: 2, Within: time.Hour, Statuses: []int{403}, Pause: time.Hour}
		o.Hosts = []policy.Host{{Match: "127.0.0.1", Paths: []string{"/data/"}, Hours: closedToday(t)}}
	}})
	for n, path := range []string{"/admin/1", "/admin/2", "/admin/3", "/data/1"} {
		_, _, err := get(r.client(false), redirecting(t, "127.0.1."+strconv.Itoa(n+1), site.URL+path)+"/page")
		testkit.Must(t, err)
	}
	resp, body, err := get(r.client(false), site.URL+"/page")
	testkit.Must(t, err)
	if got := strings.Join(site.paths(), " "); resp.StatusCode != http.StatusOK || got != "/admin/1 /admin/2 /admin/3 /robots.txt /page" {
		t.Errorf("%s, the site saw %s\n%s", resp.Status, got, body)
	}
}
