package daemon

import (
	"context"
	"log/slog"
	"strings"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/admin"
	"robotsproxy/robots/cache"
)

// A fleet is the store that this replica shares with others; [redis.Fleet] is one.
type fleet interface {
	pace.Store
	Robots(local cache.Store) cache.Store
	Run(ctx context.Context, h redis.Hooks) error
	Close() error
	Stats() redis.Stats
	RobotsStats() redis.RobotsStats
}

// openFleet dials nobody yet. It gives nil where there are no others.
func openFleet(cfg config.Config, log *slog.Logger) (fleet, error) {
	if cfg.Store.Redis == "" {
		return nil, nil
	}
	tellFleet(cfg, log)
	f, err := redis.Open(redis.Options{URL: cfg.Store.Redis, Replicas: cfg.Store.Replicas, Log: log})
	if err != nil {
		return nil, err // and no fleet that is a nil pointer
	}
	return f, nil
}

// share is one with the others until ctx ends, when nothing is sent any more.
func (h *Daemon) share(ctx context.Context) error {
	return h.fleet.Run(ctx, redis.Hooks{Clocks: h.Pacer.Clocks, Recheck: h.Pacer.Recheck, BackOff: h.Pacer.MergeBackOff})
}

// tellFleet says what of the configuration would let replicas go too fast.
func tellFleet(cfg config.Config, log *slog.Logger) {
	if cfg.Store.Replicas == 1 {
		log.Warn("store.replicas is 1: of several replicas each that starts while the store is away paces as if there were no other")
	}
}

// sharing is how this replica stands to the others, for the operator's side; nil: it is
// on its own.
func (h *Daemon) sharing() func() admin.Store {
	if h.fleet == nil {
		return nil
	}
	cfg := h.Now.Load().Cfg.Store // which no reload changes
	name := h.Now.Load().audit.Replica
	return func() admin.Store {
		s := h.fleet.Stats()
		return admin.Store{
			Replica: name, Alone: s.Alone, Returning: s.Returning, Why: s.Cause.String(), Since: s.Since,
			Times: s.Times, Members: s.Replicas, Expected: cfg.Replicas,
		}
	}
}

// shareStats is the same for Prometheus.
func (h *Daemon) shareStats() func() prom.StoreStats {
	if h.fleet == nil {
		return nil
	}
	expected := h.Now.Load().Cfg.Store.Replicas
	return func() prom.StoreStats {
		return prom.StoreStats{Stats: h.fleet.Stats(), Robots: h.fleet.RobotsStats(), Expected: expected}
	}
}

// maxReplica is what config lets the name of a replica be: it stands in each record.
const maxReplica = 64

// replicaName is what this process is called in its records: "" where it is on its own
// and was given no name. That of a host is made one that can stand there.
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
