package daemon

import (
	"context"
	"log/slog"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy"
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
	f, err := redis.Open(redis.Options{URL: cfg.Store.Redis, Replicas: cfg.Store.Replicas, Log: log})
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
