package pacing

import (
	"fmt"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestRecordsSayWhenRequestsWereSent: a record has the time when its request went out, which is after its wait, and the
// interval that was in force.
func TestRecordsSayWhenRequestsWereSent(t *testing.T) {
	t.Parallel()
	const interval, requests = 200 * time.Millisecond, 5
	o := e2e.NewOrigin(t, "sent", "User-agent: *\nDisallow: /no\n")
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": float64(time.Second / interval)})
	c := p.Client(t, false)
	for i := range requests {
		e2e.Get(t, c, o.URL("http", fmt.Sprint("/page", i)))
	}
	e2e.Get(t, c, o.URL("http", "/no"))
	var records []e2e.Record
	testkit.Eventually(t, "all requests are recorded", func() bool {
		records = e2e.ReadAudit(t, p.Audit)
		return len(records) == requests+1
	})
	if n := len(o.Pages("http")); n != requests {
		t.Errorf("%d requests arrived", n)
	}
	var last time.Time
	for _, r := range records {
		if r.Decision == "block" {
			if !r.Sent.IsZero() || r.PaceMS != 0 {
				t.Errorf("not sent: %+v", r)
			}
			continue
		}
		if r.Burst != 0 {
			t.Errorf("%s: a burst of %d", r.URL, r.Burst)
		}
		waited := r.Time.Add(time.Duration(r.WaitMS * float64(time.Millisecond)))
		if r.Sent.Before(waited) || r.PaceMS != float64(interval.Milliseconds()) {
			t.Errorf("%s: sent at %v, with an interval of %v ms; it had waited until %v", r.URL, r.Sent, r.PaceMS, waited)
		}
		if gap := r.Sent.Sub(last); gap < interval*9/10 {
			t.Errorf("%s was sent %v after the one before", r.URL, gap)
		}
		last = r.Sent
	}
}

// TestRecordsSayWhatPaceWasInForce: a burst is recorded, and requests that are not paced have the time at which they were sent.
func TestRecordsSayWhatPaceWasInForce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings e2e.Settings
		pace     float64
		burst    int
	}{
		"burst":       {e2e.Settings{"pace.requests_per_second": 100, "pace.burst": 7}, 10, 7},
		"crawl-delay": {e2e.Settings{"pace.requests_per_second": 100, "pace.burst": 7}, 500, 0},
		"monitor":     {e2e.Settings{"mode": "monitor", "pace.burst": 7}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			robots := "User-agent: *\nDisallow: /no\n"
			if name == "crawl-delay" {
				robots += "Crawl-delay: 0.5\n"
			}
			o := e2e.NewOrigin(t, "pace-"+name, robots)
			p := e2e.StartProxy(t, c.settings)
			began := time.Now()
			e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
			var records []e2e.Record
			testkit.Eventually(t, "the request is recorded", func() bool {
				records = e2e.ReadAudit(t, p.Audit)
				return len(records) == 1
			})
			if r := records[0]; r.PaceMS != c.pace || r.Burst != c.burst || r.Sent.Before(began) || r.Sent.After(time.Now()) {
				t.Errorf("%+v", r)
			}
		})
	}
}
