package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/redis"
)

// farAhead is how far the store's clock may be from this machine's: pauses that sites
// ask for are kept by both.
const farAhead = 5 * time.Second

// checkStore looks whether the store that replicas share can be reached, and is one to
// be relied on. Nothing is left there.
func (d *doctor) checkStore(ctx context.Context) cli.Diagnosis {
	store := d.cfg.Store
	switch {
	case d.apart:
		return cli.Skip("%s", elsewhere)
	case store.Redis == "":
		return cli.Skip("store.redis is not set: this proxy is on its own")
	}
	seen, err := redis.Look(ctx, store.Redis)
	if err != nil {
		return cli.Fail(mendStore(err)+"; until then each replica paces alone, at its part of the pace", "the replicas' store is away: %v", err)
	}
	is := fmt.Sprintf("%s answers in %s", orUnknown(seen.Server), seen.RoundTrip.Round(10*time.Microsecond))
	switch {
	case seen.Forgets:
		return cli.Warn("set its maxmemory-policy to noeviction", "%s, but may forget when a site was last sent a request: its maxmemory-policy is %s", is, seen.Policy)
	case seen.Ahead.Abs() > max(farAhead, seen.RoundTrip):
		return cli.Warn("set one of the two clocks: pauses that sites ask for end by both", "%s; its clock is %s apart from this machine's", is, seen.Ahead.Abs().Round(time.Second))
	case store.Replicas == 1:
		return cli.Warn("set store.replicas to as many replicas as there may be", "%s; store.replicas is 1, so that of several replicas each that starts while it is away paces as if there were no other", is)
	case seen.Policy == "":
		return cli.Fine("%s; whether it may forget anything it does not tell", is)
	}
	return cli.Fine("%s", is)
}

// mendStore says what is to be done about what Look has found.
func mendStore(err error) string {
	cause, _ := errors.AsType[redis.Cause](err)
	switch cause {
	case redis.Refused, redis.NoAddress:
		return "start the server, or set its host and port in store.redis"
	case redis.TimedOut, redis.CutOff, redis.Untrusted:
		return "see to the server in store.redis, and name it rediss:// if it speaks TLS, redis:// if it speaks no TLS"
	case redis.Password:
		return "set its password in store.redis (%40 stands for @ there, %2F for / and so on)"
	case redis.Forbidden:
		return "let its user have the keys and the commands: ACL SETUSER … ~robotsproxy:* +@all"
	case redis.Full:
		return "raise its maxmemory"
	case redis.NoDatabase:
		return "name one of its databases behind the host in store.redis, 0 for the first"
	case redis.Strange:
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
