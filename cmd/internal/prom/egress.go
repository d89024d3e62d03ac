package prom

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/proxy/egress"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// newEgressCollector exports connections to origins and upstream proxies.
func newEgressCollector(stats func() egress.Stats) prometheus.Collector {
	return statsCollector[egress.Stats]{stats, func(s egress.Stats) []metric {
		dials := newMetric(prometheus.CounterValue, "egress_dials_total", "Attempts to connect, with the TLS handshake, by outcome. "+
			"Failures answered from memory do not count.", []string{"to", "outcome"})
		for to, p := range map[string]egress.Peers{"origin": s.Origins, "parent": s.Parent} {
			for outcome, n := range p.Dialed {
				dials.samples = append(dials.samples, sample{[]string{to, string(outcome)}, float64(n)})
			}
		}
		return []metric{dials, newMetric(prometheus.GaugeValue, "egress_connections", "Open HTTP connections, including idle ones: to "+
			"origins, directly or through tunnels of the upstream proxy, and to the upstream proxy itself (parent).", []string{"to"},
			sample{[]string{"origin"}, float64(s.Origins.Open)}, sample{[]string{"parent"}, float64(s.Parent.Open)})}
	}}
}

// newCacheCollector exports the state of the cache of a file, in metrics that begin with name.
func newCacheCollector(name, file string, stats func() cache.Stats) prometheus.Collector {
	return statsCollector[cache.Stats]{stats, func(s cache.Stats) []metric {
		return []metric{
			counters(name+"_fetches_total", "Fetches of "+file+" by outcome: rules, no-file, unreachable (no usable response), "+
				"no-connection, ours (the proxy itself failed, or a GET got no slot, for example during a back-off).",
				"outcome", s.Fetches),
			gauge(name+"_inflight_fetches", "Origins whose "+file+" is being fetched or loaded from the store.", s.Fetching),
			counter(name+"_cache_hits_total", "Lookups of a "+file+" that were answered from memory.", s.Hits),
			counter(name+"_cache_misses_total", "Lookups of a "+file+" that waited for a fetch or for the store.", s.Misses),
			gauge(name+"_cache_entries", "Entries of the "+file+" cache, including those of missing and failing files: one for each "+
				"origin, and for each product token with fetch_as: client.", s.Entries),
			gauge(name+"_cache_bytes", "Estimated memory in bytes of the "+file+" cache.", s.Bytes),
		}
	}}
}

// A Stopwatch measures how long fetches of robots.txt take. Make one with NewStopwatch; any number
// of goroutines may share it.
type Stopwatch struct{ took prometheus.Histogram }

// NewStopwatch makes a Stopwatch.
func NewStopwatch() *Stopwatch {
	return &Stopwatch{prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "robotsproxy_robots_fetch_duration_seconds",
		Help:    "Duration of robots.txt fetches with every outcome, including connecting, redirects and waits for slots.",
		Buckets: []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60},
	})}
}

// Time returns a Fetcher that does what f does and is measured.
func (s *Stopwatch) Time(f cache.Fetcher) cache.Fetcher {
	return timedFetcher{f, s.took}
}

type timedFetcher struct {
	fetcher cache.Fetcher
	took    prometheus.Observer
}

// Fetch implements [cache.Fetcher].
func (t timedFetcher) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	began := time.Now()
	defer func() { t.took.Observe(time.Since(began).Seconds()) }()
	return t.fetcher.Fetch(ctx, r)
}
