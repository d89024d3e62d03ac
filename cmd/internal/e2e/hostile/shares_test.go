package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestManyLoopbackAddresses: a program with many source addresses in 127.0.0.0/8 is one client. It does not delay an
// honest client with an entry in clients, and does not fill the audit.
func TestManyLoopbackAddresses(t *testing.T) {
	t.Parallel()
	const addresses, waiting, honestPages = 40, 4, 5
	o := e2e.NewOrigin(t, "shared", privateRules)
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	settings := e2e.Unpaced.With(e2e.Named(honestAddress)).With(e2e.Settings{"pace.requests_per_second": 20, "pace.burst": 1, "pace.max_queue": 1000})
	p := e2e.StartProxy(t, settings)
	attackers := make([]*http.Client, addresses)
	for i := range attackers {
		attackers[i] = e2e.From(t, p.Client(t, false), fmt.Sprintf("127.%d.1.1", i+1))
	}
	honest := p.Client(t, false)
	if got := e2e.Get(t, honest, o.URL("http", "/page?first")); got.Status != http.StatusOK {
		t.Fatal(got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	queued := inParallel(addresses*waiting, addresses*waiting, func(i int) {
		request(ctx, attackers[i%addresses], http.MethodGet, o.URL("http", fmt.Sprint("/page?hostile", i)), nil)
	})
	testkit.Eventually(t, "the attacker's requests wait", func() bool { return p.Metrics(t)["robotsproxy_pace_waiting_requests"] > addresses })
	for i := range honestPages {
		if got := e2e.Get(t, honest, o.URL("http", fmt.Sprint("/page?honest", i))); got.Status != http.StatusOK {
			t.Errorf("an honest request: %v", got)
		}
	}
	cancel()
	queued()
	first, between := -1, 0
	for i, h := range o.Pages("http") {
		if strings.Contains(h.Path, "?honest") {
			if first < 0 {
				first = i
			}
			between = i - first
		}
	}
	if between > addresses { // with a turn for each address, each request would wait for so many
		t.Errorf("%d honest requests lasted as long as %d of all, want at most %d", honestPages, between, addresses)
	}
}
