package daemon

import (
	"time"

	"robotsproxy/cmd/internal/prom"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
)

// metrics makes what Prometheus is told. The handler, which hands it the records, is
// made later.
func (h *Daemon) metrics() (*prom.Metrics, error) {
	version, commit := buildInfo()
	o := prom.Options{
		Version:   version,
		Revision:  commit,
		Ready:     h.ready,
		Handler:   func() proxy.Stats { return h.handler.Stats() },
		Authority: func() mitm.Stats { return h.Now.Load().rules.Authority.Stats() },
		Egress:    func() egress.Stats { return h.Now.Load().rules.Egress.Stats() },
		Book:      h.book.Stats,
		Pace:      h.Pacer.Stats,
		Audit:     h.evidence.Stats,
		Snapshots: h.snapshots.Stats,
		Reloads:   h.Reloads,
		Fetches:   h.fetches,
		Store:     h.shareStats(),
	}
	if h.store != nil {
		o.State = h.store.Stats
	}
	if h.Now.Load().rules.TLS != nil { // a reload changes the certificate, not that there is one
		o.ListenTLS = func() time.Time { return h.Now.Load().rules.TLS.Certificates[0].Leaf.NotAfter }
	}
	return prom.New(o)
}
