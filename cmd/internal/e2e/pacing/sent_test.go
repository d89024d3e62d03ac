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
