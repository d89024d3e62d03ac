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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/cache"
)

// maxScrapes is how many are answered at once; more get 503.
const maxScrapes = 4

// Options make a Metrics. What is not said to be nil is required.
type Options struct {
	Version  string // of this program
	Revision string // the commit that it was built from; "": not known

	// Each is asked once a scrape, and answers at once.
	Ready     func() error // why no requests are taken
	Handler   func() proxy.Stats
	Authority func() mitm.Stats
	Egress    func() egress.Stats
	Book      func() cache.Stats
	Pace      func() pace.Stats
	Audit     func() audit.Stats
	Snapshots func() snapshot.Stats
	State     func() bolt.Stats // nil: nothing is kept there
	Store     func() StoreStats // nil: there is one replica alone
	ListenTLS func() time.Time  // when the certificate of the proxy's own port expires; nil: it has none

	// How often the configuration was put in force anew or refused so far, when it last
	// was in force, and why it was not the last time; nil: it never is.
	Reloads func() (ok, failed uint64, last time.Time, err error)

	Fetches *Stopwatch // of the Book's Fetcher
}

// A Metrics is all that Prometheus is told. Make one with New.
type Metrics struct {
	registry  *prometheus.Registry
	decisions decisions
	waits     prometheus.Histogram
}

// New makes a Metrics with every series that is known beforehand at zero.
func New(o Options) (*Metrics, error) {
	if o.Version == "" || o.Ready == nil || o.Handler == nil || o.Authority == nil || o.Egress == nil || o.Book == nil ||
		o.Pace == nil || o.Audit == nil || o.Snapshots == nil || o.Fetches == nil {
		return nil, errors.New("prom: an option is missing")
	}
	m := &Metrics{registry: prometheus.NewRegistry(), decisions: newDecisions(), waits: newWaits()}
	all := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o),
		m.decisions.all,
		m.waits,
		ofReady(o.Ready),
		ofClients(o.Handler, o.Authority),
		ofMemory(o.Handler),
		ofOrigins(o.Egress),
		ofRobots(o.Book),
		o.Fetches.took,
		ofPace(o.Pace),
		ofAudit(o.Audit),
		ofSnapshots(o.Snapshots),
	}
	if o.State != nil {
		all = append(all, ofState(o.State))
	}
	if o.Store != nil {
		all = append(all, ofStore(o.Store))
	}
	if o.ListenTLS != nil {
		all = append(all, ofListenTLS(o.ListenTLS))
	}
	if o.Reloads != nil {
		all = append(all, ofReloads(o.Reloads))
	}
	for _, c := range all {
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
