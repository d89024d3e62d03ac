package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/cmd/internal/redis"
)

// StoreStats are the Stats of the store that replicas share, as one replica knows them.
type StoreStats struct {
	redis.Stats
	Robots   redis.RobotsStats
	Expected int // configured maximum of replicas
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
		trips:          prometheus.NewDesc("robotsproxy_store_round_trip_seconds", "How long the store took to give or refuse a turn, the way there and back included.", nil, nil),
	}
	c.gauge("store_up", "1 where the replicas share one pace; 0 while this one paces alone, since the store is away or was until a moment ago.",
		func(s StoreStats) float64 { return boolValue(!s.Alone) })
	c.gauge("store_members", "Replicas that share the store, this one among them; while it is away, those that were last seen.",
		func(s StoreStats) float64 { return float64(s.Replicas) })
	c.gauge("store_expected_members", "Replicas that there may be at most, as the configuration has it (store.replicas).",
		func(s StoreStats) float64 { return float64(s.Expected) })
	c.gauge("store_left_shares", "Shares of the pace that replicas have left to the next ones when they ended.",
		func(s StoreStats) float64 { return float64(s.Left) })
	c.gauge("store_places", "Places of hosts that this replica holds in the store (max_concurrent).",
		func(s StoreStats) float64 { return float64(s.Held) })
	c.gauge("pace_times_slower", "How many times slower than permitted this replica paces: as many as there may be replicas while the store is away, 1 where all of them are there.",
		func(s StoreStats) float64 { return max(s.Times, 1) })
	counters(&c.statsCollector, "store_reservations_total", "Turns that were asked for: given, or not since they would be too late, or for want of a place.", "outcome",
		func(s StoreStats) map[string]uint64 {
			return map[string]uint64{"given": s.Reserved, "late": s.Late, "full": s.Full}
		})
	counters(&c.statsCollector, "store_errors_total", "Calls of the store that failed, by cause.", "cause",
		func(s StoreStats) map[string]uint64 { return s.Failures })
	c.counter("store_outages_total", "Times that this replica was left alone.",
		func(s StoreStats) uint64 { return s.Outages })
	c.counter("store_dropped_reports_total", "Reports to the other replicas, of places given back, turns not used and pauses, that were lost.",
		func(s StoreStats) uint64 { return s.Dropped })
	counters(&c.statsCollector, "store_robots_total", "What was done with robots.txt files in the store: files loaded and saved, fetches claimed, waits for another's, purges told and heard of.", "operation",
		func(s StoreStats) map[string]uint64 {
			r := s.Robots
			return map[string]uint64{"load": r.Loads, "save": r.Saves, "claim": r.Claims, "wait": r.Waits, "purge": r.Purges, "heard": r.Heard}
		})
	c.counter("store_robots_lost_total", "Robots.txt files saved and purges that the store never had.",
		func(s StoreStats) uint64 { return s.Robots.Lost })
	c.counter("store_robots_errors_total", "Calls of the store about robots.txt files that failed.",
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
