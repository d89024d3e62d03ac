package operations

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// admin.metrics_listen serves metrics and health without the token, whether or not the admin
// listener is on.
func TestMetricsListen(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "metrics-listen", "User-agent: *\nDisallow: /\n")
	for _, admin := range []string{"on", "off"} {
		t.Run("admin listener "+admin, func(t *testing.T) {
			t.Parallel()
			at := fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(t))
			h := e2e.NewSetup(t, e2e.Settings{"admin.metrics_listen": at, "admin.token": adminToken})
			if admin == "off" {
				h = e2e.NewSetup(t, e2e.Settings{"admin.metrics_listen": at, "admin.listen": ""})
				h.Admin = at // the harness asks it for readiness
			}
			p := e2e.StartSetup(t, h)
			e2e.WantOwn(t, e2e.Get(t, p.Client(t, false), o.URL("http", "/a")), http.StatusForbidden, "http_request_denied")
			operator := &http.Client{Timeout: testkit.Patience}
			if got := e2e.Get(t, operator, "http://"+at+"/metrics"); got.Status != 200 || !strings.Contains(string(got.Body), `robotsproxy_decisions_total{decision="block",reason="rule"} 1`) {
				t.Errorf("%d\n%s", got.Status, got.Body)
			}
			for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/api/v1/status": 404, "/config": 404} {
				if got := e2e.Get(t, operator, "http://"+at+path); got.Status != status {
					t.Errorf("%s: %d, want %d", path, got.Status, status)
				}
			}
			e2e.Command(t, "health", "-c", p.Config).Want(t, 0)
		})
	}
}

// Metrics about requests and about a site that answers 429.
func TestMetrics(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "metrics", "User-agent: *\nDisallow: /private\nAllow: /a\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	o.Handle("/b", e2e.TextPage("text/plain", "b"))
	o.Handle("/enough", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "enough\n")
	})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_wait": "1s"}))
	client := p.Client(t, false)
	for _, path := range []string{"/a", "/private/x", "/a?2", "/b", "/private/y", "/robots.txt"} {
		e2e.Get(t, client, o.URL("http", path))
	}
	wantMetrics(t, p, map[string]float64{
		"robotsproxy_decisions_total allow rule":       2,
		"robotsproxy_decisions_total allow no-rule":    1,
		"robotsproxy_decisions_total allow robots-txt": 1,
		"robotsproxy_decisions_total block rule":       2,
		"robotsproxy_wait_seconds":                     3,
		"robotsproxy_pace_hosts":                       1,
	})

	if got := e2e.Get(t, client, o.URL("http", "/enough")); got.Status != http.StatusTooManyRequests || string(got.Body) != "enough\n" {
		t.Errorf("the origin's own 429: %v", got)
	}
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/a")), http.StatusTooManyRequests, "connection_limit_reached")
	wantMetrics(t, p, map[string]float64{
		"robotsproxy_decisions_total allow rule":       2,
		"robotsproxy_decisions_total allow no-rule":    2,
		"robotsproxy_decisions_total allow robots-txt": 1,
		"robotsproxy_decisions_total block rule":       2,
		"robotsproxy_decisions_total block pace":       1,
		"robotsproxy_wait_seconds":                     4,
		"robotsproxy_pace_hosts":                       1,
		"robotsproxy_pace_paused_hosts":                1,
		"robotsproxy_pace_back_offs_total":             1,
	})
	if n := len(o.Pages("http")); n != 4 {
		t.Errorf("%d pages arrived, want 4", n)
	}
}

// wantMetrics compares all metrics about requests and pace with the expected values. A
// metric that is not named must be 0. An allowed request is counted when it has ended,
// which its client may see earlier.
func wantMetrics(t testing.TB, p *e2e.Proxy, want map[string]float64) {
	t.Helper()
	var diff string
	defer func() {
		if diff != "" {
			t.Logf("metrics (-want +got):\n%s", diff)
		}
	}()
	testkit.Eventually(t, "the metrics say what has happened", func() bool {
		got := p.Metrics(t)
		maps.DeleteFunc(got, func(name string, n float64) bool {
			of := func(prefix string) bool { return strings.HasPrefix(name, "robotsproxy_"+prefix) }
			return n == 0 || !of("decisions_total") && !of("wait_seconds") && !of("pace_")
		})
		diff = cmp.Diff(want, got)
		return diff == ""
	})
}
