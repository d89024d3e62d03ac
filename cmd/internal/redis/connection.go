package redis

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

// giveUp cancels the calls of a server that is away: nothing waits for them any more.
func (conn *connection) giveUp() {
	if conn.away() {
		conn.fail(conn.client.Load(), Ended)
		conn.closeStale()
	}
}

// do makes one call of the server, or one pipeline, which may take callTime. If it fails
// and that is not ctx's fault, this replica is alone before do returns. redis.Nil is no
// failure.
func (conn *connection) do(ctx context.Context, call func(ctx context.Context, c *redis.Client) error) error {
	short, cancel := context.WithTimeout(ctx, conn.callTime)
	defer cancel()
	c := conn.client.Load()
	err := call(short, c)
	if err != nil && err != redis.Nil && ctx.Err() == nil { // within another error it is a Sentinel's
		conn.fail(c, causeOf(err))
	}
	return err
}

// A connection is one replica's connection to the server, and the view of the fleet that it gives.
type connection struct {
	replicas int
	log      *slog.Logger
	connect  func() *redis.Client // returns a client that has not dialled yet
	id       string               // of this process among the others, at random
	callTime time.Duration        // the constant, except in tests

	client atomic.Pointer[redis.Client] // changes under mu
	view   atomic.Pointer[view]         // changes under mu
	wake   chan struct{}                // holds a token: this replica has become alone

	outages  atomic.Uint64             // times that this replica became alone
	failures [causeCount]atomic.Uint64 // calls that failed

	mu     sync.Mutex      // guards the fields below
	stale  []*redis.Client // to be closed
	closed bool            // Close was called
	logged map[Cause]bool  // causes that were logged in this outage
}

// A view is how this replica stands among the others. It never changes.
type view struct {
	pace.Standing
	cause        Cause     // of being alone, or of the last time
	since        time.Time // of Alone, or its end
	epoch        string    // of the store; empty: not known
	returnsSince time.Time // zero: it does not return
	replicas     int       // that were last seen, this one among them
	freeShares   int       // of replicas that have ended in order
}

func alone(times int, c Cause, now time.Time) *view {
	return &view{Standing: pace.Standing{Alone: true, Slowdown: float64(times), Since: now}, cause: c, since: now}
}

// Standing implements [pace.Store].
func (conn *connection) Standing() pace.Standing { return conn.view.Load().Standing }

// away reports whether the server is not to be called, or its answers not to be relied on.
func (conn *connection) away() bool { return conn.view.Load().Alone }

// fail makes this replica alone, since a call of c has failed. c is not used again.
func (conn *connection) fail(c *redis.Client, cause Cause) {
	conn.failures[cause].Add(1)
	if next := conn.failed(c, cause); next != nil {
		conn.log.Warn("store unreachable, pacing alone", "cause", cause.String(), "times_slower", next.Slowdown)
	}
}

// failed is fail without the log line. It returns what is to be logged; nil: it is known
// already, or c is no longer the client.
func (conn *connection) failed(c *redis.Client, cause Cause) *view {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.client.Load() != c {
		return nil
	}
	old := conn.view.Load()
	now := time.Now()
	if old.Alone {
		now = old.since
	}
	next := alone(max(conn.replicas, old.replicas), cause, now)
	next.replicas = old.replicas
	if !old.Alone && cause != Ended {
		conn.outages.Add(1)
	}
	conn.view.Store(next)
	if !conn.closed {
		conn.stale = append(conn.stale, c)
		conn.client.Store(conn.connect())
	}
	if !old.Alone {
		select {
		case conn.wake <- struct{}{}:
		default:
		}
	}
	if cause == Ended || conn.logged[cause] {
		return nil
	}
	conn.logged[cause] = true
	return next
}

// closeStale closes the clients that have failed, with the calls under way on them.
func (conn *connection) closeStale() {
	conn.mu.Lock()
	stale := conn.stale
	conn.stale = nil
	conn.mu.Unlock()
	for _, c := range stale {
		c.Close()
	}
}

// become replaces the view old, from which next was made, by next. It reports whether old
// was still the view.
func (conn *connection) replaceView(old, next *view) bool {
	conn.mu.Lock()
	is := conn.view.Load() == old
	if is {
		conn.view.Store(next)
		if old.Alone && !next.Alone {
			clear(conn.logged)
		}
	}
	conn.mu.Unlock()
	if is && !next.Alone {
		conn.logReplicas(old, next)
	}
	return is
}

// logReplicas logs with how many others this replica shares the rate now, if that has
// changed.
func (conn *connection) logReplicas(old, next *view) {
	seen := []any{"replicas", next.replicas, "expected", conn.replicas, "times_slower", next.Slowdown}
	switch {
	case old.Alone:
		conn.log.Info("store connected, sharing the pace with other replicas", seen...)
	case next.replicas != old.replicas || next.Slowdown != old.Slowdown:
		conn.log.Info("number of replicas changed", seen...)
	}
	if next.replicas > max(old.replicas, conn.replicas) {
		conn.log.Warn("more replicas than store.replicas, set it to the number of all replicas, including those of run", seen[:4]...)
	}
}
