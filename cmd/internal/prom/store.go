package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/cmd/internal/redis"
)

// StoreStats are the Stats of the store that replicas share, as one replica knows them.
type StoreStats struct {
	redis.Stats
	Robots redis.RobotsStats
}

// A storeCollector is a statsCollector with a histogram.
type storeCollector struct {
	statsCollector[StoreStats]
	trips *prometheus.Desc
}

// newStoreCollector exports how this replica shares the store with others.
func newStoreCollector(stats func() StoreStats) prometheus.Collector {
	return storeCollector{
		statsCollector[StoreStats]{stats, storeMetrics},
		prometheus.NewDesc("robotsproxy_store_round_trip_seconds",
			"Duration of calls that reserve a slot in the store, including the network.", nil, nil),
	}
}

func storeMetrics(s StoreStats) []metric {
	r := s.Robots
	configs, versions := s.Variants()
	return []metric{
		gauge("store_up", "1 if this replica shares the pace with the others; 0 while it paces alone, because the store is "+
			"unavailable or was until a moment ago.", boolValue(!s.StoreAway)),
		gauge("store_members", "Replicas that share the store, including this one; while the store is unavailable, those last seen.",
			s.Replicas),
		gauge("store_expected_members", "Maximum number of replicas (store.replicas).", s.Expected),
		gauge("store_configurations", "Different configurations among the replicas that share the store: more than 1 is drift.", configs),
		gauge("store_versions", "Different versions of the program among the replicas that share the store.", versions),
		gauge("store_clock_guard_seconds", "Time by which the clocks of the replicas may differ: by so much longer is a replica's "+
			"turn while the store is unavailable.", s.Guard.Seconds()),
		gauge("store_left_shares", "Shares of the rate that replicas passed on when they shut down.", s.Left),
		gauge("store_places", "Concurrency slots of hosts that this replica holds in the store (max_concurrent).", s.Held),
		gauge("pace_times_slower", "Factor by which this replica paces slower than permitted: store.replicas while the store is "+
			"unavailable, 1 if all replicas are present.", max(s.Times, 1)),
		counters("store_reservations_total", "Slots requested from the store by result: given, refused because they would be too "+
			"late, or refused because no concurrency slot was free.", "outcome",
			map[string]uint64{"given": s.Reserved, "late": s.Late, "full": s.Full}),
		counters("store_errors_total", "Failed calls of the store, by cause.", "cause", s.Failures),
		counter("store_outages_total", "Outages of the store for this replica.", s.Outages),
		counter("store_dropped_reports_total", "Lost reports to the other replicas about returned concurrency slots, unused slots "+
			"and back-offs.", s.Dropped),
		counters("store_robots_total", "Operations on robots.txt and tdmrep.json files in the store: files loaded and saved, "+
			"fetches claimed, waits for the fetch of another replica, purges sent and received.", "operation",
			map[string]uint64{"load": r.Loads, "save": r.Saves, "claim": r.Claims, "wait": r.Waits, "purge": r.Purges, "heard": r.Heard}),
		counter("store_robots_lost_total", "robots.txt and tdmrep.json files and purges that never reached the store.", r.Lost),
		counter("store_robots_errors_total", "Failed calls of the store about robots.txt and tdmrep.json files.", r.Failures),
	}
}

// Describe implements [prometheus.Collector].
func (c storeCollector) Describe(to chan<- *prometheus.Desc) {
	c.statsCollector.Describe(to)
	to <- c.trips
}

// Collect implements [prometheus.Collector].
func (c storeCollector) Collect(to chan<- prometheus.Metric) {
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
