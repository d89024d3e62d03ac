package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
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

// TestHostShowsItsBudgets: the page and the API have what was used of each budget, and when the next request fits.
func TestHostShowsItsBudgets(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	var err error
	some := policy.Budget{Quota: policy.Quota{Requests: 2}, Per: time.Hour}
	many := policy.Budget{Quota: policy.Quota{Requests: 5000, Bytes: 2 << 30}, Per: 24 * time.Hour}
	w.engine, err = w.engine.Renew(policy.Options{
		Cache: w.cache,
		Pace:  pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500},
		Hosts: []policy.Host{
			{Match: "news.example.net", Paths: []string{"/data/", "/<api>$"}, Budget: some},
			{Match: "*", Budget: many},
		},
	})
	check(t, err)
	w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://news.example.net/archive/", status: 200})
	news := robots.Origin{Scheme: "https", Host: "news.example.net", Port: 443}
	for _, path := range []string{"/data/1", "/data/2", "/", "/archive/"} {
		ticket, err := w.engine.Take(t.Context(), &policy.Request{Client: "lab-a", Target: robots.Target{Origin: news, PathQuery: path}})
		check(t, err)
		ticket.AddBytes(1 << 29)
	}
	page := w.get(t, "/hosts/news.example.net", http.StatusOK)
	checkText(t, findOne(t, page, "id", "budgets"), "news.example.net/data/ news.example.net/<api>$1 h2 of 20 requestsin 1 h",
		"*1 d2 of 5,000, 1.0 GiB of 2.0 GiB4,998 requests, 1.0 GiBnow")
	checkText(t, w.get(t, "/exceptions", http.StatusOK), "at most 2 requests in 1 h", "at most 5,000 requests and 2.0 GiB in 1 d")
	resp := w.do(t, http.MethodGet, "/api/v1/hosts/news.example.net", nil)
	defer resp.Body.Close()
	var host struct{ Budgets []budgetState }
	check(t, json.NewDecoder(resp.Body).Decode(&host))
	if len(host.Budgets) != 2 {
		t.Fatalf("%+v", host)
	}
	next := host.Budgets[0].Next
	if left := time.Until(next); left < 59*time.Minute || left > 66*time.Minute {
		t.Errorf("the next request fits in %v", left)
	}
	if want := []budgetState{
		{Entry: "news.example.net/data/ news.example.net/<api>$", Requests: 2, RequestsUsed: 2, BytesUsed: 1 << 30, PerS: 3600, Next: next},
		{Entry: "*", Requests: 5000, RequestsUsed: 2, Bytes: 2 << 30, BytesUsed: 1 << 30, PerS: 86400},
	}; !slices.Equal(host.Budgets, want) {
		t.Errorf("%+v", host.Budgets)
	}
}
