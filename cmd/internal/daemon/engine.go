package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// NewEngine makes the engine that a configuration asks for.
func NewEngine(cfg config.Config, b policy.Book) (*policy.Engine, error) {
	o, err := engineOptions(cfg, b)
	if err != nil {
		return nil, err
	}
	return policy.New(o)
}

// ForOneUser gives cfg for run and check, which serve one user: robots.fetch_as: auto means
// client there.
func ForOneUser(cfg config.Config) config.Config {
	if cfg.Robots.FetchAs == "auto" {
		cfg.Robots.FetchAs = "client"
	}
	return cfg
}

// engineOptions is how that engine judges.
func engineOptions(cfg config.Config, b policy.Book) (policy.Options, error) {
	dialect, err := robots.DialectByName(cfg.Robots.Dialect)
	if err != nil {
		return policy.Options{}, err
	}
	clients, err := clients(cfg)
	if err != nil {
		return policy.Options{}, err
	}
	entries := hosts(cfg)
	if without("robots") {
		entries = []policy.Host{{Match: "*", Robots: policy.Ignore, Reason: "bare"}}
		cfg.Identity.ProductToken = "bare"
	}
	return policy.Options{
		Book:          b,
		Dialect:       dialect,
		Readings:      readings(cfg.Robots.Readings),
		Hosts:         entries,
		Clients:       clients,
		Open:          cfg.Open,
		ProductToken:  cfg.Identity.ProductToken,
		FetchPerToken: cfg.Robots.FetchAs == "client" && cfg.Identity.UserAgent == "", // else the sites see one client
		Require:       required(cfg),
		MaxCrawlDelay: cfg.Robots.MaxCrawlDelay,
		OverMax:       OverMax(cfg),
		PerDomain:     cfg.Pace.Per == "domain",
		Pace: pace.Limits{
			PerSecond:     cfg.Pace.RequestsPerSecond,
			Burst:         cfg.Pace.Burst,
			MaxConcurrent: cfg.Pace.MaxConcurrent,
			MaxWait:       cfg.Pace.MaxWait,
			MaxQueue:      cfg.Pace.MaxQueue,
			Adapt:         cfg.Pace.Adaptive,
		},
	}, nil
}

// denied says of a host that nothing goes there; nil: of none, as in monitor mode.
func denied(cfg config.Config) (func(host string) bool, error) {
	if cfg.Mode == "monitor" {
		return nil, nil
	}
	return policy.Denied(hosts(cfg))
}

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

func required(cfg config.Config) policy.Require {
	return map[string]policy.Require{
		"none": policy.RequireNothing, "token": policy.RequireToken, "contact": policy.RequireContact,
	}[cfg.Identity.Require]
}

// refusesAll says what is wrong with an identity that is sent for every client and
// is none.
func refusesAll(cfg config.Config) error {
	if ua := cfg.Identity.UserAgent; ua != "" && errors.Is(required(cfg).Unmet(ua, cfg.Identity.From), policy.ErrNoToken) {
		return fmt.Errorf("identity.user_agent: %q names no product, so that identity.require refuses every request (example: FooBot/1.0 (+https://foo.example/bot))", ua)
	}
	return nil
}

// tellOver says which entries of hosts count no more.
func tellOver(cfg config.Config, log *slog.Logger) {
	for _, h := range cfg.Hosts {
		if !h.Until.IsZero() && !time.Now().Before(h.Until) {
			log.Warn("an entry of hosts is over, and counts no more", "match", h.Match, "until", h.Until)
		}
	}
}

func hosts(cfg config.Config) (all []policy.Host) {
	treatments := map[string]policy.Treatment{"enforce": policy.Enforce, "ignore": policy.Ignore, "deny": policy.Deny}
	for _, h := range cfg.Hosts {
		all = append(all, policy.Host{
			Match: h.Match, Robots: treatments[h.Robots], Readings: readings(h.Readings), Reason: h.Reason, Until: h.Until,
			Pace: pace.Limits{
				PerSecond:     h.Pace.RequestsPerSecond,
				Burst:         h.Pace.Burst,
				MaxConcurrent: h.Pace.MaxConcurrent,
				MaxWait:       h.Pace.MaxWait,
				MaxQueue:      h.Pace.MaxQueue,
			},
		})
	}
	return all
}

func clients(cfg config.Config) (all []policy.Client, err error) {
	for _, c := range cfg.Clients {
		client := policy.Client{
			Name: c.Name, Networks: c.Networks, PasswordHash: c.PasswordHash,
			ProductToken: c.Identity.ProductToken,
			Pace:         pace.Rate{PerSecond: c.Pace.RequestsPerSecond, Burst: c.Pace.Burst},
			AssetBurst:   c.Pace.AssetBurst,
			PerDay:       c.Quota.RequestsPerDay,
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

// Passthrough says whose HTTPS is passed on unopened.
func Passthrough(cfg config.Config) (func(host string) bool, error) {
	listed, err := policy.NewHostPatterns(cfg.TLS.Tunnel)
	if err != nil {
		return nil, fmt.Errorf("tls.tunnel: %w", err)
	}
	return func(host string) bool { return !cfg.TLS.Intercept || listed.Has(host) }, nil
}
