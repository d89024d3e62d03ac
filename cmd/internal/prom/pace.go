package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy/pace"
)

// A paceCollector shows what the pacer is at, asked once a scrape.
type paceCollector struct {
	stats func() pace.Stats
	shown []paceMetric
}

type paceMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(pace.Stats) float64
}

func newPaceCollector(stats func() pace.Stats) *paceCollector {
	c := &paceCollector{stats: stats}
	show := func(name, help string, kind prometheus.ValueType, value func(pace.Stats) float64) {
		c.shown = append(c.shown, paceMetric{prometheus.NewDesc("robotsproxy_pace_"+name, help, nil, nil), kind, value})
	}
	gauge := func(name, help string, value func(pace.Stats) int) {
		show(name, help, prometheus.GaugeValue, func(s pace.Stats) float64 { return float64(value(s)) })
	}
	gauge("hosts", "Hosts whose pace is kept in memory.",
		func(s pace.Stats) int { return s.Hosts })
	gauge("paused_hosts", "Hosts that nothing is sent to for now, after a 429 or 503 of theirs.",
		func(s pace.Stats) int { return s.Paused })
	gauge("slowed_hosts", "Hosts that are sent less because their answers have become slow.",
		func(s pace.Stats) int { return s.Slowed })
	gauge("waiting_requests", "Requests that wait for a slot of their host.",
		func(s pace.Stats) int { return s.Waiting })
	gauge("inflight_requests", "Requests that hold one of the places of their host (max_concurrent).",
		func(s pace.Stats) int { return s.UnderWay })
	gauge("streams", "Upgraded connections, event streams and unopened tunnels, which hold no place.",
		func(s pace.Stats) int { return s.Streams })
	show("back_offs_total", "Pauses begun, or lengthened, because a host answered 429 or 503.", prometheus.CounterValue,
		func(s pace.Stats) float64 { return float64(s.BackOffs) })
	return c
}

// Describe tells the registry what there will be.
func (c *paceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.shown {
		to <- m.desc
	}
}

// Collect asks the pacer.
func (c *paceCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	for _, m := range c.shown {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s))
	}
}
