package prom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
)

// TestPerClient: the requests of entries of clients are counted, those of strangers are not.
func TestPerClient(t *testing.T) {
	h := newTestProxy(t)
	write := func(client string, verdict policy.Verdict, reason policy.Reason) {
		h.metrics.Write(&audit.Record{
			Request:  policy.Request{Client: client},
			Decision: policy.Decision{Verdict: verdict, Reason: reason}, Bytes: 10, Waited: 250 * time.Millisecond,
		})
	}
	write("lab-a", policy.Allow, policy.ReasonNoFile)
	write("lab-a", policy.Refuse, policy.ReasonRule)
	write("lab-b", policy.Allow, policy.ReasonNoFile)
	write("127.0.0.1", policy.Allow, policy.ReasonNoFile)
	write("", policy.Allow, policy.ReasonNoFile)
	text := h.scrapeText(t)
	for _, want := range []string{
		`robotsproxy_client_requests_total{client="lab-a",outcome="allowed"} 1`, `robotsproxy_client_requests_total{client="lab-a",outcome="disallowed"} 1`,
		`robotsproxy_client_requests_total{client="lab-a",outcome="deferred"} 0`, `robotsproxy_client_bytes_total{client="lab-a"} 20`,
		`robotsproxy_client_wait_seconds_total{client="lab-a"} 0.5`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
	if n := strings.Count(text, "robotsproxy_client_bytes_total{"); n != 1 {
		t.Errorf("%d clients are counted, want one", n)
	}
}

// TestClientsAreBounded: reloads that name new clients do not add series without end.
func TestClientsAreBounded(t *testing.T) {
	var names []string
	for i := range 2 * maxClients {
		names = append(names, fmt.Sprint("client-", i))
	}
	p, counted := newPerClient(func() []string { return names }), 0
	for range 2 {
		for _, name := range names {
			if p.of(name) != nil {
				counted++
			}
		}
	}
	if counted != 2*maxClients {
		t.Errorf("%d clients have counters, want %d", counted/2, maxClients)
	}
}
