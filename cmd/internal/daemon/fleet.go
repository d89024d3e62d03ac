package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/cache"
)

// A fleet is the storage that the replicas share. [redis.Fleet] is one.
type fleet interface {
	pace.Store
	policy.QuotaStore
	notary.Exchange
	Robots(local cache.Store) cache.Store
	TDMRep(local cache.Store) cache.Store
	Run(ctx context.Context, h redis.Hooks) error
	Close() error
	Stats() redis.Stats
	RobotsStats() redis.RobotsStats
}

// openFleet returns the fleet, without a connection yet; nil: there are no other replicas.
func openFleet(cfg config.Config, log *slog.Logger) (fleet, error) {
	if cfg.Store.Redis == "" {
		return nil, nil
	}
	if cfg.Store.Replicas == 1 {
		log.Warn("store.replicas is 1, a replica that starts while the store is unavailable paces as if it were alone")
	}
	name := replicaName(cfg.Store, os.Hostname)
	f, err := redis.Open(redis.Options{URL: cfg.Store.Redis, Replicas: cfg.Store.Replicas, Name: name, Log: log})
	if err != nil {
		// f would be a fleet that holds a nil pointer.
		return nil, err
	}
	return f, nil
}

// storeTrial is how long a replica that starts waits for its store before it takes requests.
const storeTrial = 2 * time.Second

// isStoreUntried reports whether this replica has neither joined the others nor found the store
// away since it started, not long ago. Until then it would fetch each robots.txt for itself.
func isStoreUntried(s redis.Stats) bool {
	return s.StoreAway && s.Cause == redis.Starting && time.Since(s.Since) < storeTrial
}

// member returns what this replica tells the others of itself.
func (d *Daemon) member() redis.Member {
	active := d.Active.Load()
	version, _ := buildInfo()
	m := redis.Member{
		Name: active.audit.Replica, Version: version, Config: active.sharedSum(), Dashboard: dashboardURL(active.Cfg.Admin),
		Started: d.started,
	}
	for _, err := range []error{d.healthy(), d.ready()} {
		if err != nil && !slices.Contains(m.Problems, err.Error()) {
			m.Problems = append(m.Problems, err.Error())
		}
	}
	if d.feed != nil {
		m.LastHour = make(map[string]int64)
		for _, counts := range d.feed.Series(live.Hour).Counts {
			for class, n := range counts {
				if n > 0 {
					m.LastHour[live.Class(class).String()] += n
				}
			}
		}
	}
	return m
}

// dashboardURL returns the URL at which other machines reach the dashboard; "": they do not.
func dashboardURL(c config.Admin) string {
	if c.URL != "" {
		return c.URL
	}
	if at, err := netip.ParseAddrPort(c.Listen); err != nil || at.Addr().IsLoopback() || at.Addr().IsUnspecified() {
		return ""
	}
	return "http://" + c.Listen + "/"
}
