package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/redis"
)

// maxStoreSkew is the accepted difference between the store's clock and this machine's: both keep the back-off pauses of hosts.
const maxStoreSkew = 5 * time.Second

// checkStore checks whether the store that replicas share can be reached and is reliable. It leaves nothing there.
func checkStore(ctx context.Context, d *doctor) cli.Diagnosis {
	store := d.cfg.Store
	if store.Redis == "" {
		return cli.Skip("not used: store.redis is not set")
	}
	seen, err := redis.Probe(ctx, store.Redis)
	if err != nil {
		return cli.Fail(storeHint(err)+"; until then each replica paces alone, at its share of the rate",
			"the shared store is unavailable: %v", err)
	}
	is := fmt.Sprintf("%s answers in %s", cmp.Or(seen.Server, "an unknown server"), seen.RoundTrip.Round(10*time.Microsecond))
	switch {
	case seen.Evicts:
		return cli.Warn("set its maxmemory-policy to noeviction",
			"%s, but may delete the times of the last requests to hosts: its maxmemory-policy is %s", is, seen.Policy)
	case seen.ClockOffset.Abs() > max(maxStoreSkew, seen.RoundTrip):
		return cli.Warn("correct the clock that is wrong: both determine when a back-off ends",
			"%s; its clock differs by %s from this machine's", is, seen.ClockOffset.Abs().Round(time.Second))
	case store.Replicas == 1:
		return cli.Warn("set store.replicas to the maximum number of replicas",
			"%s; store.replicas is 1, so a replica that starts while the store is unavailable paces as if it were alone", is)
	case seen.Policy == "":
		return cli.OK("%s; its maxmemory-policy is unknown", is)
	}
	return cli.OK("%s", is)
}

// storeHint returns what to do about an error of redis.Probe.
func storeHint(err error) string {
	cause, _ := errors.AsType[redis.Cause](err)
	switch cause {
	case redis.Refused, redis.NoAddress:
		return "start the server, or set its host and port in store.redis"
	case redis.TimedOut, redis.Disconnected, redis.Untrusted:
		return "check the server in store.redis; use rediss:// if it speaks TLS, otherwise redis://"
	case redis.Password:
		return "set its password in store.redis (write %40 for @ and %2F for /)"
	case redis.Forbidden:
		return "permit its user the keys and the commands: ACL SETUSER … ~robotsproxy:* +@all"
	case redis.Full:
		return "raise its maxmemory"
	case redis.NoDatabase:
		return "name one of its databases after the host in store.redis; the first is 0"
	case redis.NotRedis:
		return "set the host and port of a Redis or Valkey server in store.redis"
	}
	return "check the server in store.redis"
}
