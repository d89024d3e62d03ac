// Package daemon is the proxy as a process: it makes every package from one configuration, serves,
// reloads and shuts down. It has the commands serve, config and health.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/admin"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A Daemon is the whole proxy: every package made from one configuration, in
// the order in which they need each other. This is the one page where the
// configuration becomes the packages' own Options; what judges stands in judge.go.
type Daemon struct {
	log       *slog.Logger
	Now       atomic.Pointer[generation] // what is in force; see reload.go
	store     *bolt.Store                // nil where nothing outlives the process
	fleet     fleet                      // nil where no other replica shares the pace
	shelf     cache.Store                // of robots.txt files, in these two; nil without either
	fetches   *prom.Stopwatch
	book      *cache.Cache
	Pacer     *pace.Pacer
	evidence  *audit.Log
	snapshots *snapshot.Store
	memory    *memory.Budget
	home      string // of the audit, and what belongs to it
	auditFile string
	feed      *live.Feed    // nil where admin is
	counts    *prom.Metrics // likewise
	handler   *proxy.Handler
	reloader  *reloader // nil where nothing is reloaded
	listener  net.Listener
	admin     *admin.Server // nil where it is off
	adminAt   net.Listener
	draining  atomic.Bool
}

// A Storage is what a daemon has for itself on the disk. It takes the store over.
type Storage struct {
	Dir   string      // of the audit, with all that belongs to it; "": the state directory
	store *bolt.Store // nil: nothing that is known of sites outlives the process
}

// New listens and makes everything; others are handed the records too. What it made
// before an error is undone.
func New(cfg config.Config, own Storage, log *slog.Logger, others ...audit.Sink) (_ *Daemon, err error) {
	h := &Daemon{log: log, store: own.store, fetches: prom.NewStopwatch(), memory: memory.New(memory.Options{})}
	defer func() {
		if err != nil {
			h.close() // of two errors the first is told
		}
	}()
	state, err := begin(cfg, log)
	if err != nil {
		return nil, err
	}
	if h.fleet, err = openFleet(cfg, log); err != nil {
		return nil, err
	}
	h.Pacer, h.shelf = pacer(h.store, h.fleet), robotsStore(h.store, h.fleet)
	h.home = cmp.Or(own.Dir, state)
	if err := h.listen(cfg); err != nil { // first: which port it got decides where the egress client must not connect to
		return nil, err
	}
	if err := h.openFeed(); err != nil {
		return nil, err
	}
	first, err := h.make(cfg, nil)
	if err != nil {
		return nil, err
	}
	h.Now.Store(first)
	h.boundMemory(first)
	if err := h.openAudit(first); err != nil {
		return nil, err
	}
	sinks, err := h.sinks(others)
	if err != nil {
		return nil, err
	}
	h.handler, err = proxy.New(proxy.Options{
		Rules: first.rules, Pacer: h.Pacer, Audit: audit.Fanout(sinks...), Keep: h.keep(), Ready: h.evidence.Refusal, Log: log, Memory: h.memory,
	})
	if err != nil {
		return nil, err
	}
	return h, h.openAdmin()
}

// perAddress says whether hosts at one address share a pace; in monitor mode
// nothing is paced.
func perAddress(cfg config.Config) bool { return cfg.Pace.Per == "address" && cfg.Mode != "monitor" }

// begin says what the configuration has that is of no use, and gives the state
// directory.
func begin(cfg config.Config, log *slog.Logger) (state string, err error) {
	if err := refusesAll(cfg); err != nil {
		return "", err
	}
	tellOver(cfg, log)
	tellWithout(log)
	return cli.StateDir(cfg)
}

// listenTLS is what the proxy's own port shows; nil where it speaks in the clear.
func listenTLS(cfg config.Config) (*tls.Config, error) {
	if cfg.ListenTLS.Cert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(cfg.ListenTLS.Cert, cfg.ListenTLS.Key)
	if err != nil {
		return nil, fmt.Errorf("listen_tls: %w", err)
	}
	if end := cert.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("listen_tls: the certificate in %s expired on %s", cfg.ListenTLS.Cert, end.Format(time.DateOnly))
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}, nil
}

// NewEgress makes the way out; own is where this process listens.
func NewEgress(cfg config.Config, own ...netip.AddrPort) (*egress.Client, error) {
	o, err := egressOptions(cfg, own...)
	if err != nil {
		return nil, err
	}
	return egress.New(o)
}

// egressOptions are the options of the egress client; own is where this process listens.
func egressOptions(cfg config.Config, own ...netip.AddrPort) (egress.Options, error) {
	o := egress.Options{AllowPrivate: cfg.Egress.AllowPrivate, Own: own, Resolver: cfg.Egress.Resolver, Retry: cfg.Robots.UnreachableRetry}
	o.OneAddress = perAddress(cfg)
	for _, p := range cfg.Egress.Ports {
		o.Ports = append(o.Ports, egress.PortRange(p))
	}
	if file := cfg.Egress.ExtraCA; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return o, fmt.Errorf("egress.extra_ca: %w", err)
		}
		if o.Roots, err = x509.SystemCertPool(); err != nil {
			return o, fmt.Errorf("the system's root certificates: %w", err)
		}
		if !o.Roots.AppendCertsFromPEM(pem) {
			return o, fmt.Errorf("egress.extra_ca: no certificate in %s", file)
		}
	}
	if cfg.Egress.Parent != "" {
		var err error
		if o.Parent, err = url.Parse(cfg.Egress.Parent); err != nil {
			return o, errors.New("egress.parent: not a URL") // err has the password
		}
	}
	return o, nil
}

// CacheOptions gives the options of the robots.txt cache under cfg, with a fetcher made from o.
// The engine that engine gives judges redirects; engine is not called before the first
// redirect.
func CacheOptions(cfg config.Config, o fetch.Options, engine func() *policy.Engine) (cache.Options, error) {
	var err error
	if o.Denied, err = denied(cfg); err != nil {
		return cache.Options{}, err
	}
	o.Timeout, o.From, o.IsOwnFailure = cfg.Robots.FetchTimeout, cfg.Identity.From, proxy.FetchFailedHere
	o.MaxURL = int(cfg.Limits.URL)
	o.Allowed = func(ctx context.Context, r fetch.Request, to robots.Origin, pathQuery string) error {
		return engine().AllowsRedirect(ctx, r, to, pathQuery)
	}
	client, err := fetch.New(o)
	return cache.Options{
		Fetcher:      client,
		MaxAge:       cfg.Robots.MaxAge,
		MinAge:       cfg.Robots.MinAge,
		Retry:        cfg.Robots.UnreachableRetry,
		FetchTimeout: cfg.Robots.FetchTimeout,
		UserAgent:    cmp.Or(cfg.Identity.UserAgent, version.Product()),
	}, err
}

func (h *Daemon) listen(cfg config.Config) (err error) {
	network := "tcp"
	if ip, err := netip.ParseAddrPort(cfg.Listen); err == nil && ip.Addr().Is4() {
		network = "tcp4" // or 0.0.0.0 would be every IPv6 address too
	}
	if h.listener, err = net.Listen(network, cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if cfg.Admin.Listen == "" {
		return nil
	}
	if h.adminAt, err = net.Listen("tcp", cfg.Admin.Listen); err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	return nil
}

// own is where the daemon listens.
func (h *Daemon) own() (all []netip.AddrPort) {
	for _, l := range []net.Listener{h.listener, h.adminAt} {
		if l != nil {
			all = append(all, l.Addr().(*net.TCPAddr).AddrPort())
		}
	}
	return all
}

// ready says why no requests are taken at present.
func (h *Daemon) ready() error {
	if h.draining.Load() {
		return errors.New("shutting down")
	}
	return h.evidence.Refusal()
}

// Run serves until ctx ends, lets the requests in flight finish, but not after
// urged has ended, and closes everything. It is called once.
func (h *Daemon) Run(ctx, urged context.Context) (err error) {
	defer func() { err = errors.Join(err, h.close()) }()
	background, stop := context.WithCancel(context.Background())
	defer stop()
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error { return h.handler.Serve(h.listener) })
	g.Go(func() error {
		debug.FreeOSMemory() // what the start took, as to read the system's roots: without load nothing else collects it for minutes
		return nil
	})
	sharing, part := context.WithCancel(context.Background()) // until the book has told what it has to tell
	defer part()
	g.Go(func() error {
		defer part()
		return h.book.Run(background)
	})
	g.Go(func() error { return h.evidence.Run(background) })
	g.Go(func() error { return h.snapshots.Run(background) })
	if h.store != nil {
		g.Go(func() error { return h.store.Run(background) })
		g.Go(func() error { return keepClocks(background, h.store, h.Pacer) })
	}
	if h.fleet != nil {
		g.Go(func() error { return h.share(sharing) })
	}
	if h.admin != nil {
		g.Go(func() error { return h.feed.Run(background) })
		g.Go(func() error { return h.admin.Serve(h.adminAt) })
	}
	if h.reloader != nil {
		g.Go(func() error { return h.reloader.run(failed, background) })
		g.Go(func() error { return h.reloader.notifier.guard(background) })
	}
	g.Go(func() error {
		<-failed.Done() // asked to end, or one of the above has
		h.draining.Store(true)
		if h.reloader != nil {
			h.reloader.notifier.stopping()
		}
		defer stop()
		if ctx.Err() != nil {
			h.drain(urged)
		}
		h.log.Info("robotsproxy ends; requests in flight may finish, for 20 s or until the next signal")
		err := h.handler.Shutdown(urged)
		if h.admin != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err = errors.Join(err, h.admin.Shutdown(ctx))
		}
		return err
	})
	return g.Wait()
}

// close undoes what build has made, the audit last: it is the evidence.
func (h *Daemon) close() error {
	for _, l := range []net.Listener{h.listener, h.adminAt} {
		if l != nil {
			l.Close() // closed already where it was served
		}
	}
	if now := h.Now.Load(); now != nil {
		now.rules.Egress.Close()
	}
	if h.fleet != nil {
		h.fleet.Close() // what fails there can be told to nobody
	}
	if h.store != nil {
		h.store.Close()
	}
	if h.evidence == nil {
		return nil
	}
	return h.evidence.Close()
}

// Addr is where the proxy listens, as host:port.
func (h *Daemon) Addr() string { return h.listener.Addr().String() }

// CAPEM is the certificate that clients have to trust.
func (h *Daemon) CAPEM() []byte { return h.Now.Load().rules.Authority.CertPEM() }

// token is what the operator's side asks for.
func (h *Daemon) token() string { return h.Now.Load().Cfg.Admin.Token }

// AuditFile is where the records go.
func (h *Daemon) AuditFile() string { return h.auditFile }
