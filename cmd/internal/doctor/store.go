package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/redis"
)

// maxStoreSkew is the accepted difference between the store's clock and this machine's: both keep
// the back-off pauses of hosts.
const maxStoreSkew = 5 * time.Second

// checkStore checks whether the store that replicas share can be reached and is reliable. It leaves
// nothing there.
func checkStore(ctx context.Context, d *doctor) cli.Diagnosis {
	store := d.cfg.Store
	switch {
	case d.remote:
		return cli.Skip("%s", elsewhere)
	case store.Redis == "":
		return cli.Skip("store.redis is not set: this proxy is on its own")
	}
	seen, err := redis.Probe(ctx, store.Redis)
	if err != nil {
		return cli.Fail(storeHint(err)+"; until then each replica paces alone, at its part of the pace", "the replicas' store is away: %v", err)
	}
	is := fmt.Sprintf("%s answers in %s", orUnknown(seen.Server), seen.RoundTrip.Round(10*time.Microsecond))
	switch {
	case seen.Evicts:
		return cli.Warn("set its maxmemory-policy to noeviction", "%s, but may forget when a site was last sent a request: its maxmemory-policy is %s", is, seen.Policy)
	case seen.ClockOffset.Abs() > max(maxStoreSkew, seen.RoundTrip):
		return cli.Warn("set one of the two clocks: pauses that sites ask for end by both", "%s; its clock is %s apart from this machine's", is, seen.ClockOffset.Abs().Round(time.Second))
	case store.Replicas == 1:
		return cli.Warn("set store.replicas to as many replicas as there may be", "%s; store.replicas is 1, so that of several replicas each that starts while it is away paces as if there were no other", is)
	case seen.Policy == "":
		return cli.OK("%s; whether it may forget anything it does not tell", is)
	}
	return cli.OK("%s", is)
}

// storeHint returns what to do about an error of redis.Look.
func storeHint(err error) string {
	cause, _ := errors.AsType[redis.Cause](err)
	switch cause {
	case redis.Refused, redis.NoAddress:
		return "start the server, or set its host and port in store.redis"
	case redis.TimedOut, redis.Disconnected, redis.Untrusted:
		return "see to the server in store.redis, and name it rediss:// if it speaks TLS, redis:// if it speaks no TLS"
	case redis.Password:
		return "set its password in store.redis (%40 stands for @ there, %2F for / and so on)"
	case redis.Forbidden:
		return "let its user have the keys and the commands: ACL SETUSER … ~robotsproxy:* +@all"
	case redis.Full:
		return "raise its maxmemory"
	case redis.NoDatabase:
		return "name one of its databases behind the host in store.redis, 0 for the first"
	case redis.NotRedis:
		return "set the host and port of a Redis or Valkey server in store.redis"
	}
	return "see to the server in store.redis"
}

func orUnknown(server string) string {
	if server == "" {
		return "a server that does not name itself"
	}
	return server
}
