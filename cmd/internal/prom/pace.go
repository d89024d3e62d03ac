package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy/pace"
)

// newPaceCollector exports the state of the pacer.
func newPaceCollector(stats func() pace.Stats) prometheus.Collector {
	c := &statsCollector[pace.Stats]{stats: stats}
	c.gauge("pace_hosts", "Hosts whose pace is kept in memory.",
		func(s pace.Stats) float64 { return float64(s.Hosts) })
	c.gauge("pace_paused_hosts", "Hosts that nothing is sent to for now, after a 429 or 503 of theirs.",
		func(s pace.Stats) float64 { return float64(s.BackedOff) })
	c.gauge("pace_slowed_hosts", "Hosts that are sent less because their answers have become slow.",
		func(s pace.Stats) float64 { return float64(s.Slowed) })
	c.gauge("pace_waiting_requests", "Requests that wait for a slot of their host.",
		func(s pace.Stats) float64 { return float64(s.Waiting) })
	c.gauge("pace_inflight_requests", "Requests that hold one of the places of their host (max_concurrent).",
		func(s pace.Stats) float64 { return float64(s.UnderWay) })
	c.gauge("pace_streams", "Upgraded connections, event streams, unopened tunnels, and slow transfers that gave their place back: they hold no place.",
		func(s pace.Stats) float64 { return float64(s.Streams) })
	c.counter("pace_back_offs_total", "Pauses begun, or lengthened, because a host answered 429 or 503.",
		func(s pace.Stats) uint64 { return s.BackOffs })
	c.counter("pace_missed_turns_total", "Turns of the store that were over before they were used, so that others were taken.",
		func(s pace.Stats) uint64 { return s.Missed })
	return c
}
