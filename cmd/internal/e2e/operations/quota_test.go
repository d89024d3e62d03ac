package operations

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// labQuota are the settings of a client with a quota.
func labQuota(quota e2e.Entry) e2e.Settings {
	return e2e.Unpaced.With(e2e.Settings{"clients": []e2e.Entry{{"name": "lab-a", "networks": []string{"127.0.0.0/8"}, "quota": quota}}})
}

// TestQuotaIsKept: what a client has used of its quota counts on after the proxy was stopped. After a crash, at most the requests
// of the last second are forgotten.
func TestQuotaIsKept(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	o := e2e.NewOrigin(t, "quota", "")
	o.Handle("/page", e2e.TextPage("text/plain", "0123456789"))
	const quota, asked = 9, 4
	for name, setting := range map[string]e2e.Entry{"requests": {"requests_per_day": quota}, "bytes": {"bytes_per_day": "90B"}} {
		for _, killed := range []bool{false, true} {
			p, before := e2e.StartProxy(t, labQuota(setting)), len(o.Pages("http"))
			pages := 0
			// A response counts when its record is written: the next request waits for it.
			ask := func(n int) {
				for range n {
					pages++
					url := o.URL("http", "/page?"+strconv.Itoa(pages))
					e2e.Get(t, p.Client(t, false), url)
					e2e.AwaitRecord(t, p.Audit, url)
				}
			}
			used := "robotsproxy_client_quota_used_ratio lab-a " + name
			ask(asked)
			p.AwaitMetric(t, used, float64(asked)/quota)
			if p = p.EndAgain(t); p.Metrics(t)[used] != float64(asked)/quota {
				t.Errorf("%s: after a start, %v are used", name, p.Metrics(t)[used])
			}
			most := quota
			if ask(asked); killed {
				p, most = p.KillAgain(t), quota+asked
			}
			ask(quota)
			if n := len(o.Pages("http")) - before; n < quota || n > most {
				t.Errorf("%s: %d pages arrived, the quota is %d", name, n, quota)
			}
			p.AwaitMetric(t, used, 1)
			if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page")); got.Status != http.StatusTooManyRequests {
				t.Errorf("%s: %v", name, got)
			}
			p.End(t)
		}
	}
}

// TestQuotaOfAFleet: three replicas together send no more than the quota.
func TestQuotaOfAFleet(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	o := e2e.NewOrigin(t, "fleet-quota", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	f := startFleet(t, storeURL(t), 3, labQuota(e2e.Entry{"requests_per_day": 20}))
	f.awaitStore(t, 1)
	for range 3 {
		for _, p := range f.replicas {
			for _, scheme := range slices.Repeat(e2e.Schemes, 3) {
				e2e.Get(t, p.Client(t, false), o.URL(scheme, "/page"))
			}
		}
	}
	for _, scheme := range e2e.Schemes {
		if n := len(o.Pages(scheme)); n != 10 {
			t.Errorf("%s: %d pages arrived, the quota is 20 for both schemes", scheme, n)
		}
	}
}
