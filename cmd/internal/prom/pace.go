package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy/pace"
)

// newPaceCollector exports the state of the pacer.
func newPaceCollector(stats func() pace.Stats) prometheus.Collector {
	c := &statsCollector[pace.Stats]{stats: stats}
	c.gauge("pace_hosts", "Hosts with pacing state in memory.",
		func(s pace.Stats) float64 { return float64(s.Hosts) })
	c.gauge("pace_paused_hosts", "Hosts in back-off after a 429 or 503.",
		func(s pace.Stats) float64 { return float64(s.BackedOff) })
	c.gauge("pace_slowed_hosts", "Hosts whose rate is lowered because they respond slowly.",
		func(s pace.Stats) float64 { return float64(s.Slowed) })
	c.gauge("pace_waiting_requests", "Requests that wait for a slot of their host.",
		func(s pace.Stats) float64 { return float64(s.Waiting) })
	c.gauge("pace_inflight_requests", "Requests that hold a concurrency slot of their host (max_concurrent).",
		func(s pace.Stats) float64 { return float64(s.UnderWay) })
	c.gauge("pace_streams", "Upgraded connections, event streams, passed-through tunnels, and slow transfers that returned their slot. They hold no concurrency slot.",
		func(s pace.Stats) float64 { return float64(s.Streams) })
	c.counter("pace_back_offs_total", "Back-offs that began or became longer because a host answered 429 or 503.",
		func(s pace.Stats) uint64 { return s.BackOffs })
	c.counter("pace_missed_turns_total", "Slots of the shared store that expired before use, so that another one was taken.",
		func(s pace.Stats) uint64 { return s.Missed })
	return c
}
