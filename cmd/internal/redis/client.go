package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	"robotsproxy/policy/pace"
)

const (
	// callTime is how long a call of the server may take; a server that takes longer counts
	// as away.
	callTime = time.Second

	// maxReplicas is the most that Options.Replicas may be.
	maxReplicas = 10_000

	// poolSize is the highest number of connections for single calls. Waiting for one costs
	// more than having it: with 16 there were half as many reservations a second. The pool
	// dials only as many as are used.
	poolSize = 64

	// idleTime is for how long an unused connection is kept.
	idleTime = 5 * time.Minute

	// keyPrefix begins each key.
	keyPrefix = "robotsproxy:"
)

// Options make a [Fleet].
type Options struct {
	URL      string       // of the server: redis://, rediss:// or unix://; with ?master_name=… of its Sentinels; required
	Replicas int          // that share the server, at the most; required, 10,000 at the most
	Log      *slog.Logger // hears of each change of state once; required
}

// Hooks are the functions of the process that [Fleet.Run] calls.
type Hooks struct {
	Clocks  func(now, since time.Time) []pace.Clock // what was sent lately, see pace.Pacer.Clocks; required
	Recheck func()                                  // Standing has changed; see pace.Pacer.Recheck; required
	BackOff func(key string, b pace.BackOff)        // another replica has begun one; see pace.Pacer.MergeBackOff; required
}

// A Fleet is one replica's connection to what all replicas share. It implements [pace.Store].
type Fleet struct {
	replicas int
	log      *slog.Logger
	connect  func() *redis.Client // gives a client that has not dialled yet
	id       string               // of this process among the others, at random

	callTime, robotsTime time.Duration // those of the constants, except in tests

	client atomic.Pointer[redis.Client] // changes under mu
	view   atomic.Pointer[view]         // likewise
	wake   chan struct{}                // holds a token: this replica has become alone

	mu     sync.Mutex      // guards what follows
	stale  []*redis.Client // to be closed
	closed bool            // Close was called
	logged map[Cause]bool  // causes that were logged in this outage

	outbox outbox
	robots robotsCounts

	reports reportQueue
	held    leases
	counts  counts
}

// Open checks the Options. It does not dial, and does not fail because the server is away.
// Its errors name store.redis or store.replicas, and no password.
func Open(o Options) (*Fleet, error) { return open(o, callTime, robotsTime) }

// open is Open with other times than the usual, for tests.
func open(o Options, callTime, robotsTime time.Duration) (*Fleet, error) {
	if o.Log == nil {
		return nil, errors.New("redis: Options lack a Log")
	}
	if o.Replicas < 1 || o.Replicas > maxReplicas {
		return nil, fmt.Errorf("store.replicas: %d is not from 1 to %d", o.Replicas, maxReplicas)
	}
	connect, err := dialler(o.URL, callTime)
	if err != nil {
		return nil, fmt.Errorf("store.redis: %w", err)
	}
	f := &Fleet{
		replicas: o.Replicas, log: o.Log, connect: connect, id: rand.Text(),
		callTime: callTime, robotsTime: robotsTime,
		wake: make(chan struct{}, 1), logged: make(map[Cause]bool),
	}
	f.outbox = newOutbox()
	f.reports.wake = make(chan struct{}, 1)
	f.client.Store(connect())
	f.view.Store(alone(o.Replicas, Starting, time.Now()))
	return f, nil
}

// Run keeps the connection up until the context ends, which is when the last request has
// ended; then it leaves the fleet in order. It is called once.
func (f *Fleet) Run(ctx context.Context, h Hooks) error {
	if h.Clocks == nil || h.Recheck == nil || h.BackOff == nil {
		return errors.New("redis: Hooks lack Clocks, Recheck or BackOff")
	}
	up, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var ends errgroup.Group // of the parts that have something to send before this replica leaves
	for _, part := range []func(context.Context, Hooks) error{f.report, f.tell, f.receiveBackOffs} {
		ends.Go(func() error { return part(ctx, h) })
	}
	var group errgroup.Group
	group.Go(func() error { return f.keepUp(up, h) })
	group.Go(func() error {
		defer leave()
		defer f.giveUp()
		return ends.Wait()
	})
	return group.Wait()
}

// giveUp breaks off the calls of a server that is away: nothing waits for them any more.
func (f *Fleet) giveUp() {
	if f.away() {
		f.fail(f.client.Load(), Ended)
		f.closeStale()
	}
}

// Close closes the connections, after Run has returned. A later call finds this replica alone.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	c := f.client.Load()
	f.fail(c, Ended)
	f.closeStale()
	return c.Close()
}

// do makes one call of the server, or one pipeline, which may take callTime. If it fails
// and that is not ctx's fault, this replica is alone before do returns. redis.Nil is no
// failure.
func (f *Fleet) do(ctx context.Context, call func(ctx context.Context, c *redis.Client) error) error {
	short, cancel := context.WithTimeout(ctx, f.callTime)
	defer cancel()
	c := f.client.Load()
	err := call(short, c)
	if err != nil && err != redis.Nil && ctx.Err() == nil { // within another error it is a Sentinel's
		f.fail(c, causeOf(err))
	}
	return err
}

// dialler returns a function that makes a client for the URL, whose calls may take
// callTime. Each outage ends with a new client, so that no client has connections to two
// servers.
func dialler(raw string, callTime time.Duration) (func() *redis.Client, error) {
	// The library's log is that of the whole process, with a line for every connection that
	// fails. The Fleet logs what is worth a line.
	logging.Disable()

	u, err := url.Parse(raw)
	if err != nil || u.Host == "" && u.Path == "" {
		return nil, errors.New("it is not a URL such as redis://host:6379") // what url.Parse says has the password
	}
	if u.Query().Has("master_name") {
		o, err := redis.ParseFailoverURL(raw)
		if err != nil {
			return nil, plain(err)
		}
		if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
			return nil, errors.New("a replica of the server cannot be used")
		}
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = callTime, callTime, callTime, callTime
		o.PoolSize, o.ConnMaxIdleTime = poolSize, idleTime
		return func() *redis.Client {
			fresh := *o
			fresh.OnConnect = new(server).same
			return redis.NewFailoverClient(&fresh)
		}, nil
	}
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, plain(err)
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = callTime, callTime, callTime, callTime
	o.PoolSize, o.ConnMaxIdleTime = poolSize, idleTime
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return func() *redis.Client {
		fresh := *o
		fresh.OnConnect = new(server).same
		return redis.NewClient(&fresh)
	}, nil
}

// plain returns an error of go-redis about a URL without the library's prefix. It quotes no
// password.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "redis: ")) }

// A server is the server that a client is connected to.
type server struct {
	run atomic.Pointer[string] // its name for its present run; nil: not known yet
}

// same fails on a connection to another server, or another run of it, than the client's
// first. A server that does not tell counts as the same. Sentinels, of which there are
// several, are not checked.
func (s *server) same(ctx context.Context, c *redis.Conn) error {
	info, err := c.InfoMap(ctx, "server").Result()
	var refused redis.Error
	if errors.As(err, &refused) {
		return nil
	}
	if err != nil {
		return err
	}
	run := info["Server"]["run_id"]
	if run == "" || info["Server"]["redis_mode"] == "sentinel" || s.run.CompareAndSwap(nil, &run) || *s.run.Load() == run {
		return nil
	}
	return errOther
}
