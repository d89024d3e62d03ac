package prom

import (
	"github.com/prometheus/client_golang/prometheus"
)

// A statsCollector calls stats once a scrape and makes all its metrics from the one result.
type statsCollector[S any] struct {
	stats func() S

	// metrics returns the same metrics for every result, the zero value included.
	metrics func(S) []metric
}

// A metric is one metric of a statsCollector with the values of its series.
type metric struct {
	desc    *prometheus.Desc
	kind    prometheus.ValueType
	samples []sample
}

// A sample is the value of one series of a metric.
type sample struct {
	// The values of the metric's labels.
	labels []string
	value  float64
}

// A number is a value as the Stats of other packages have it.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// newMetric makes a metric. Its series have the labels.
func newMetric(kind prometheus.ValueType, name, help string, labels []string, samples ...sample) metric {
	return metric{prometheus.NewDesc("robotsproxy_"+name, help, labels, nil), kind, samples}
}

func gauge[N number](name, help string, value N) metric {
	return newMetric(prometheus.GaugeValue, name, help, nil, sample{nil, float64(value)})
}

func counter(name, help string, value uint64) metric {
	return newMetric(prometheus.CounterValue, name, help, nil, sample{nil, float64(value)})
}

// counters makes a counter with a series for each key of a map.
func counters[K ~string](name, help, label string, by map[K]uint64) metric {
	m := newMetric(prometheus.CounterValue, name, help, []string{label})
	for k, n := range by {
		m.samples = append(m.samples, sample{[]string{string(k)}, float64(n)})
	}
	return m
}

// Describe implements [prometheus.Collector].
func (c statsCollector[S]) Describe(to chan<- *prometheus.Desc) {
	var zero S
	for _, m := range c.metrics(zero) {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c statsCollector[S]) Collect(to chan<- prometheus.Metric) { c.collect(c.stats(), to) }

// collect sends the metrics of one result of stats.
func (c statsCollector[S]) collect(s S, to chan<- prometheus.Metric) {
	for _, m := range c.metrics(s) {
		for _, v := range m.samples {
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
