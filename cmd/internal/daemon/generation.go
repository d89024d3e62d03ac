package daemon

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/guide"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A generation is one configuration and all that was made from it and can be replaced while the daemon
// runs.
type generation struct {
	Cfg   config.Config
	rules proxy.Rules

	// egress are the options of rules.Egress.
	egress egress.Options

	// agents are the identities that sign requests.
	agents []Agent

	// caPEM are the certificates that clients have to trust.
	caPEM []byte

	// dialect is that of clients without one of their own.
	dialect robots.Dialect
	cache   cache.Options

	// audit has no Snapshots.
	audit audit.Options

	// archive has no Index.
	archive archive.Options

	// tdmrep is nil if tdmrep.json files are not read.
	tdmrep        *tdmrepCache
	tdmrepOptions cache.Options

	snapshots snapshot.Options

	// memory is the budget of the process in bytes.
	memory int64

	// sharedSum is Cfg.SharedSum.
	sharedSum func() string
}

// close closes what was made for g alone, if g is not activated.
func (g *generation) close(before *generation) {
	if g.rules.Egress != nil && (before == nil || g.rules.Egress != before.rules.Egress) {
		g.rules.Egress.Close()
	}
}

// setEgress sets the egress client of g. It keeps that of before if a new one would behave alike. A new one takes over its
// counters, and its pseudonym, because a request that the earlier client has sent may still come back.
func (g *generation) setEgress(before *generation) (err error) {
	o := g.egress
	if before != nil {
		if sameEgress(o, before.egress) {
			g.rules.Egress = before.rules.Egress
			return nil
		}
		o.Previous = before.rules.Egress
	}
	g.rules.Egress, err = egress.New(o)
	return err
}

// sameEgress reports whether two egress clients would behave alike.
func sameEgress(a, b egress.Options) bool {
	if !a.Roots.Equal(b.Roots) {
		return false
	}
	a.Roots, b.Roots = nil, nil
	return reflect.DeepEqual(a, b)
}

// certChanges returns what differs from before although no key does, as attributes for the log.
func (g *generation) certChanges(before *generation) (all []any) {
	if g.rules.Authority != before.rules.Authority {
		ca := g.rules.Authority.Certificate()
		all = append(all, "ca_sha256", guide.Fingerprint(ca.Raw), "ca_until", ca.NotAfter.UTC().Format(time.DateOnly))
	}
	if !bytes.Equal(g.caPEM, before.caPEM) {
		all = append(all, "ca_published", len(castore.Certificates(g.caPEM)))
	}
	if !bytes.Equal(chainOf(g.rules.TLS), chainOf(before.rules.TLS)) {
		leaf := g.rules.TLS.Certificates[0].Leaf
		all = append(all, "listen_tls_sha256", guide.Fingerprint(leaf.Raw), "listen_tls_until", leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	if now := keyIDs(g.agents); now != keyIDs(before.agents) {
		all = append(all, "signing_keys", now)
	}
	if g.rules.Egress != before.rules.Egress {
		all = append(all, "egress", "new connections")
	}
	return all
}

// chainOf returns the certificate chain of the proxy's own port; nil: it does not use TLS.
func chainOf(c *tls.Config) []byte {
	if c == nil {
		return nil
	}
	return bytes.Join(c.Certificates[0].Certificate, nil)
}

// snapshotOptions returns how the texts of robots.txt files are stored.
func (d *Daemon) snapshotOptions(cfg config.Config) snapshot.Options {
	return snapshot.Options{
		Dir:     filepath.Join(d.auditDir, cli.SnapshotsName),
		NoSync:  cfg.Audit.Sync == "none",
		MaxAge:  cfg.Audit.SnapshotMaxAge,
		MaxSize: int64(cfg.Audit.SnapshotMaxSize),
		Log:     d.log,
	}
}

// auditOptions returns how the audit is written, without its Snapshots.
func (d *Daemon) auditOptions(cfg config.Config) (audit.Options, error) {
	client, err := clientNaming(cfg.Audit.Clients, d.auditDir)
	file := cmp.Or(cfg.Audit.File, filepath.Join(d.auditDir, cli.AuditName))
	total := int64(cfg.Audit.MaxTotalSize)
	if cfg.Audit.MaxTotalSize == config.Auto {
		if d.autoTotal == 0 {
			// audit.Open describes the error.
			d.autoTotal, _ = audit.AutoTotal(file)
		}
		total = d.autoTotal
	}
	return audit.Options{
		File:        file,
		FIFO:        cfg.Audit.FIFO,
		MaxSize:     int64(cfg.Audit.MaxSize),
		MaxAge:      cfg.Audit.MaxAge,
		MaxTotal:    total,
		MaxFiles:    cfg.Audit.MaxFiles,
		Sync:        auditSync(cfg.Audit.Sync),
		BlockedOnly: cfg.Audit.Include == "blocked",
		DropQuery:   cfg.Audit.QueryStrings == "drop",
		Replica:     replicaName(cfg.Store, os.Hostname),
		Client:      client,
		Continue:    cfg.Audit.OnError == "continue",
		Tap:         d.tap(),
		Log:         d.log,
	}, err
}

func auditSync(word string) audit.Sync {
	return map[string]audit.Sync{"none": audit.SyncNone, "interval": audit.SyncInterval, "always": audit.SyncAlways}[word]
}

// process describes this process in events of the audit.
func (d *Daemon) process(f *generation) audit.Process {
	version, _ := buildInfo()
	p := audit.Process{Version: version, CA: guide.Fingerprint(f.rules.Authority.Certificate().Raw)}
	if include := f.Cfg.Audit.Include; include != "all" {
		p.Include = include
	}
	if hasCheckpoints(f.Cfg) {
		s := d.checkpointSettings(f.Cfg)
		// A key that cannot be read shows as an overdue checkpoint.
		p.Origin, _ = s.CurrentOrigin()
	}
	if d.configSum != ([sha256.Size]byte{}) {
		p.Config = hex.EncodeToString(d.configSum[:])
	}
	return p
}

// newGeneration creates what cfg requires, and activates nothing yet. It reuses what cfg does not
// change, with its state: the egress client and its connections, the authority and its certificates. It
// creates the robots.txt cache if the daemon has none.
func (d *Daemon) newGeneration(cfg config.Config, before *generation) (_ *generation, err error) {
	f := &generation{Cfg: cfg, snapshots: d.snapshotOptions(cfg), memory: memoryLimit(cfg), sharedSum: sync.OnceValue(cfg.SharedSum)}
	defer func() {
		if err != nil {
			f.close(before)
		}
	}()
	if f.audit, err = d.auditOptions(cfg); err != nil {
		return nil, err
	}
	if err := errors.Join(notary.CheckRegular(d.checkpointSettings(cfg)), checkFIFO(cfg)); err != nil {
		return nil, err
	}
	f.archive = d.archiveOptions(cfg, &f.audit)
	if f.egress, err = egressOptions(cfg, d.listenAddrs()...); err != nil {
		return nil, err
	}
	f.rules = proxy.Rules{
		Identity:   proxy.Identity{UserAgent: cfg.Identity.UserAgent, From: cfg.Identity.From, NoVia: !cfg.Egress.Via},
		Monitor:    cfg.Mode == "monitor" || isLeftOut("pace"),
		Recording:  proxy.Recording{RecordFirst: cfg.Audit.Sync == "always", Digests: cfg.Audit.Digests},
		BackOff:    cfg.Pace.BackOff,
		PerAddress: perAddress(cfg),
		MaxURL:     int(cfg.Limits.URL),
		Ports:      proxy.Ports{MaxConns: cfg.Limits.Connections, MaxConnsPerClient: cfg.Limits.ConnectionsPerClient},
	}
	if err := d.loadCertificates(f, before); err != nil {
		return nil, err
	}
	if f.rules.OwnPage, err = guidePage(cfg, f.caPEM, d.ready); err != nil {
		return nil, err
	}
	if f.rules.PassThrough, err = Passthrough(cfg); err != nil {
		return nil, err
	}
	if f.dialect, err = robots.DialectByName(cfg.Robots.Dialect); err != nil {
		return nil, err
	}
	if err := f.setEgress(before); err != nil {
		return nil, err
	}
	if f.cache, err = d.cacheOptions(f, trail.KindRobots, fetch.File{}); err != nil {
		return nil, err
	}
	f.cache.Fetcher, f.cache.Store = d.fetchTimer.Time(f.cache.Fetcher), d.robotsStore
	f.cache.MaxBytes = min(cache.DefaultBytes, f.memory/cachePart)
	if err := d.setTDMRep(f, before); err != nil {
		return nil, err
	}
	if d.robotsCache == nil {
		f.cache.MaxFetches = fetchesWithin(f.memory, 1)
		if d.robotsCache, err = cache.New(f.cache); err != nil {
			return nil, err
		}
	}
	f.rules.Engine, err = d.newEngine(f, before)
	return f, err
}

// cacheOptions returns how the file of each origin is fetched and, in lines of a kind, recorded.
func (d *Daemon) cacheOptions(f *generation, kind string, file fetch.File) (cache.Options, error) {
	o := fetch.Options{
		File:   file,
		Sender: &proxy.Fetches{Pacer: d.Pacer, Archive: d.archive, Ready: d.refusal, Rules: &f.rules},
		Record: func(r fetch.Report) error { return d.evidence.WriteFetch(kind, r) },
	}
	c, err := CacheOptions(f.Cfg, o, func() *policy.Engine { return f.rules.Engine })
	c.StoreTokens = d.files != nil
	return c, err
}

// loadCertificates loads the CA for intercepted tunnels, the certificate of the proxy's own port, and the keys that
// sign requests.
func (d *Daemon) loadCertificates(f, before *generation) error {
	state, err := cli.StateDir(f.Cfg)
	if err != nil {
		return err
	}
	if f.rules.Authority, err = castore.Authority(f.Cfg, state); err != nil {
		return err
	}
	if f.caPEM, err = castore.Published(f.Cfg, state, f.rules.Authority); err != nil {
		return err
	}
	if f.rules.TLS, err = listenTLS(f.Cfg); err != nil {
		return err
	}
	if f.rules.Signers, f.agents, err = Signers(f.Cfg); err != nil {
		return err
	}
	switch {
	case before == nil:
	case bytes.Equal(f.rules.Authority.CertPEM(), before.rules.Authority.CertPEM()):
		f.rules.Authority = before.rules.Authority
	default:
		f.rules.Authority.Follow(before.rules.Authority)
	}
	return nil
}

func (d *Daemon) newEngine(f, before *generation) (*policy.Engine, error) {
	o, err := engineOptions(f.Cfg, d.robotsCache, f.policyCache())
	if err != nil {
		return nil, err
	}
	o.Labels, o.Stops, o.CooledDown = d.labels, d.stops, d.cooledDown
	if d.fleet != nil {
		// A nil fleet in the interface would not be nil.
		o.Quotas = d.fleet
	}
	if before == nil {
		o.Used = d.usedBefore()
		return policy.New(o)
	}
	return before.rules.Engine.Renew(o)
}

// activate replaces before with f. It can fail only while the daemon shuts down; then nothing has changed.
// When the first channel of last is closed, no request uses before. When all channels of last are closed,
// the egress client of before sends no more requests.
func (d *Daemon) activate(f, before *generation) (last []<-chan struct{}, err error) {
	// Only this can fail, so it comes first.
	answered, err := d.handler.Use(f.rules)
	if err != nil {
		f.close(before)
		return nil, err
	}
	fetched, err := d.robotsCache.Reconfigure(f.cache)
	if err != nil {
		return nil, err
	}
	if last, err = f.activateTDMRep(before); err != nil {
		return nil, err
	}
	last = append([]<-chan struct{}{answered, fetched}, last...)
	d.evidence.SetOptions(f.audit)
	if d.archive != nil {
		d.archive.SetOptions(f.archive)
	}
	if err := d.snapshots.SetOptions(f.snapshots); err != nil {
		return nil, err
	}
	d.Active.Store(f)
	d.boundMemory(f.memory)
	renewed := f.rules.Egress != before.rules.Egress
	if renewed || !slices.Equal(fileParents(f.Cfg.Hosts), fileParents(before.Cfg.Hosts)) {
		d.robotsCache.RetryUnconnected()
		if f.tdmrep != nil {
			f.tdmrep.RetryUnconnected()
		}
	}
	if renewed {
		before.rules.Egress.CloseIdle()
	}
	return last, nil
}
