package daemon

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A generation is what is in force: a configuration, and all that was made of it and can
// be made anew while the daemon stands.
type generation struct {
	Cfg       config.Config
	rules     proxy.Rules
	way       egress.Options // of rules.Egress
	dialect   robots.Dialect // that clients without one of their own are judged by
	known     cache.Options
	audit     audit.Options // but for its Snapshots
	snapshots snapshot.Options
	memory    int64 // the budget of the process, in bytes
}

// make makes what cfg asks for, and changes nothing yet. What is as in before is
// before's own, with all that it knows: the egress client and its connections, the authority
// and its certificates. Without a before the daemon has no book, and gets one.
func (h *Daemon) make(cfg config.Config, before *generation) (_ *generation, err error) {
	f := &generation{Cfg: cfg, snapshots: h.kept(cfg), memory: memoryLimit(cfg)}
	defer func() {
		if err != nil {
			f.discard(before)
		}
	}()
	if f.audit, err = h.recorded(cfg); err != nil {
		return nil, err
	}
	if f.way, err = egressOptions(cfg, h.own()...); err != nil {
		return nil, err
	}
	f.rules = proxy.Rules{
		UserAgent:    cfg.Identity.UserAgent,
		From:         cfg.Identity.From,
		Monitor:      cfg.Mode == "monitor" || without("pace"),
		BackOff:      cfg.Pace.BackOff,
		PerAddress:   perAddress(cfg),
		MaxURL:       int(cfg.Limits.URL),
		MaxConns:     cfg.Limits.Connections,
		MaxConnsEach: cfg.Limits.ConnectionsPerClient,
	}
	if err := h.identify(f, before); err != nil {
		return nil, err
	}
	if f.rules.Own, err = guidePage(cfg, f.rules.Authority, h.ready); err != nil {
		return nil, err
	}
	if f.rules.Sealed, err = Passthrough(cfg); err != nil {
		return nil, err
	}
	if f.dialect, err = robots.DialectByName(cfg.Robots.Dialect); err != nil {
		return nil, err
	}
	if before != nil && sameEgress(f.way, before.way) {
		f.rules.Egress = before.rules.Egress
	} else if f.rules.Egress, err = nextEgress(f.way, before); err != nil {
		return nil, err
	}
	if err := h.fetching(f); err != nil {
		return nil, err
	}
	if h.book == nil {
		f.known.MaxBytes = min(cache.DefaultBytes, f.memory/cachePart)
		f.known.MaxFetches = int(min(cache.DefaultFetches, f.memory/fetchPart/cache.FetchBytes))
		if h.book, err = cache.New(f.known); err != nil {
			return nil, err
		}
	}
	f.rules.Engine, err = h.newEngine(cfg, before)
	return f, err
}

// fetching sets f.known: how f's robots.txt files are fetched, recorded and stored.
func (h *Daemon) fetching(f *generation) (err error) {
	o := fetch.Options{
		Sender: &proxy.Fetches{Pacer: h.Pacer, Rules: &f.rules},
		Record: func(r fetch.Report) error { return h.evidence.WriteFetch(r) },
	}
	f.known, err = CacheOptions(f.Cfg, o, func() *policy.Engine { return f.rules.Engine })
	f.known.Fetcher, f.known.Store = h.fetches.Time(f.known.Fetcher), h.shelf
	return err
}

// discard closes what was made for f alone, which is not put in force.
func (f *generation) discard(before *generation) {
	if f.rules.Egress != nil && (before == nil || f.rules.Egress != before.rules.Egress) {
		f.rules.Egress.Close()
	}
}

// identify loads what the proxy shows of itself: to clients of intercepted tunnels,
// and at its own port.
func (h *Daemon) identify(f, before *generation) error {
	state, err := cli.StateDir(f.Cfg)
	if err != nil {
		return err
	}
	if f.rules.Authority, err = castore.Authority(f.Cfg, state); err != nil {
		return err
	}
	if f.rules.TLS, err = listenTLS(f.Cfg); err != nil {
		return err
	}
	if before != nil && bytes.Equal(f.rules.Authority.CertPEM(), before.rules.Authority.CertPEM()) {
		f.rules.Authority = before.rules.Authority
	}
	return nil
}

// nextEgress makes an egress client that is known by the name of the one before, as what that has
// sent may come back yet, and counts on.
func nextEgress(way egress.Options, before *generation) (*egress.Client, error) {
	if before != nil {
		way.Previous = before.rules.Egress
	}
	return egress.New(way)
}

func (h *Daemon) newEngine(cfg config.Config, before *generation) (*policy.Engine, error) {
	o, err := engineOptions(cfg, h.book)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return policy.New(o)
	}
	return before.rules.Engine.Renew(o)
}

// sameEgress says whether two egress clients would be configured alike.
func sameEgress(a, b egress.Options) bool {
	if !a.Roots.Equal(b.Roots) {
		return false
	}
	a.Roots, b.Roots = nil, nil
	return reflect.DeepEqual(a, b)
}

// use puts f in the place of before. Whatever could be wrong with it was found when it
// was made; only a daemon that ends takes no more, and then nothing has changed. Where
// another egress client is in force, before's is to be closed when it has sent its last request:
// when all of last are closed.
func (h *Daemon) use(f, before *generation) (last []<-chan struct{}, err error) {
	answered, err := h.handler.Use(f.rules) // first, as it alone may refuse
	if err != nil {
		f.discard(before)
		return nil, err
	}
	fetched, err := h.book.Reconfigure(f.known)
	if err != nil {
		return nil, err
	}
	h.evidence.Use(f.audit)
	if err := h.snapshots.Use(f.snapshots); err != nil {
		return nil, err
	}
	h.Now.Store(f)
	h.boundMemory(f)
	if f.rules.Egress == before.rules.Egress {
		return nil, nil
	}
	h.book.RetryUnconnected()
	before.rules.Egress.CloseIdle()
	return []<-chan struct{}{fetched, answered}, nil
}

// told says what of a force is another than before, where no key tells.
func (f *generation) told(before *generation) (all []any) {
	if f.rules.Authority != before.rules.Authority {
		ca := f.rules.Authority.Certificate()
		all = append(all, "ca_sha256", castore.Fingerprint(ca.Raw), "ca_until", ca.NotAfter.UTC().Format(time.DateOnly))
	}
	if !bytes.Equal(shownBy(f.rules.TLS), shownBy(before.rules.TLS)) {
		leaf := f.rules.TLS.Certificates[0].Leaf
		all = append(all, "listen_tls_sha256", castore.Fingerprint(leaf.Raw), "listen_tls_until", leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	if f.rules.Egress != before.rules.Egress {
		all = append(all, "way_out", "made anew")
	}
	return all
}

// shownBy is the chain that the own port shows; nil where it speaks in the clear.
func shownBy(c *tls.Config) []byte {
	if c == nil {
		return nil
	}
	return bytes.Join(c.Certificates[0].Certificate, nil)
}
