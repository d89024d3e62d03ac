package redis

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/wake"
)

// giveUp cancels the calls of an unavailable server, because nothing waits for them any
// more.
func (conn *connection) giveUp() {
	if conn.Standing().StoreAway {
		conn.fail(conn.client.Load(), Ended)
		conn.closeStale()
	}
}

// do makes one call, or one pipeline, which may take callTime. If it fails and ctx is not
// the reason, this replica is alone before do returns. redis.Nil is not a failure.
func (conn *connection) do(ctx context.Context, call func(ctx context.Context, c *redis.Client) error) error {
	short, cancel := context.WithTimeout(ctx, conn.callTime)
	defer cancel()
	c := conn.client.Load()
	err := call(short, c)
	// Inside another error, redis.Nil comes from a Sentinel.
	if err != nil && err != redis.Nil && ctx.Err() == nil {
		conn.fail(c, causeOf(err))
	}
	return err
}

// A connection is one replica's connection to the server, with its view of the fleet.
type connection struct {
	// replicas is Options.Replicas.
	replicas int

	// name is Options.Name.
	name string
	log  *slog.Logger

	// connect returns a client that has not connected yet.
	connect func() *redis.Client

	// id is the random name of this process.
	id string

	// callTime is the constant, except in tests.
	callTime time.Duration

	// client and view are replaced under mu.
	client atomic.Pointer[redis.Client]
	view   atomic.Pointer[view]

	// wake contains a value if this replica has become alone.
	wake wake.Signal

	// outages is the number of times that this replica became alone.
	outages atomic.Uint64

	// failures are the failed calls, by cause.
	failures [causeCount]atomic.Uint64

	// mu guards the fields below.
	mu sync.Mutex

	// stale are the clients that must be closed.
	stale []*redis.Client

	// closed means that Close was called.
	closed bool

	// logged are the causes that were already logged in this outage.
	logged map[Cause]bool
}

// A view is the state of this replica among the others. It never changes.
type view struct {
	pace.Standing

	// cause is why this replica is alone, or was the last time.
	cause Cause

	// since is when StoreAway last changed.
	since time.Time

	// epoch is the epoch of the store; empty if it is unknown.
	epoch string

	// returnsSince is when the return from an outage began; zero if none is in progress.
	returnsSince time.Time

	// from and quietSince are pace.Turns.From of the last outage, and when the last return began during which no turns were
	// used; zero: there was none.
	from, quietSince time.Time

	enrolment

	// replicas is how many replicas were last seen, including this one.
	replicas int

	// freeShares is the number of shares of replicas that have shut down normally.
	freeShares int
}

// aloneView returns the view of a replica that is alone since a time, after the view old.
func (conn *connection) aloneView(old *view, c Cause, since time.Time) *view {
	times := max(conn.replicas, old.replicas)
	turns := conn.turns(old.enrolment, times)
	turns.From, turns.Quiet = old.from, old.Turns.Quiet
	return &view{
		Standing: pace.Standing{StoreAway: true, Slowdown: float64(times), Since: since, Turns: turns},
		cause:    c, since: since, from: old.from, quietSince: old.quietSince, enrolment: old.enrolment, replicas: old.replicas,
	}
}

// Standing implements [pace.Store].
func (conn *connection) Standing() pace.Standing { return conn.view.Load().Standing }

// fail makes this replica alone because a call of c has failed. c is not used again.
func (conn *connection) fail(c *redis.Client, cause Cause) {
	conn.failures[cause].Add(1)
	if next := conn.failed(c, cause); next != nil {
		conn.log.Warn("store unreachable, pacing alone", "cause", cause.String(), "times_slower", next.Slowdown)
	}
}

// failed is fail without the log line. It returns what to log, or nil if that was logged
// already or c is no longer the client.
func (conn *connection) failed(c *redis.Client, cause Cause) *view {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.client.Load() != c {
		return nil
	}
	old := conn.view.Load()
	since := time.Now()
	if old.StoreAway {
		since = old.since
	}
	next := conn.aloneView(old, cause, since)
	if !old.StoreAway && since.Sub(old.since) >= settledFor {
		// Until then, another replica may use a slot that it got before.
		next.from = since.Add(gone)
		next.Turns.From = next.from
	}
	if !old.StoreAway && cause != Ended {
		conn.outages.Add(1)
	}
	conn.view.Store(next)
	if !conn.closed {
		conn.stale = append(conn.stale, c)
		conn.client.Store(conn.connect())
	}
	if !old.StoreAway {
		conn.wake.Set()
	}
	if cause == Ended || conn.logged[cause] {
		return nil
	}
	conn.logged[cause] = true
	return next
}

// closeStale closes the clients that have failed, including their calls in progress.
func (conn *connection) closeStale() {
	conn.mu.Lock()
	stale := conn.stale
	conn.stale = nil
	conn.mu.Unlock()
	for _, c := range stale {
		c.Close()
	}
}

// replaceView replaces the view old by next, which was made from it. It reports whether
// old was still the view.
func (conn *connection) replaceView(old, next *view) bool {
	conn.mu.Lock()
	is := conn.view.Load() == old
	if is {
		conn.view.Store(next)
		if old.StoreAway && !next.StoreAway {
			clear(conn.logged)
		}
	}
	conn.mu.Unlock()
	if is && !next.StoreAway {
		conn.logReplicas(old, next)
	}
	return is
}

// logReplicas logs the number of replicas that share the rate, if that number has
// changed.
func (conn *connection) logReplicas(old, next *view) {
	seen := []any{"replicas", next.replicas, "expected", conn.replicas, "times_slower", next.Slowdown}
	switch {
	case old.StoreAway:
		conn.log.Info("store connected, sharing the pace with other replicas", seen...)
	case next.replicas != old.replicas || next.Slowdown != old.Slowdown:
		conn.log.Info("number of replicas changed", seen...)
	}
	if next.replicas > max(old.replicas, conn.replicas) {
		conn.log.Warn("more replicas than store.replicas, set it to the number of all replicas, including those of run", seen[:4]...)
	}
}
