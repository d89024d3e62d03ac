package prom

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
)

// maxClients is the maximum number of clients with counters of their own. Reloads may name new ones each time.
const maxClients = 1000

// perClient counts the requests of each entry of clients.
type perClient struct {
	requests, bytes, waits *prometheus.CounterVec

	// names returns the names of the entries.
	names func() []string

	// mu is held while known gets a new key.
	mu sync.Mutex

	// known has the counters of clients, *clientCounts, by name, at most maxClients.
	known sync.Map
	n     int
}

// clientCounts are the counters of one client.
type clientCounts struct {
	outcomes     map[policy.Outcome]prometheus.Counter
	bytes, waits prometheus.Counter
}

func newPerClient(names func() []string) *perClient {
	client := []string{"client"}
	p := &perClient{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_client_requests_total",
			Help: "Requests of each entry of clients by what became of them: allowed, disallowed, deferred or failed. In monitor mode, " +
				"what would have.",
		}, []string{"client", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_client_bytes_total",
			Help: "Bytes of the bodies of responses to each entry of clients, and of both directions of its tunnels.",
		}, client),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_client_wait_seconds_total",
			Help: "Time that requests of each entry of clients waited for a slot, whether or not they got one.",
		}, client),
		names: names,
	}
	for _, name := range names() {
		p.of(name)
	}
	return p
}

// count counts the request of a record, if its client has an entry.
func (p *perClient) count(r *audit.Record) {
	c := p.of(r.Request.Client)
	if c == nil {
		return
	}
	c.outcomes[r.Outcome()].Inc()
	if n := r.Bytes; n > 0 {
		c.bytes.Add(float64(n))
	}
	c.waits.Add(max(0, r.Waited.Seconds()))
}

// of returns the counters of a client; nil: it has none.
func (p *perClient) of(name string) *clientCounts {
	if known, ok := p.known.Load(name); ok {
		return known.(*clientCounts)
	}
	// Names of entries are few; those of strangers are many, and cost no look-up.
	if name == "" || policy.IsStranger(name) || !slices.Contains(p.names(), name) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known.Load(name); ok {
		return known.(*clientCounts)
	}
	if p.n >= maxClients {
		return nil
	}
	c := &clientCounts{
		outcomes: map[policy.Outcome]prometheus.Counter{}, bytes: p.bytes.WithLabelValues(name), waits: p.waits.WithLabelValues(name),
	}
	for _, o := range []policy.Outcome{policy.Allowed, policy.Disallowed, policy.Deferred, policy.Failed} {
		c.outcomes[o] = p.requests.WithLabelValues(name, o.String())
	}
	p.known.Store(name, c)
	p.n++
	return c
}
