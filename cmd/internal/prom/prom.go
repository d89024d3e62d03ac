// Package prom exports the proxy's metrics to Prometheus: it counts the Records of requests as one
// of their Sinks, calls the Stats functions of other packages at each scrape, and answers the
// scrape. No other package uses the Prometheus library.
//
// It registers with a registry of its own only. Label values come from closed sets and from the configuration: no host,
// path, agent or client without an entry is ever one. Counting a Record neither waits, nor allocates, nor fails. A scrape
// that fails is answered with status 500 and the reason.
//
// Any number of goroutines may share a Metrics. It starts none.
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
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/cache"
)

// maxScrapes is how many scrapes are answered at once; others get 503.
const maxScrapes = 4

// Options configure a Metrics. All fields are required unless their comment says what nil means.
type Options struct {
	// Version is the version of this program.
	Version string

	// Revision is the commit that the program was built from; "": unknown.
	Revision string

	// Ready returns why requests are refused; nil: they are accepted. This function and those below are called once
	// a scrape, and must not block.
	Ready func() error

	// Monitor reports whether decisions are only recorded (mode: monitor).
	Monitor   func() bool
	Handler   func() proxy.Stats
	Authority func() mitm.Stats
	Egress    func() egress.Stats

	// Cache returns the state of the cache of robots.txt files.
	Cache func() cache.Stats

	// TDMRep returns the state of the cache of tdmrep.json files, which is zero while none is read.
	TDMRep func() cache.Stats
	Pace   func() pace.Stats
	Audit  func() audit.Stats

	// Checkpoints returns where checkpoints of the audit are kept.
	Checkpoints func() []notary.Place

	// Archive returns the state of the archive, which is zero while nothing is archived.
	Archive   func() archive.Stats
	Snapshots func() snapshot.Stats

	// State returns the state of state.db; nil: there is no state.db.
	State func() bolt.Stats

	// Store returns the state of the shared store; nil: there is no shared store.
	Store func() StoreStats

	// ListenTLS returns when the certificate of the proxy's own port expires; nil: the port has none.
	ListenTLS func() time.Time

	// Reloads returns how often the configuration was reloaded or rejected so far, when it was last
	// reloaded, and why the last attempt was rejected; nil: it is never reloaded.
	Reloads func() (ok, failed uint64, last time.Time, err error)

	// Clients returns the names of the entries of clients.
	Clients func() []string

	// Exceptions returns the entries of hosts with an end.
	Exceptions func() Exceptions

	// Stops returns the stops that hold now.
	Stops func() []stops.Stop

	// Quotas returns the clients with their quotas, and what they have used today.
	Quotas func() []policy.ClientUse

	// Fetches measures the fetches of Cache's Fetcher.
	Fetches *Stopwatch
}

// A Metrics holds all metrics of the proxy. Make one with New.
type Metrics struct {
	registry    *prometheus.Registry
	decisions   decisions
	notEnforced prometheus.Counter
	signatures  signatures
	preferences preferences
	waits       prometheus.Histogram
	perClient   *perClient
}

// New makes a Metrics. All series that are known beforehand start at zero.
func New(o Options) (*Metrics, error) {
	if o.Version == "" || o.Ready == nil || o.Monitor == nil || o.Handler == nil || o.Authority == nil || o.Egress == nil ||
		o.Cache == nil || o.TDMRep == nil || o.Pace == nil || o.Audit == nil || o.Archive == nil || o.Snapshots == nil ||
		o.Fetches == nil || o.Quotas == nil || o.Clients == nil || o.Exceptions == nil || o.Stops == nil {
		return nil, errors.New("prom: option missing")
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), decisions: newDecisions(), notEnforced: newNotEnforced(),
		signatures: newSignatures(), preferences: newPreferences(), waits: newWaits(),
		perClient: newPerClient(o.Clients),
	}
	all := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o),
		m.decisions.all,
		m.notEnforced,
		m.signatures.all,
		m.preferences.all,
		m.waits,
		m.perClient.requests,
		m.perClient.bytes,
		m.perClient.waits,
		newExceptionsCollector(o.Exceptions),
		newStopsCollector(o.Stops),
		newReadyCollector(o.Ready),
		newModeCollector(o.Monitor),
		newClientsCollector(o.Handler, o.Authority),
		newQuotasCollector(o.Quotas),
		newMemoryCollector(o.Handler),
		newEgressCollector(o.Egress),
		newCacheCollector("robots", "robots.txt", o.Cache),
		newCacheCollector("tdmrep", "tdmrep.json", o.TDMRep),
		o.Fetches.took,
		newPaceCollector(o.Pace),
		newAuditCollector(o.Audit),
		newCheckpointsCollector(o.Checkpoints),
		newArchiveCollector(o.Archive),
		newSnapshotsCollector(o.Snapshots),
	}
	if o.State != nil {
		all = append(all, newStateCollector(o.State))
	}
	if o.Store != nil {
		all = append(all, newStoreCollector(o.Store))
	}
	if o.ListenTLS != nil {
		all = append(all, newListenTLSCollector(o.ListenTLS))
	}
	if o.Reloads != nil {
		all = append(all, newReloadsCollector(o.Reloads))
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("prom: %w", err)
		}
	}
	return m, nil
}

// buildInfo returns the customary series of value 1 whose labels name the build.
func buildInfo(o Options) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "robotsproxy_build_info",
		Help:        "Always 1. The labels describe the build of the proxy.",
		ConstLabels: prometheus.Labels{"version": o.Version, "revision": o.Revision, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// Handler returns the handler that answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// Write counts a record. It never fails.
func (m *Metrics) Write(r *audit.Record) error {
	k := decision{r.Decision.Verdict, r.Decision.Reason}
	c, ok := m.decisions.known[k]
	if !ok {
		// A combination that knownDecisions lacks is counted as well.
		c = m.decisions.counter(k)
	}
	c.Inc()
	if r.Monitor && r.Blocked() {
		m.notEnforced.Inc()
	}
	m.signatures.count(r)
	m.preferences.count(r)
	m.perClient.count(r)
	if r.Slot {
		m.waits.Observe(r.Waited.Seconds())
	}
	return nil
}
