package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/cmd/internal/redis"
)

// StoreStats are the Stats of the store that replicas share, as one replica knows them.
type StoreStats struct {
	redis.Stats
	Robots redis.RobotsStats

	// Configured maximum of replicas.
	Expected int
}

// A storeCollector is a statsCollector with a histogram.
type storeCollector struct {
	statsCollector[StoreStats]
	trips *prometheus.Desc
}

// newStoreCollector exports how this replica shares the store with others.
func newStoreCollector(stats func() StoreStats) prometheus.Collector {
	c := &storeCollector{
		statsCollector: statsCollector[StoreStats]{stats: stats},
		trips:          prometheus.NewDesc("robotsproxy_store_round_trip_seconds", "Duration of calls that reserve a slot in the store, including the network.", nil, nil),
	}
	c.gauge("store_up", "1 if this replica shares the pace with the others; 0 while it paces alone, because the store is unavailable or was until a moment ago.",
		func(s StoreStats) float64 { return boolValue(!s.StoreAway) })
	c.gauge("store_members", "Replicas that share the store, including this one; while the store is unavailable, those last seen.",
		func(s StoreStats) float64 { return float64(s.Replicas) })
	c.gauge("store_expected_members", "Maximum number of replicas (store.replicas).",
		func(s StoreStats) float64 { return float64(s.Expected) })
	c.gauge("store_left_shares", "Shares of the rate that replicas passed on when they shut down.",
		func(s StoreStats) float64 { return float64(s.Left) })
	c.gauge("store_places", "Concurrency slots of hosts that this replica holds in the store (max_concurrent).",
		func(s StoreStats) float64 { return float64(s.Held) })
	c.gauge("pace_times_slower", "Factor by which this replica paces slower than permitted: store.replicas while the store is unavailable, 1 if all replicas are present.",
		func(s StoreStats) float64 { return max(s.Times, 1) })
	counters(&c.statsCollector, "store_reservations_total", "Slots requested from the store by result: given, refused because they would be too late, or refused because no concurrency slot was free.", "outcome",
		func(s StoreStats) map[string]uint64 {
			return map[string]uint64{"given": s.Reserved, "late": s.Late, "full": s.Full}
		})
	counters(&c.statsCollector, "store_errors_total", "Failed calls of the store, by cause.", "cause",
		func(s StoreStats) map[string]uint64 { return s.Failures })
	c.counter("store_outages_total", "Outages of the store for this replica.",
		func(s StoreStats) uint64 { return s.Outages })
	c.counter("store_dropped_reports_total", "Lost reports to the other replicas about returned concurrency slots, unused slots and back-offs.",
		func(s StoreStats) uint64 { return s.Dropped })
	counters(&c.statsCollector, "store_robots_total", "Operations on robots.txt and tdmrep.json files in the store: files loaded and saved, fetches claimed, waits for the fetch of another replica, purges sent and received.", "operation",
		func(s StoreStats) map[string]uint64 {
			r := s.Robots
			return map[string]uint64{"load": r.Loads, "save": r.Saves, "claim": r.Claims, "wait": r.Waits, "purge": r.Purges, "heard": r.Heard}
		})
	c.counter("store_robots_lost_total", "robots.txt and tdmrep.json files and purges that never reached the store.",
		func(s StoreStats) uint64 { return s.Robots.Lost })
	c.counter("store_robots_errors_total", "Failed calls of the store about robots.txt and tdmrep.json files.",
		func(s StoreStats) uint64 { return s.Robots.Failures })
	return c
}

// Describe implements [prometheus.Collector].
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	c.statsCollector.Describe(to)
	to <- c.trips
}

// Collect implements [prometheus.Collector].
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	c.collect(s, to)
	var all uint64
	buckets := make(map[float64]uint64, len(s.RoundTrips))
	for _, t := range s.RoundTrips {
		if t.Within == 0 {
			all = t.Count
		} else {
			buckets[t.Within.Seconds()] = t.Count
		}
	}
	to <- prometheus.MustNewConstHistogram(c.trips, all, s.RoundTripTime.Seconds(), buckets)
}
