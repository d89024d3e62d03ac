// Package daemon runs the proxy as a process: it makes every package from one configuration, serves,
// reloads and shuts down. It has the commands serve, config and health.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/admin"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Daemon is a running proxy: every package, made from one configuration in the order in which they
// need each other. The functions in options.go turn the configuration into the packages' own Options.
type Daemon struct {
	log             *slog.Logger
	Active          atomic.Pointer[generation] // the active generation; see reload.go
	store           *bolt.Store                // nil: no state outlives the process
	fleet           fleet                      // nil: there are no other replicas
	robotsStore     cache.Store                // the stored robots.txt files of store and fleet; nil without either
	tdmrepStore     cache.Store                // likewise of tdmrep.json files
	fetchTimer      *prom.Stopwatch
	robotsCache     *cache.Cache
	Pacer           *pace.Pacer
	evidence        *audit.Log
	snapshots       *snapshot.Store
	memory          *memory.Budget
	auditDir        string // the audit, its snapshots and its key
	auditFile       string
	savedEnd        uint64           // seq of the line that saveAuditEnd has saved last
	autoTotal       int64            // what audit.max_total_size: auto means, in bytes; 0: nobody has needed it yet
	feed            *live.Feed       // nil without admin
	archive         *archive.Archive // nil: nothing is archived
	payloads        *bolt.Payloads   // of archive
	autoArchive     int64            // archive.max_total_size: auto; 0: not derived yet
	metrics         *prom.Metrics    // nil without admin and monitor
	handler         *proxy.Handler
	reloader        *reloader // nil: the configuration is not reloaded
	listener        net.Listener
	transparent     net.Listener  // of redirected connections; nil: there are none
	nameOf          proxy.NameOf  // see Resources
	elsewhere       bool          // listener and transparent are in another network namespace
	admin           *admin.Server // nil: it is off
	adminListener   net.Listener
	monitor         *admin.Monitor // nil: it is off
	monitorListener net.Listener
	draining        atomic.Bool
}

// Resources are what one Daemon has for itself, besides its configuration. The Daemon closes them.
type Resources struct {
	Dir   string      // for the audit and what belongs to it; "": the state directory
	store *bolt.Store // nil: no state outlives the process

	Listener    net.Listener // in another network namespace, in place of one on the configured addresses
	Transparent net.Listener // of redirected connections there
	NameOf      proxy.NameOf // names of the destinations of Transparent's connections; nil: there are none
}

// New listens and creates all packages. others also receive the records. After an error New closes
// what it has created.
func New(cfg config.Config, own Resources, log *slog.Logger, others ...audit.Sink) (_ *Daemon, err error) {
	d := &Daemon{log: log, store: own.store, listener: own.Listener, transparent: own.Transparent, nameOf: own.NameOf, elsewhere: own.Listener != nil, fetchTimer: prom.NewStopwatch(), memory: memory.New(memory.Options{})}
	defer func() {
		if err != nil {
			d.close() // the first error is returned
		}
	}()
	state, err := checkStart(cfg, log)
	if err != nil {
		return nil, err
	}
	if d.fleet, err = openFleet(cfg, log); err != nil {
		return nil, err
	}
	d.Pacer = newPacer(d.store, d.fleet)
	d.robotsStore, d.tdmrepStore = newFileStores(d.store, d.fleet)
	d.auditDir = cmp.Or(own.Dir, state)
	if err := d.listen(cfg); err != nil { // first, since the egress client must not connect to these ports
		return nil, err
	}
	if err := d.openFeed(); err != nil {
		return nil, err
	}
	if err := d.openArchive(cfg); err != nil {
		return nil, fmt.Errorf("archive.dir: %w", err)
	}
	first, err := d.newGeneration(cfg, nil)
	if err != nil {
		return nil, err
	}
	d.Active.Store(first)
	d.boundMemory(first)
	if err := d.openAudit(first); err != nil {
		return nil, err
	}
	sinks, err := d.sinks(others)
	if err != nil {
		return nil, err
	}
	d.handler, err = proxy.New(proxy.Options{
		Rules: first.rules, Pacer: d.Pacer, Audit: audit.Fanout(sinks...), Keep: d.keepFunc(), Ready: d.refusal, Log: log, Archive: d.archive, Memory: d.memory,
	})
	if err != nil {
		return nil, err
	}
	return d, d.openAdmin()
}

// checkStart logs settings that have no effect, and returns the state directory.
func checkStart(cfg config.Config, log *slog.Logger) (state string, err error) {
	if err := checkIdentity(cfg); err != nil {
		return "", err
	}
	warnExpired(cfg, log)
	warnBare(log)
	return cli.StateDir(cfg)
}

// ready returns why the proxy accepts no requests at present; nil: it does.
func (d *Daemon) ready() error {
	if d.draining.Load() {
		return errors.New("shutting down")
	}
	if d.fleet != nil && isStoreUntried(d.fleet.Stats()) {
		return errors.New("this replica has not connected to the shared store yet")
	}
	return d.refusal()
}

// Run serves until ctx ends, waits for the requests in flight until they or urged end, and closes
// everything. It is called once.
func (d *Daemon) Run(ctx, urged context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	background, stop := context.WithCancel(context.Background())
	defer stop()
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error { return d.handler.Serve(d.listener) })
	if d.transparent != nil {
		g.Go(func() error { return d.handler.ServeTransparent(d.transparent, d.nameOf) })
	}
	g.Go(func() error {
		debug.FreeOSMemory() // the start has allocated a lot, as for the system's roots, and without load no collection runs for minutes
		return nil
	})
	tdmrep := d.Active.Load().tdmrep                          // before a reload can replace it: a reload runs its own
	sharing, part := context.WithCancel(context.Background()) // ends after the caches have saved their state
	defer part()
	g.Go(func() error {
		defer part()
		return d.runCaches(background, tdmrep)
	})
	g.Go(func() error { return d.evidence.Run(background) })
	g.Go(func() error { return d.snapshots.Run(background) })
	if d.archive != nil {
		g.Go(func() error { return d.archive.Run(background) })
	}
	g.Go(func() error { return d.runAnchors(background) })
	if d.store != nil {
		g.Go(func() error { return d.store.Run(background) })
		g.Go(func() error { return d.saveState(background) })
	}
	if d.fleet != nil {
		g.Go(func() error { return d.runFleet(sharing) })
	}
	if d.admin != nil {
		g.Go(func() error { return d.feed.Run(background) })
		g.Go(func() error { return d.admin.Serve(d.adminListener) })
	}
	if d.monitor != nil {
		g.Go(func() error { return d.monitor.Serve(d.monitorListener) })
	}
	if d.reloader != nil {
		g.Go(func() error { return d.reloader.run(failed, background) })
		g.Go(func() error { return d.reloader.notifier.watchdog(background) })
	}
	g.Go(func() error {
		<-failed.Done() // ctx has ended, or one of the goroutines above has failed
		d.draining.Store(true)
		if d.reloader != nil {
			d.reloader.notifier.stopping()
		}
		defer stop()
		if ctx.Err() != nil {
			d.drain(urged)
		}
		d.log.Info("shutting down, waiting up to 20 s for requests in flight")
		return errors.Join(d.handler.Shutdown(urged), d.shutdownAdmin())
	})
	return g.Wait()
}

// shutdownAdmin shuts the listeners for operators down.
func (d *Daemon) shutdownAdmin() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if d.admin != nil {
		err = d.admin.Shutdown(ctx)
	}
	if d.monitor != nil {
		err = errors.Join(err, d.monitor.Shutdown(ctx))
	}
	return err
}

// runCaches runs the caches that New has made until ctx ends; tdmrep is nil if tdmrep.json files are not read.
func (d *Daemon) runCaches(ctx context.Context, tdmrep *tdmrepCache) error {
	var g errgroup.Group
	g.Go(func() error { return d.robotsCache.Run(ctx) })
	if tdmrep != nil {
		g.Go(func() error { return tdmrep.run(ctx) })
	}
	return g.Wait()
}

// close closes what New has made. The store is last, since it remembers the end of the audit.
func (d *Daemon) close() (err error) {
	for _, l := range []net.Listener{d.listener, d.transparent, d.adminListener, d.monitorListener} {
		if l != nil {
			l.Close() // returns an error if Run has closed it
		}
	}
	if now := d.Active.Load(); now != nil {
		now.rules.Egress.Close()
	}
	if d.fleet != nil {
		d.fleet.Close() // nobody can be told of an error
	}
	if d.evidence != nil {
		err = d.evidence.Close()
	}
	err = errors.Join(err, d.closeArchive())
	if d.store != nil {
		if d.evidence != nil {
			d.saveAuditEnd()
		}
		d.store.Close()
	}
	return err
}

// Addr returns the proxy's address as host:port.
func (d *Daemon) Addr() string { return d.listener.Addr().String() }

// CAPEM returns the certificate that clients have to trust.
func (d *Daemon) CAPEM() []byte { return d.Active.Load().rules.Authority.CertPEM() }

// Untrusted are the hosts in whose tunnels a client did not trust the proxy's certificate, or may not have.
type Untrusted struct {
	Rejected []string // the client rejected the certificate
	Closed   []string // it closed the connection during the TLS handshake
	Unused   []string // it closed the connection after the TLS handshake, without a request
}

// Untrusted returns the hosts for which clients did not trust the proxy's certificate so far.
func (d *Daemon) Untrusted() Untrusted {
	a := d.Active.Load().rules.Authority
	return Untrusted{a.FaultHosts(mitm.FaultUntrusted), a.FaultHosts(mitm.FaultClosed), a.FaultHosts(mitm.FaultUnused)}
}

// token returns admin.token.
func (d *Daemon) token() string { return d.Active.Load().Cfg.Admin.Token }

// AuditFile returns the path of the audit.
func (d *Daemon) AuditFile() string { return d.auditFile }

// openAudit opens the snapshots and the audit.
func (d *Daemon) openAudit(f *generation) (err error) {
	if d.snapshots, err = snapshot.Open(f.snapshots); err != nil {
		return err
	}
	o := f.audit
	o.Snapshots = d.snapshots
	d.auditFile = o.File
	o.Known = d.knownEnd(o.File)
	d.evidence, err = audit.Open(o)
	return err
}

const (
	// drainQuiet is how long no request arrives before a drain ends: a balancer that checks every
	// few seconds has noticed by then.
	drainQuiet = 5 * time.Second

	drainLook = 100 * time.Millisecond // how often drain checks
)

// drain continues to serve, as not ready, until the configured time, until urged ends, or until no
// requests arrive. Each response closes its connection.
func (d *Daemon) drain(urged context.Context) {
	most := d.Active.Load().Cfg.Drain
	if most <= 0 {
		return
	}
	d.log.Info("draining, serving until no request arrives or the next signal", "at_most", most)
	d.handler.Drain()
	ctx, cancel := context.WithTimeout(urged, most)
	defer cancel()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	requests := d.handler.Stats().Requests
	for quiet := time.Now(); time.Since(quiet) < drainQuiet; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if now := d.handler.Stats().Requests; now.Open > 0 || now.Total != requests.Total {
			requests, quiet = now, time.Now()
		}
	}
}

// runFleet exchanges state with the other replicas until ctx ends, when no request is sent any more.
func (d *Daemon) runFleet(ctx context.Context) error {
	return d.fleet.Run(ctx, redis.Hooks{Clocks: d.Pacer.Clocks, Recheck: d.Pacer.Recheck, BackOff: d.Pacer.MergeBackOff})
}

// adminStore returns the state of this replica for the admin listener; nil: there are no others.
func (d *Daemon) adminStore() func() admin.Store {
	if d.fleet == nil {
		return nil
	}
	cfg := d.Active.Load().Cfg.Store // a reload does not change it
	name := d.Active.Load().audit.Replica
	return func() admin.Store {
		s := d.fleet.Stats()
		return admin.Store{
			Replica: name, Alone: s.Alone, Returning: s.Returning, Why: s.Cause.String(), Since: s.Since,
			Times: s.Times, Members: s.Replicas, Expected: cfg.Replicas,
		}
	}
}

// storeStats returns the state of this replica for the metrics; nil: there are no others.
func (d *Daemon) storeStats() func() prom.StoreStats {
	if d.fleet == nil {
		return nil
	}
	expected := d.Active.Load().Cfg.Store.Replicas
	return func() prom.StoreStats {
		return prom.StoreStats{Stats: d.fleet.Stats(), Robots: d.fleet.RobotsStats(), Expected: expected}
	}
}

// boundMemory sets the memory budget of f. It also sets the garbage collector's limit a little above
// the budget, unless the environment has GOMEMLIMIT.
func (d *Daemon) boundMemory(f *generation) {
	d.memory.SetLimit(f.memory)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.memory + f.memory/memoryAbove)
	}
}

// newMetrics makes the metrics. The handler, which also counts for them, is made later.
func (d *Daemon) newMetrics() (*prom.Metrics, error) {
	version, commit := buildInfo()
	o := prom.Options{
		Version:   version,
		Revision:  commit,
		Ready:     d.ready,
		Monitor:   d.monitors,
		Handler:   func() proxy.Stats { return d.handler.Stats() },
		Authority: func() mitm.Stats { return d.Active.Load().rules.Authority.Stats() },
		Egress:    func() egress.Stats { return d.Active.Load().rules.Egress.Stats() },
		Cache:     d.robotsCache.Stats,
		TDMRep:    d.tdmrepStats,
		Pace:      d.Pacer.Stats,
		Audit:     d.evidence.Stats,
		Archive:   d.archiveStats,
		Snapshots: d.snapshots.Stats,
		Reloads:   d.Reloads,
		Fetches:   d.fetchTimer,
		Store:     d.storeStats(),
	}
	if d.store != nil {
		o.State = d.store.Stats
	}
	if d.Active.Load().rules.TLS != nil { // a reload changes the certificate, but not whether there is one
		o.ListenTLS = func() time.Time { return d.Active.Load().rules.TLS.Certificates[0].Leaf.NotAfter }
	}
	return prom.New(o)
}

// openFeed makes the live feed of requests, if there is an admin listener.
func (d *Daemon) openFeed() (err error) {
	if d.adminListener == nil {
		return nil
	}
	d.feed, err = live.New(live.Options{Waiting: func() int { return d.Pacer.Stats().Waiting }})
	return err
}

// tap returns the function that receives each line of the audit; nil: there is none.
func (d *Daemon) tap() func(seq uint64, line []byte) {
	if d.feed == nil || isLeftOut("metrics") {
		return nil
	}
	return d.feed.Tap
}

// sinks returns the receivers of each record: the audit first, then others, then metrics and feed.
func (d *Daemon) sinks(others []audit.Sink) (all []audit.Sink, err error) {
	if !isLeftOut("audit") {
		all = append(all, d.evidence)
	}
	all = append(all, others...)
	if d.adminListener == nil && d.monitorListener == nil {
		return all, nil
	}
	if d.metrics, err = d.newMetrics(); err != nil || isLeftOut("metrics") {
		return all, err
	}
	all = append(all, d.metrics)
	if d.feed != nil {
		all = append(all, d.feed)
	}
	return all, nil
}

// keepFunc returns the function that stores the robots.txt files that decisions are based on.
func (d *Daemon) keepFunc() func(*audit.Record) error {
	if isLeftOut("audit") {
		return func(*audit.Record) error { return nil }
	}
	return d.evidence.SaveSnapshot
}

// paceKey returns the current key of a host's pace.
func (d *Daemon) paceKey(host string) string {
	rules := &d.Active.Load().rules
	if rules.PerAddress {
		if at := rules.Egress.KnownAddress(host); at.IsValid() {
			return at.String()
		}
	}
	return rules.Engine.PaceKey(host)
}

// monitors reports whether decisions are only recorded.
func (d *Daemon) monitors() bool { return d.Active.Load().rules.Monitor }

// clientNames returns the names of the configured clients.
func (d *Daemon) clientNames() (all []string) {
	for _, c := range d.Active.Load().Cfg.Clients {
		all = append(all, c.Name)
	}
	return all
}

// openAdmin makes the servers for operators. It comes last, since they show the rest.
func (d *Daemon) openAdmin() (err error) {
	if d.metrics == nil {
		return nil
	}
	version, commit := buildInfo()
	started := time.Now()
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
		Reloads: d.Reloads,
		Store:   d.adminStore(),
		About: func() admin.About {
			about := admin.About{Commit: commit, Started: started, State: d.auditDir, Audit: d.auditFile, Archive: d.archiveFacts()}
			for _, a := range d.Active.Load().agents {
				about.Signing = append(about.Signing, admin.Signing{Client: a.Client, Agent: a.URL, KeyID: a.Key.ID()})
			}
			if d.reloader != nil {
				about.Config = AbsolutePath(d.reloader.settings.file)
			}
			return about
		},
		Warnings: d.warnings,
		Space:    func() audit.Space { return d.evidence.Stats().Space },
		Evidence: d.evidenceForAdmin(),
		Config:   func() []byte { return d.Active.Load().Cfg.Redacted().Marshal() },
		CAPEM:    d.CAPEM,
		Proxy:    d.listener.Addr(), ProxyTLS: d.Active.Load().rules.TLS != nil, // a reload does not change it
		Version: version,
	}
	if d.monitorListener != nil {
		d.monitor = admin.NewMonitor(o)
	}
	if d.adminListener != nil {
		d.admin, err = admin.New(o)
	}
	return err
}

// auditDiffers begins a warning about the end of the audit.
const auditDiffers = "the audit differs from what the proxy wrote: "

// warnings returns what the operator should see to before it stops requests.
func (d *Daemon) warnings() (all []string) {
	if found := d.evidence.Tampered(); found != "" {
		all = append(all, auditDiffers+found)
	}
	for _, w := range []string{d.evidence.Stats().Space.Warning(), d.archiveStats().Space.Warning()} {
		if w != "" {
			all = append(all, w)
		}
	}
	return all
}

// AdminURL returns the URL of the admin listener; "": it is off.
func (d *Daemon) AdminURL() string {
	if d.adminListener == nil {
		return ""
	}
	return "http://" + d.adminListener.Addr().String() + "/"
}
