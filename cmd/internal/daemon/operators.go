package daemon

import (
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/admin"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// openAdmin makes the servers for operators. It comes last, since they show the rest.
func (d *Daemon) openAdmin() (err error) {
	if d.metrics == nil {
		return nil
	}
	version, commit := buildInfo()
	o := admin.Options{
		Healthy: d.healthy, Ready: d.ready, Metrics: d.metrics.Handler(), Log: d.log,
		Token:   d.token,
		Live:    d.feed,
		Cache:   operatorCache{d.robotsCache, func() *tdmrepCache { return d.Active.Load().tdmrep }},
		Pacer:   d.Pacer,
		Dialect: func() robots.Dialect { return d.Active.Load().dialect },
		PaceKey: d.paceKey,
		Explain: d.handler.Explain,
		Query:   func(r policy.Request) cache.Query { return d.Active.Load().rules.Engine.Query(r) },
		Engine:  func() *policy.Engine { return d.Active.Load().rules.Engine },
		Clients: d.clientNames,
		Monitor: d.monitors,
		Reload:  d.Reload,
		Reloads: d.Reloads, NeedRestart: d.needRestart,
		Store: d.adminStore(),
		About: func() admin.About {
			about := admin.About{
				Commit: commit, Started: d.started, State: d.auditDir, Audit: d.auditFile,
				ArchiveDir: d.Active.Load().Cfg.Archive.Dir, Archive: d.archiveStats(),
			}
			for _, a := range d.Active.Load().agents {
				about.Signing = append(about.Signing, admin.Signing{Client: a.Client, Agent: a.URL, KeyID: a.Key.ID()})
			}
			if d.reloader != nil {
				about.Config = AbsolutePath(d.reloader.settings.file)
			}
			return about
		},
		Warnings:   d.warnings,
		Faults:     d.handler.ClientFaults,
		Checkpoint: d.newestCheckpoint,
		Space:      func() audit.Space { return d.evidence.Stats().Space },
		Evidence:   d.evidenceForAdmin(),
		Config:     func() []byte { return d.Active.Load().Cfg.Redacted().Marshal() },
		CAPEM:      d.CAPEM,
		// A reload changes neither the address nor whether the proxy speaks TLS.
		Proxy: d.listener.Addr(), ProxyTLS: d.Active.Load().rules.TLS != nil,
		Version: version, BackOffEnded: d.evidence.BackOffEnded,
		Stops: d.stops, SaveStops: d.syncStops, Paused: d.evidence.Pause,
	}
	if d.monitorListener != nil {
		d.monitor = admin.NewMonitor(o)
	}
	if d.adminListener != nil {
		d.admin, err = admin.New(o)
	}
	return err
}

// newMetrics makes the metrics. The handler, which also counts for them, is made later.
func (d *Daemon) newMetrics() (*prom.Metrics, error) {
	version, commit := buildInfo()
	o := prom.Options{
		Version:     version,
		Revision:    commit,
		Ready:       d.ready,
		Monitor:     d.monitors,
		Handler:     func() proxy.Stats { return d.handler.Stats() },
		Authority:   func() mitm.Stats { return d.Active.Load().rules.Authority.Stats() },
		Egress:      func() egress.Stats { return d.Active.Load().rules.Egress.Stats() },
		Cache:       d.robotsCache.Stats,
		TDMRep:      d.tdmrepStats,
		Pace:        d.Pacer.Stats,
		Audit:       d.evidence.Stats,
		Checkpoints: d.checkpointPlaces,
		Archive:     d.archiveStats,
		Snapshots:   d.snapshots.Stats,
		Reloads:     d.Reloads,
		Fetches:     d.fetchTimer,
		Store:       d.storeStats(),
		Clients:     d.clientNames,
		Exceptions:  func() prom.Exceptions { return exceptions(d.Active.Load().Cfg, time.Now()) },
		Stops:       d.stops.All,
		Quotas: func() []policy.ClientUse {
			all, _ := d.Active.Load().rules.Engine.ClientUses()
			return all
		},
	}
	if d.store != nil {
		o.State = d.store.Stats
	}
	// A reload changes the certificate, but not whether there is one.
	if d.Active.Load().rules.TLS != nil {
		o.ListenTLS = func() time.Time { return d.Active.Load().rules.TLS.Certificates[0].Leaf.NotAfter }
	}
	return prom.New(o)
}

// adminStore returns the state of this replica for the admin listener; nil: there are no others.
func (d *Daemon) adminStore() func() admin.Store {
	if d.fleet == nil {
		return nil
	}
	// A reload does not change the name of the replica.
	name := d.Active.Load().audit.Replica
	return func() admin.Store {
		s := d.fleet.Stats()
		return admin.Store{
			Replica: name, StoreAway: s.StoreAway, Returning: s.Returning, Why: s.Cause.String(), Since: s.Since,
			Times: s.Times, Members: s.Replicas, Expected: s.Expected, Replicas: s.Members, Guard: s.Guard,
		}
	}
}

// storeStats returns the state of this replica for the metrics; nil: there are no others.
func (d *Daemon) storeStats() func() prom.StoreStats {
	if d.fleet == nil {
		return nil
	}
	return func() prom.StoreStats { return prom.StoreStats{Stats: d.fleet.Stats(), Robots: d.fleet.RobotsStats()} }
}

// warnings returns what the operator should see to before it stops requests.
func (d *Daemon) warnings() (all []string) {
	if found := d.evidence.Tampered(); found != "" {
		all = append(all, auditDiffers+found)
	}
	found := []string{d.evidence.Stats().Space.Warning(), d.archiveStats().Space.Warning(), d.handler.Stats().Warning()}
	found = append(found, expiryWarning(d.Active.Load().Cfg, time.Now()))
	if d.notary != nil {
		found = append(found, d.notary.Warnings()...)
	}
	if keys := d.needRestart(); len(keys) > 0 {
		found = append(found, "changes of the configuration file need a restart: "+strings.Join(keys, ", "))
	}
	if d.fleet != nil {
		s := d.fleet.Stats()
		found = append(found, s.Warnings()...)
	}
	if d.paceFile != nil && d.paceFile.Err() != nil {
		found = append(found, "requests wait, the pace cannot be shared with other processes: "+d.paceFile.Err().Error())
	}
	return append(all, slices.DeleteFunc(found, func(w string) bool { return w == "" })...)
}
