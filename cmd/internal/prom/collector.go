package prom

import (
	"github.com/prometheus/client_golang/prometheus"
)

// A statsCollector calls stats once a scrape and makes all its metrics from the one result.
type statsCollector[S any] struct {
	stats   func() S
	metrics []metric[S]
}

// A metric is one metric of a statsCollector.
type metric[S any] struct {
	desc    *prometheus.Desc
	kind    prometheus.ValueType
	samples func(S) []sample
}

// A sample is the value of one series of a metric.
type sample struct {
	// The values of the metric's labels.
	labels []string
	value  float64
}

// add adds a metric with labels.
func (c *statsCollector[S]) add(kind prometheus.ValueType, name, help string, labels []string, samples func(S) []sample) {
	c.metrics = append(c.metrics, metric[S]{prometheus.NewDesc("robotsproxy_"+name, help, labels, nil), kind, samples})
}

// one adds a metric without labels.
func (c *statsCollector[S]) one(kind prometheus.ValueType, name, help string, value func(S) float64) {
	c.add(kind, name, help, nil, func(s S) []sample { return []sample{{nil, value(s)}} })
}

func (c *statsCollector[S]) gauge(name, help string, value func(S) float64) {
	c.one(prometheus.GaugeValue, name, help, value)
}

func (c *statsCollector[S]) counter(name, help string, value func(S) uint64) {
	c.one(prometheus.CounterValue, name, help, func(s S) float64 { return float64(value(s)) })
}

// counters adds a counter with a series for each key of the map that by returns.
func counters[S any, K ~string](c *statsCollector[S], name, help, label string, by func(S) map[K]uint64) {
	c.add(prometheus.CounterValue, name, help, []string{label}, func(s S) (all []sample) {
		for k, n := range by(s) {
			all = append(all, sample{[]string{string(k)}, float64(n)})
		}
		return all
	})
}

// Describe implements [prometheus.Collector].
func (c *statsCollector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *statsCollector[S]) Collect(to chan<- prometheus.Metric) { c.collect(c.stats(), to) }

// collect sends the metrics of one result of stats.
func (c *statsCollector[S]) collect(s S, to chan<- prometheus.Metric) {
	for _, m := range c.metrics {
		for _, v := range m.samples(s) {
			to <- prometheus.MustNewConstMetric(m.desc, m.kind, v.value, v.labels...)
		}
	}
}

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
