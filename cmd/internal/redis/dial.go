package redis

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// callTime is the maximum duration of a call. A server that takes longer counts as
	// unavailable.
	callTime = time.Second

	// maxReplicas is the maximum of Options.Replicas.
	maxReplicas = 10_000

	// poolSize is the maximum number of connections for single calls. Waiting for a
	// connection costs more than having it: with 16 there were half as many reservations
	// per second. The pool dials only as many as are used.
	poolSize = 64

	// idleTime is how long an unused connection is kept.
	idleTime = 5 * time.Minute
)

// newClientFunc returns a function that creates a client for the URL. Calls may take
// callTime. Each outage ends with a new client, so that no client has connections to two
// servers.
func newClientFunc(raw string, callTime time.Duration) (func() *redis.Client, error) {
	// The library's log is shared by the whole process and has a line for every connection
	// that fails. The Fleet logs what matters.
	logging.Disable()

	u, err := url.Parse(raw)
	if err != nil || u.Host == "" && u.Path == "" {
		// The error of url.Parse is not returned, because it contains the password.
		return nil, errors.New("not a URL (example: redis://redis.example:6379)")
	}
	if u.Query().Has("master_name") {
		o, err := redis.ParseFailoverURL(raw)
		if err != nil {
			return nil, withoutPrefix(err)
		}
		if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
			return nil, errors.New("parameters that select read-only replicas are not supported")
		}
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = callTime, callTime, callTime, callTime
		o.PoolSize, o.ConnMaxIdleTime = poolSize, idleTime
		o.Dialer = boundDialer(&redis.Options{DialTimeout: callTime, TLSConfig: o.TLSConfig})
		return func() *redis.Client {
			fresh := *o
			fresh.OnConnect = new(server).checkSame
			return redis.NewFailoverClient(&fresh)
		}, nil
	}
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, withoutPrefix(err)
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = callTime, callTime, callTime, callTime
	o.PoolSize, o.ConnMaxIdleTime = poolSize, idleTime
	o.Dialer = boundDialer(&redis.Options{DialTimeout: callTime, TLSConfig: o.TLSConfig})
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return func() *redis.Client {
		fresh := *o
		fresh.OnConnect = new(server).checkSame
		return redis.NewClient(&fresh)
	}, nil
}

// withoutPrefix returns an error of go-redis about a URL without the library's prefix. It
// contains no password.
func withoutPrefix(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "redis: ")) }

// A server is the server that a client is connected to.
type server struct {
	// run is the ID of the server's present run; nil if it is unknown.
	run atomic.Pointer[string]
}

// checkSame fails on a connection to another server, or to another run of it, than the
// client's first connection. A server that does not tell its run counts as the same.
// Sentinels, of which there are several, are not checked.
func (s *server) checkSame(ctx context.Context, c *redis.Conn) error {
	info, err := c.InfoMap(ctx, "server").Result()
	if is[redis.Error](err) {
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
