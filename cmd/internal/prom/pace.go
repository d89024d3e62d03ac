package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy/pace"
)

// newPaceCollector exports the state of the pacer.
func newPaceCollector(stats func() pace.Stats) prometheus.Collector {
	return statsCollector[pace.Stats]{stats, func(s pace.Stats) []metric {
		return []metric{
			gauge("pace_hosts", "Hosts with pacing state in memory.", s.Hosts),
			gauge("pace_paused_hosts", "Hosts in back-off after a 429 or 503.", s.BackedOff),
			gauge("pace_slowed_hosts", "Hosts whose rate is lowered because they respond slowly.", s.Slowed),
			gauge("pace_waiting_requests", "Requests that wait for a slot of their host.", s.Waiting),
			gauge("pace_inflight_requests", "Requests that hold a concurrency slot of their host (max_concurrent).", s.UnderWay),
			gauge("pace_streams", "Upgraded connections, event streams, passed-through tunnels, and slow transfers that returned "+
				"their slot. They hold no concurrency slot.", s.Streams),
			counter("pace_back_offs_total", "Back-offs that began or became longer because a host answered 429 or 503.", s.BackOffs),
			counter("pace_missed_turns_total", "Slots of the shared store that expired before use, so that another one was taken.",
				s.Missed),
		}
	}}
}
