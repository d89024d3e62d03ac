package daemon

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/hours"
	"robotsproxy/policy/labels"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/guide"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// NewEngine returns the engine of check for a configuration. tdmrepCache is nil if tdmrep.json files are not read.
func NewEngine(cfg config.Config, robotsCache, tdmrepCache policy.Cache) (*policy.Engine, error) {
	o, err := engineOptions(cfg, robotsCache, tdmrepCache)
	if err != nil {
		return nil, err
	}
	o.FetchHeld = true
	return policy.New(o)
}

// The values of pace.max_wait: auto.
const (
	// serveMaxWait is the time after which many clients give up themselves.
	serveMaxWait = time.Minute
	// runMaxWait is longer than any client stays.
	runMaxWait = 365 * 24 * time.Hour
)

// runMaxBackOff limits the wait for a host's back-off where requests otherwise wait as long as the client stays.
// A back-off that the proxy chooses is shorter until the host's fifth 429 or 503 in a row. An origin that asks
// for more does not want the crawl now, and a 429 with that time tells the client more than a long wait.
const runMaxBackOff = 10 * time.Minute

// maxWait returns how long a request may wait for a slot, and for its host's back-off; zero: as long as
// for a slot.
func maxWait(cfg config.Config) (slot, backOff time.Duration) {
	switch w := time.Duration(cfg.Pace.MaxWait); {
	case cfg.Pace.MaxWait == config.AutoWait:
		return serveMaxWait, 0
	case w >= runMaxWait:
		return w, runMaxBackOff
	default:
		return w, 0
	}
}

// ForOneUser returns cfg for run and check, which serve one user. robots.fetch_as: auto means client
// there, and pace.max_wait: auto means as long as the client stays.
func ForOneUser(cfg config.Config) config.Config {
	if cfg.Robots.FetchAs == "auto" {
		cfg.Robots.FetchAs = "client"
	}
	if cfg.Pace.MaxWait == config.AutoWait {
		cfg.Pace.MaxWait = config.Wait(runMaxWait)
	}
	return cfg
}

// engineOptions returns the options of the engine that NewEngine returns.
func engineOptions(cfg config.Config, robotsCache, tdmrepCache policy.Cache) (policy.Options, error) {
	dialect, err := robots.DialectByName(cfg.Robots.Dialect)
	if err != nil {
		return policy.Options{}, err
	}
	clients, err := clients(cfg)
	if err != nil {
		return policy.Options{}, err
	}
	entries := Hosts(cfg)
	if isLeftOut("robots") {
		entries = []policy.Host{{Match: "*", Robots: policy.Ignore, Reason: "bare"}}
		cfg.Identity.ProductToken = "bare"
	}
	slot, backOff := maxWait(cfg)
	return policy.Options{
		Cache:        robotsCache,
		TDMRep:       tdmrepCache,
		Dialect:      dialect,
		Readings:     readings(cfg.Robots.Readings),
		Forbidden:    forbidden(cfg.Robots.Forbidden),
		Hosts:        entries,
		Clients:      clients,
		Open:         cfg.Open,
		ProductToken: cfg.Identity.ProductToken,
		// With identity.user_agent, all clients look the same to sites.
		FetchPerToken: cfg.Robots.FetchAs == "client" && cfg.Identity.UserAgent == "",
		Require:       requirement(cfg),
		MaxCrawlDelay: cfg.Robots.MaxCrawlDelay,
		OverMax:       OverMax(cfg),
		Usage: usage.Policy{
			Purposes:      purposes(cfg.Usage.Purposes),
			Refuse:        cfg.Usage.OnDisallowed == "refuse",
			RefuseUnknown: cfg.Usage.OnUnknown == "refuse",
		},
		PerDomain: cfg.Pace.Per == "domain",
		CoolDown:  coolDown(config.DefaultCoolDown()),
		Pace: pace.Limits{
			PerSecond:     cfg.Pace.RequestsPerSecond,
			Burst:         cfg.Pace.Burst,
			MaxConcurrent: cfg.Pace.MaxConcurrent,
			MaxWait:       slot,
			MaxBackOff:    backOff,
			MaxQueue:      cfg.Pace.MaxQueue,
			Adapt:         cfg.Pace.Adaptive,
		},
	}, nil
}

// denied returns a function that reports whether a target is denied; nil: none is, as in monitor mode.
func denied(cfg config.Config) (func(robots.Target) bool, error) {
	if cfg.Mode == "monitor" {
		return nil, nil
	}
	return policy.Denied(Hosts(cfg))
}

// OverMax returns what robots.over_max says about a crawl delay above the maximum.
func OverMax(cfg config.Config) policy.OverMax {
	return map[string]policy.OverMax{
		"clamp": policy.Clamp, "honor": policy.Honor, "refuse": policy.RefuseExcess,
	}[cfg.Robots.OverMax]
}

func readings(word string) policy.Readings {
	return map[string]policy.Readings{
		"": policy.ReadingsOfDialect, "all": policy.AllReadings, "literal": policy.LiteralReadings,
	}[word]
}

func forbidden(word string) policy.OnForbidden {
	return map[string]policy.OnForbidden{"allow": policy.AllowForbidden, "refuse": policy.RefuseForbidden}[word]
}

func requirement(cfg config.Config) policy.Require {
	return map[string]policy.Require{
		"none": policy.RequireNothing, "token": policy.RequireToken, "contact": policy.RequireContact,
	}[cfg.Identity.Require]
}

// checkIdentity returns an error if identity.user_agent is sent for every client but fails identity.require.
func checkIdentity(cfg config.Config) error {
	if ua := cfg.Identity.UserAgent; ua != "" && errors.Is(requirement(cfg).Unmet(ua, cfg.Identity.From), policy.ErrNoToken) {
		return fmt.Errorf("identity.user_agent: %q contains no product token, so identity.require would refuse every request "+
			"(example: FooBot/1.0 (+https://foo.example/bot))", ua)
	}
	return nil
}

// Hosts returns the entries of hosts of a configuration.
func Hosts(cfg config.Config) (all []policy.Host) {
	treatments := map[string]policy.Treatment{"enforce": policy.Enforce, "ignore": policy.Ignore, "deny": policy.Deny}
	parents, _ := hostParents(cfg.Hosts)
	for i, h := range cfg.Hosts {
		schedules, byRobots := openHours(h.Hours)
		var cools *policy.CoolDown
		if !reflect.DeepEqual(h.CoolDown, config.DefaultCoolDown()) {
			cools = new(coolDown(h.CoolDown))
		}
		all = append(all, policy.Host{
			Match: h.Match, Paths: h.Paths, Robots: treatments[h.Robots], Reason: h.Reason, Until: h.Until, Parent: parents[i],
			IgnoreUsage: h.Usage == "ignore", Readings: readings(h.Readings), Forbidden: forbidden(h.Forbidden),
			Hours: schedules, RobotsHours: byRobots, CoolDown: cools,
			Pace: pace.Limits{
				PerSecond:     h.Pace.RequestsPerSecond,
				Burst:         h.Pace.Burst,
				MaxConcurrent: h.Pace.MaxConcurrent,
				MaxWait:       h.Pace.MaxWait,
				MaxQueue:      h.Pace.MaxQueue,
			},
			Budget: policy.Budget{
				Quota: policy.Quota{Requests: int64(h.Budget.Requests), Bytes: int64(h.Budget.Bytes)}, Per: h.Budget.Per,
			},
		})
	}
	return all
}

func coolDown(c config.CoolDown) policy.CoolDown {
	d := policy.CoolDown{After: c.After, Within: c.Within, Pause: c.Pause}
	for _, status := range c.Statuses {
		d.Statuses = append(d.Statuses, int(status))
	}
	return d
}

// openHours returns the hours of an entry of hosts, and whether those of robots.txt count too.
func openHours(texts []string) (all []*hours.Schedule, byRobots bool) {
	own := slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == config.VisitTime })
	s, err := hours.Parse(own...)
	if err != nil {
		// The check of the configuration has refused it. The zero Schedule is never open.
		s = new(hours.Schedule)
	}
	if s != nil {
		all = append(all, s)
	}
	return all, len(own) < len(texts)
}

// clientLabels returns the labels of a client. The check of the configuration has refused labels that name a key twice.
func clientLabels(c config.Client) labels.Set {
	l, _ := labels.Parse(c.Labels...)
	return l
}

// purposes returns the categories with these names, all of which the configuration knows.
func purposes(names []string) (s usage.Set) {
	for _, name := range names {
		if c, known := usage.ParseCategory(name); known {
			s |= usage.SetOf(c)
		}
	}
	return s
}

func clients(cfg config.Config) (all []policy.Client, err error) {
	for _, c := range cfg.Clients {
		client := policy.Client{
			Name: c.Name, Networks: c.Networks, PasswordHash: c.PasswordHash, PasswordHashNext: c.PasswordHashNext, Labels: clientLabels(c),
			ProductToken: c.Identity.ProductToken,
			Pace:         pace.Rate{PerSecond: c.Pace.RequestsPerSecond, Burst: c.Pace.Burst},
			AssetBurst:   c.Pace.AssetBurst,
			Purposes:     purposes(c.Usage.Purposes),
			Quota:        policy.Quota{Requests: int64(c.Quota.RequestsPerDay), Bytes: int64(c.Quota.BytesPerDay)},
		}
		if c.Robots.Dialect != "" {
			if client.Dialect, err = robots.DialectByName(c.Robots.Dialect); err != nil {
				return nil, err
			}
		}
		all = append(all, client)
	}
	return all, nil
}

// Passthrough returns a function that reports whether tunnels to a host are passed through.
func Passthrough(cfg config.Config) (func(host string) bool, error) {
	listed, err := policy.NewHostPatterns(cfg.TLS.Tunnel)
	if err != nil {
		return nil, fmt.Errorf("tls.tunnel: %w", err)
	}
	return func(host string) bool { return !cfg.TLS.Intercept || listed.Has(host) }, nil
}

// clientNaming returns what replaces the name of a client in the audit; nil: nothing does.
func clientNaming(how, home string) (func(string) string, error) {
	switch how {
	case "hash":
		key, err := auditKey(filepath.Join(home, cli.KeyName))
		return audit.Pseudonym(key), err
	case "drop":
		return audit.Anonymous, nil
	}
	return nil, nil
}

// SecretBytes is the length of the key for the names of clients in the audit.
const SecretBytes = 32

// auditKey reads the key in a file. It creates a missing file.
func auditKey(file string) (key []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("audit.clients: %w", err)
		}
	}()
	key, err = os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, SecretBytes)
		// rand.Read never fails (since Go 1.24).
		rand.Read(key)
		err = cli.ReplaceFile(file, func(w io.Writer) error { _, err := w.Write(key); return err })
	}
	if err == nil && len(key) != SecretBytes {
		err = fmt.Errorf("%s must have %d bytes; if you remove it, the proxy creates a new key, which gives every client a new name "+
			"in the audit", file, SecretBytes)
	}
	return key, err
}

// perAddress reports whether hosts at one address share a pace. In monitor mode nothing is paced.
func perAddress(cfg config.Config) bool { return cfg.Pace.Per == "address" && cfg.Mode != "monitor" }

// listenTLS returns the TLS configuration of the proxy's own port; nil: it does not use TLS.
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

// NewEgress returns the egress client; own are the addresses on which this process listens.
func NewEgress(cfg config.Config, own ...netip.AddrPort) (*egress.Client, error) {
	o, err := egressOptions(cfg, own...)
	if err != nil {
		return nil, err
	}
	return egress.New(o)
}

// egressOptions returns the options of the egress client; own are the addresses on which this process listens.
func egressOptions(cfg config.Config, own ...netip.AddrPort) (egress.Options, error) {
	o := egress.Options{AllowPrivate: cfg.Egress.AllowPrivate, Own: own, Resolver: cfg.Egress.Resolver, Retry: cfg.Robots.UnreachableRetry}
	o.OneAddress = perAddress(cfg)
	_, o.Parents = hostParents(cfg.Hosts)
	if cfg.Egress.TLSMin == "1.0" {
		o.TLSMin = tls.VersionTLS10
	}
	for _, p := range cfg.Egress.Ports {
		o.Ports = append(o.Ports, egress.PortRange(p))
	}
	if file := cfg.Egress.ExtraCA; file != "" {
		var err error
		if o.Roots, err = x509.SystemCertPool(); err != nil {
			return o, fmt.Errorf("read the system's root certificates: %w", err)
		}
		if err := AddRoots(o.Roots, file); err != nil {
			return o, fmt.Errorf("egress.extra_ca: %w", err)
		}
	}
	switch cfg.Egress.Parent {
	case "":
	case config.ParentEnv:
		o.Environment = environment(os.Getenv)
	default:
		var err error
		if o.Parent, err = url.Parse(cfg.Egress.Parent); err != nil {
			// The error of url.Parse would show the password.
			return o, errors.New("egress.parent: not a URL")
		}
	}
	return o, nil
}

// AddRoots adds all certificates in a PEM file to roots. The error names the line of a certificate
// that cannot be read.
func AddRoots(roots *x509.CertPool, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	added := false
	for rest := text; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			begin := len(text) - len(rest) + bytes.Index(rest, []byte("-----BEGIN"))
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", file, 1+bytes.Count(text[:begin], []byte("\n")), err)
			}
			roots.AddCert(cert)
			added = true
		}
		rest = after
	}
	if !added {
		return fmt.Errorf("%s: no PEM certificate in the file", file)
	}
	return nil
}

// CacheOptions returns the options of the robots.txt cache under cfg, with a fetcher made from o. The Engine
// that engine returns decides about redirects; engine is not called before the first redirect.
func CacheOptions(cfg config.Config, o fetch.Options, engine func() *policy.Engine) (cache.Options, error) {
	var err error
	if o.Denied, err = denied(cfg); err != nil {
		return cache.Options{}, err
	}
	o.Timeout, o.From, o.IsOwnFailure = cfg.Robots.FetchTimeout, cfg.Identity.From, proxy.FetchFailedHere
	o.MaxURL, o.DropQuery = int(cfg.Limits.URL), cfg.Audit.QueryStrings == "drop"
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

// maxReplica is the maximum length of a replica's name in bytes, as in package config,
// because each record contains it.
const maxReplica = 64

// replicaName returns the name of this process in its records: "" if there are no other replicas and none is
// configured. Characters of the host name that a record cannot have are replaced.
func replicaName(c config.Store, hostname func() (string, error)) string {
	if c.Replica != "" || c.Redis == "" {
		return c.Replica
	}
	host, err := hostname()
	if err != nil || host == "" {
		return "unnamed"
	}
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, host)
	return name[:min(len(name), maxReplica)]
}

// guidePage returns the page at the proxy's own address.
func guidePage(cfg config.Config, caPEM []byte, ready func() error) (*guide.Page, error) {
	version, _ := buildInfo()
	return guide.New(guide.Options{
		CAPEM:       caPEM,
		Ready:       ready,
		Operator:    cfg.Identity.From,
		TLS:         cfg.ListenTLS.Cert != "",
		Passthrough: !cfg.TLS.Intercept,
		Monitor:     cfg.Mode == "monitor",
		Version:     version,
	})
}
