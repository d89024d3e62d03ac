// Package prom tells Prometheus what the proxy does: it counts the Records of
// requests as one of their Sinks, asks others for their Stats at each scrape, and
// answers the scrape. The library is known here alone.
//
// It registers with a registry of its own, and nowhere else. Labels come from
// closed sets: no host, path, client or agent is ever one. Counting a Record
// neither waits, nor allocates, nor fails; a scrape that fails is answered with
// status 500 and why.
//
// A Metrics may be shared by any number of goroutines. It starts none.
package prom

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"robotsproxy/policy/pace"
)

// maxScrapes is how many are answered at once; more get 503.
const maxScrapes = 4

// Options make a Metrics.
type Options struct {
	Version  string            // of this program; required
	Revision string            // the commit that it was built from; "": not known
	Pace     func() pace.Stats // what the pacer is at; required
}

// A Metrics is all that Prometheus is told. Make one with New.
type Metrics struct {
	registry  *prometheus.Registry
	decisions decisions
	waits     prometheus.Histogram
}

// New makes a Metrics with every series that is known beforehand at zero.
func New(o Options) (*Metrics, error) {
	if o.Version == "" || o.Pace == nil {
		return nil, errors.New("prom: an option is missing")
	}
	m := &Metrics{registry: prometheus.NewRegistry(), decisions: newDecisions(), waits: newWaits()}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o),
		m.decisions.all,
		m.waits,
		newPaceCollector(o.Pace),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("prom: %w", err)
		}
	}
	return m, nil
}

// buildInfo is the customary series of value 1 whose labels say what runs.
func buildInfo(o Options) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "robotsproxy_build_info",
		Help:        "Always 1; the labels say which build of the proxy runs.",
		ConstLabels: prometheus.Labels{"version": o.Version, "revision": o.Revision, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}
