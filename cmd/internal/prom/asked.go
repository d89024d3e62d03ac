package prom

import (
	"iter"

	"github.com/prometheus/client_golang/prometheus"
)

// An asked collector shows what somebody is at: it asks once a scrape, and makes all
// its series of that one answer.
type asked[S any] struct {
	ask   func() S
	shown []shown[S]
}

// A shown is a metric; values gives the label values of each of its series, and what
// that has.
type shown[S any] struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	series func(S) iter.Seq2[[]string, float64]
}

// show adds a metric whose series are told apart by labels.
func (c *asked[S]) show(kind prometheus.ValueType, name, help string, labels []string, series func(S) iter.Seq2[[]string, float64]) {
	c.shown = append(c.shown, shown[S]{prometheus.NewDesc("robotsproxy_"+name, help, labels, nil), kind, series})
}

// one adds a metric of one series.
func (c *asked[S]) one(kind prometheus.ValueType, name, help string, value func(S) float64) {
	c.show(kind, name, help, nil, func(s S) iter.Seq2[[]string, float64] {
		return func(yield func([]string, float64) bool) { yield(nil, value(s)) }
	})
}

func (c *asked[S]) gauge(name, help string, value func(S) float64) {
	c.one(prometheus.GaugeValue, name, help, value)
}

func (c *asked[S]) counter(name, help string, value func(S) uint64) {
	c.one(prometheus.CounterValue, name, help, func(s S) float64 { return float64(value(s)) })
}

// counters adds a counter with a series for each key of what by gives.
func counters[S any, K ~string](c *asked[S], name, help, label string, by func(S) map[K]uint64) {
	c.show(prometheus.CounterValue, name, help, []string{label}, func(s S) iter.Seq2[[]string, float64] {
		return func(yield func([]string, float64) bool) {
			for k, n := range by(s) {
				if !yield([]string{string(k)}, float64(n)) {
					return
				}
			}
		}
	})
}

// Describe tells the registry what there will be.
func (c *asked[S]) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.shown {
		to <- m.desc
	}
}

// Collect asks.
func (c *asked[S]) Collect(to chan<- prometheus.Metric) {
	c.tell(c.ask(), to)
}

// tell makes the series of an answer.
func (c *asked[S]) tell(s S, to chan<- prometheus.Metric) {
	for _, m := range c.shown {
		for labels, value := range m.series(s) {
			to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		}
	}
}

// truth is how Prometheus has it: 1 or 0.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
