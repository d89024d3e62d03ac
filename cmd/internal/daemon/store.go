package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/cache"
)

// StateFile is in the state directory, and locked while a serve has it.
const StateFile = "state.db"

// clocksEvery is how much of what was sent a crash may leave unsaid.
const clocksEvery = time.Second

// openStore opens what outlives a serve. Another one in the same state directory
// is an error.
func openStore(cfg config.Config, log *slog.Logger) (*bolt.Store, error) {
	state, err := cli.StateDir(cfg)
	if err != nil {
		return nil, err
	}
	store, err := bolt.Open(bolt.Options{File: filepath.Join(state, StateFile), Log: log})
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", state, err)
	}
	return store, nil
}

// pacer makes one that goes on from where the process before ended, together with the
// others of a fleet. Either may be nil.
func pacer(store *bolt.Store, f fleet) *pace.Pacer {
	var o pace.Options
	if f != nil {
		o.Store = f
	}
	if store == nil {
		return pace.New(o)
	}
	o.Since = store.Since()
	p := pace.New(o)
	p.Restore(store.Clocks())
	return p
}

// robotsStore is where robots.txt files are kept beside memory; nil: nowhere. Either may be nil.
func robotsStore(store *bolt.Store, f fleet) cache.Store {
	var own cache.Store
	if store != nil {
		own = store
	}
	if f == nil {
		return own
	}
	return f.Robots(own)
}

// keepClocks hands over the clocks that have changed until ctx ends, when nothing
// is sent any more, and then all of them.
func keepClocks(ctx context.Context, store *bolt.Store, p *pace.Pacer) error {
	tick := time.NewTicker(clocksEvery)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-tick.C:
			now := time.Now()
			store.SaveClocks(p.Clocks(now, since))
			since = now
		case <-ctx.Done():
			store.SaveClocks(p.Clocks(time.Now(), time.Time{}))
			return nil
		}
	}
}
