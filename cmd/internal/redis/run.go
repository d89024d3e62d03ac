package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"robotsproxy/policy/wake"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Open checks the Options. It does not connect, and does not fail if the server is
// unavailable. Its errors name store.redis or store.replicas, and contain no password.
func Open(o Options) (*Fleet, error) { return open(o, callTime, robotsTime) }

// open is Open with other timeouts, for tests.
func open(o Options, callTime, robotsTime time.Duration) (*Fleet, error) {
	if o.Log == nil {
		return nil, errors.New("redis: Options lack a Log")
	}
	if o.Replicas < 1 || o.Replicas > maxReplicas {
		return nil, fmt.Errorf("store.replicas: %d is not between 1 and %d", o.Replicas, maxReplicas)
	}
	dial, err := newClientFunc(o.URL, callTime)
	if err != nil {
		return nil, fmt.Errorf("store.redis: %w", err)
	}
	var logged sync.Once
	connect := func() *redis.Client {
		c := dial()
		c.AddHook(&mender{client: c, log: o.Log, logged: &logged})
		return c
	}
	f := &Fleet{connection: connection{
		replicas: o.Replicas, name: o.Name, log: o.Log, connect: connect, id: rand.Text(), callTime: callTime,
		wake: wake.New(), logged: make(map[Cause]bool),
	}}
	f.robots = sharedFiles{connection: &f.connection, keys: robotsKeys, outbox: newOutbox(), counts: &f.files, loadTime: robotsTime}
	f.tdmrep = sharedFiles{connection: &f.connection, keys: tdmrepKeys, outbox: newOutbox(), counts: &f.files, loadTime: robotsTime}
	f.reports.wake = wake.New()
	f.client.Store(connect())
	f.view.Store(f.aloneView(&view{}, Starting, time.Now()))
	return f, nil
}

// Run keeps the connection until the context ends, which must be after the last request.
// Then it leaves the fleet. Call it once.
func (f *Fleet) Run(ctx context.Context, h Hooks) error {
	if h.Clocks == nil || h.Recheck == nil || h.BackOff == nil {
		return errors.New("redis: Hooks lack Clocks, Recheck or BackOff")
	}
	up, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	// ends are the parts that must send something before this replica leaves.
	var ends errgroup.Group
	for _, part := range []func(context.Context, Hooks) error{f.report, f.receiveBackOffs, f.tellUses} {
		ends.Go(func() error { return part(ctx, h) })
	}
	ends.Go(func() error { return f.robots.run(ctx) })
	ends.Go(func() error { return f.tdmrep.run(ctx) })
	ends.Go(func() error { return f.shareStops(ctx, h.Stops) })
	var group errgroup.Group
	group.Go(func() error { return f.maintain(up, h) })
	group.Go(func() error {
		defer leave()
		defer f.giveUp()
		return ends.Wait()
	})
	return group.Wait()
}

// Close closes the connections, after Run has returned. Later calls find this replica alone.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	c := f.client.Load()
	f.fail(c, Ended)
	f.closeStale()
	return c.Close()
}
