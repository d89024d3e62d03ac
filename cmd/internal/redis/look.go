package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Sight is what [Look] has seen of a server. Its strings are the server's own words.
type Sight struct {
	Server    string        // its name and version; "": it does not tell
	Policy    string        // its maxmemory-policy; "": it does not tell
	Forgets   bool          // by that it may forget when a host was last sent a request
	Ahead     time.Duration // its clock is, of this machine's, give or take RoundTrip
	RoundTrip time.Duration
}

// lookScript is no more than what has to be permitted: a script, a key that it takes away
// again, which a full server has no room for, and the server's time.
var lookScript = redis.NewScript(`
redis.call('SET', KEYS[1], '1', 'PX', 1000)
redis.call('DEL', KEYS[1])
return redis.call('TIME')`)

const lookKey = keyPrefix + "look"

// Look asks a server whether replicas could share it. It leaves nothing there, and joins
// nobody. The error of a server that could not be shared is its [Cause]; one of the URL
// names no password.
func Look(ctx context.Context, url string) (Sight, error) { return look(ctx, url, callTime) }

// look is Look with another time than the usual, for tests.
func look(ctx context.Context, url string, callTime time.Duration) (Sight, error) {
	connect, err := dialler(url, callTime)
	if err != nil {
		return Sight{}, err
	}
	c := connect()
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*callTime) // to connect, and to answer twice
	defer cancel()
	var seen Sight
	info, err := c.InfoMap(ctx).Result()
	if _, refused := errors.AsType[redis.Error](err); err != nil && (!refused || causeOf(err) != Forbidden) {
		return seen, causeOf(err)
	}
	if cause, ok := unfit(info); ok {
		return seen, cause
	}
	seen.Server, seen.Policy = named(info["Server"]), info["Memory"]["maxmemory_policy"]
	seen.Forgets = forgets(seen.Policy)
	asked := time.Now()
	now, err := lookScript.Run(ctx, c, []string{lookKey}).Int64Slice()
	seen.RoundTrip = time.Since(asked)
	switch {
	case err != nil:
		return seen, causeOf(err)
	case len(now) != 2:
		return seen, Strange
	}
	seen.Ahead = time.Unix(now[0], now[1]*1000).Sub(asked.Add(seen.RoundTrip / 2))
	return seen, nil
}

// unfit says why a server cannot be shared that answers, if it cannot.
func unfit(info map[string]map[string]string) (Cause, bool) {
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

// named is what a server calls itself: Valkey tells its version beside that of the
// Redis that it stands for.
func named(info map[string]string) string {
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	if v := info["redis_version"]; v != "" {
		return "Redis " + v
	}
	return ""
}

// forgets says of a maxmemory-policy whether it takes keys away that have not ended.
func forgets(policy string) bool {
	return strings.HasPrefix(policy, "allkeys-") || strings.HasPrefix(policy, "volatile-")
}
