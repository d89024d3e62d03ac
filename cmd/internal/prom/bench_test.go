package prom

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// fill sends requests for many hosts through the proxy, with names and agents that could break the
// text format.
func (p testProxy) fill(t testing.TB, hosts int) {
	t.Helper()
	for i := range hosts {
		name := fmt.Sprintf("h%d.test", i)
		slot, err := p.pacer.Wait(t.Context(), name, pace.Limits{Key: name, PerSecond: 1e6, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 1})
		testkit.Must(t, err)
		slot.Sent()
		slot.Release()
		o, err := robots.ParseOrigin("http", name)
		testkit.Must(t, err)
		agent := fmt.Sprintf("Bot%d\"}\n# HELP x\x00\xff", i)
		if i < 1000 { // some are enough: each is a fetch
			_, err = p.cache.Lookup(t.Context(), cache.Query{Origin: o, Token: agent}, robots.Standard())
			testkit.Must(t, err)
		}
		p.metrics.Write(&audit.Record{
			Target: "http://" + name + "/\"}\n", Remote: fmt.Sprintf("127.0.0.1:%d", i), Slot: true,
			Request:  policy.Request{Target: robots.Target{Origin: o, PathQuery: fmt.Sprintf("/%d?\"}", i)}, Client: agent, UserAgent: agent, Method: agent},
			Decision: policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonNoFile},
		})
	}
}

func (p testProxy) scrapeText(t testing.TB) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// However many hosts, clients and agents there are: no series more.
func TestHostsAddNoSeries(t *testing.T) {
	h := newTestProxy(t)
	before := h.scrapeText(t)
	h.fill(t, 1000)
	after := h.scrapeText(t)
	if n, was := strings.Count(after, "\n"), strings.Count(before, "\n"); n != was {
		t.Errorf("%d lines, before %d", n, was)
	}
	for _, theirs := range []string{".test", "Bot7", "127.0.0.1"} {
		if strings.Contains(after, theirs) {
			t.Errorf("%q is in the answer", theirs)
		}
	}
	if !strings.Contains(after, "robotsproxy_robots_cache_entries 1000\n") || !strings.Contains(after, "robotsproxy_pace_hosts 1000\n") {
		t.Error("the hosts are not known")
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, hosts := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			h := newTestProxy(b)
			h.fill(b, hosts)
			handler, r := h.metrics.Handler(), httptest.NewRequest("GET", "/metrics", nil)
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				w.Body = nil
				handler.ServeHTTP(w, r)
			}
		})
	}
}
