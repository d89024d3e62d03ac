package redis

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A ProbeResult is the result of [Probe]. Its strings come from the server.
type ProbeResult struct {
	// Server is the server's name and version; empty if they are unknown.
	Server string

	// Policy is the server's maxmemory-policy; empty if it is unknown.
	Policy string

	// Evicts means that the server may evict the time of a host's last request under that policy.
	Evicts bool

	// ClockOffset is the server's clock minus this machine's, accurate to RoundTrip.
	ClockOffset time.Duration

	// RoundTrip is the duration of one call.
	RoundTrip time.Duration
}

// probeScript needs all permissions that replicas need: a script, a key (which it deletes again,
// and for which a full server has no memory), and the server's time.
var probeScript = redis.NewScript(`
redis.call('SET', KEYS[1], '1', 'PX', 1000)
redis.call('DEL', KEYS[1])
return redis.call('TIME')`)

const probeKey = keyPrefix + "look"

// Probe checks whether replicas could share a server. It leaves nothing there and joins no fleet.
// Its error is a [Cause] if the server cannot be shared. An error about the URL contains no
// password.
func Probe(ctx context.Context, url string) (ProbeResult, error) {
	return probeServer(ctx, url, callTime)
}

// probeServer is Probe with another call timeout, for tests.
func probeServer(ctx context.Context, url string, callTime time.Duration) (ProbeResult, error) {
	connect, err := newClientFunc(url, callTime)
	if err != nil {
		return ProbeResult{}, err
	}
	c := connect()
	defer c.Close()
	// The time is for the connection and two replies.
	ctx, cancel := context.WithTimeout(ctx, 3*callTime)
	defer cancel()
	var seen ProbeResult
	info, err := c.InfoMap(ctx).Result()
	if err != nil && (!is[redis.Error](err) || causeOf(err) != Forbidden) {
		return seen, causeOf(err)
	}
	if cause, ok := unusable(info); ok {
		return seen, cause
	}
	seen.Server, seen.Policy = serverName(info["Server"]), info["Memory"]["maxmemory_policy"]
	seen.Evicts = evicts(seen.Policy)
	asked := time.Now()
	now, err := probeScript.Run(ctx, c, []string{probeKey}).Int64Slice()
	seen.RoundTrip = time.Since(asked)
	switch {
	case err != nil:
		return seen, causeOf(err)
	case len(now) != 2:
		return seen, NotRedis
	}
	seen.ClockOffset = time.Unix(now[0], now[1]*1000).Sub(asked.Add(seen.RoundTrip / 2))
	return seen, nil
}

// unusable returns why a server that answers cannot be shared, or nil.
func unusable(info map[string]map[string]string) (Cause, bool) {
	switch {
	case info["Cluster"]["cluster_enabled"] == "1":
		return Cluster, true
	case info["Replication"]["role"] == "slave":
		return ReadOnly, true
	case info["Persistence"]["loading"] == "1":
		return Loading, true
	}
	return 0, false
}

// serverName returns the server's name and version. Valkey reports its version in addition to
// that of the Redis with which it is compatible.
func serverName(info map[string]string) string {
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	if v := info["redis_version"]; v != "" {
		return "Redis " + v
	}
	return ""
}

// evicts reports whether a maxmemory-policy deletes keys that have not expired.
func evicts(policy string) bool {
	return strings.HasPrefix(policy, "allkeys-") || strings.HasPrefix(policy, "volatile-")
}
