package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/robots"
)

// TestHostNamesAShortenedDelay: the page of a host says that requests go there more often than the host asks for.
func TestHostNamesAShortenedDelay(t *testing.T) {
	w := newTestProxy(t, map[string]string{"hasty.example": "User-agent: *\nCrawl-delay: 30\n", "calm.example": "User-agent: *\nCrawl-delay: 5\n"})
	for host, want := range map[string]bool{"hasty.example": true, "calm.example": false} {
		q := policy.Request{Client: "a", Method: http.MethodGet, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}, PathQuery: "/"}, UserAgent: "Bot"}
		d := w.engine.Decide(t.Context(), q)
		slot, err := w.pacer.Wait(t.Context(), q.Client, d.Pace)
		check(t, err)
		slot.Release()
		w.record(t, &audit.Record{Time: time.Now(), ID: audit.NewID(), Request: q, Decision: d, Slot: true, Status: http.StatusOK})
		// The robots.txt itself has no Crawl-delay of its own.
		q.PathQuery = "/robots.txt"
		w.record(t, &audit.Record{Time: time.Now(), ID: audit.NewID(), Request: q, Decision: policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonRobotsTxt}, Slot: true, Status: http.StatusOK})
		figures := textOf(findOne(t, w.get(t, "/hosts/"+host, http.StatusOK), "id", "host-figures"))
		if got := strings.Contains(figures, "the host asks for 30 s between requests; sent every 10 s (robots.max_crawl_delay)"); got != want {
			t.Errorf("%s: %q", host, figures)
		}
	}
}
