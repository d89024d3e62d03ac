package redis

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed scripts/reserve.lua
	reserveSource string
	//go:embed scripts/undo.lua
	undoSource string
	//go:embed scripts/push.lua
	pushSource string
	//go:embed scripts/renew.lua
	renewSource string
	//go:embed scripts/meet.lua
	meetSource string
	//go:embed scripts/beat.lua
	beatSource string
	//go:embed scripts/leave.lua
	leaveSource string
	//go:embed scripts/save.lua
	saveSource string
	//go:embed scripts/claim.lua
	claimSource string
	//go:embed scripts/release.lua
	releaseSource string
	//go:embed scripts/mend.lua
	mendSource string

	reserveScript = redis.NewScript(reserveSource)
	undoScript    = redis.NewScript(undoSource)
	pushScript    = redis.NewScript(pushSource)
	renewScript   = redis.NewScript(renewSource)
	meetScript    = redis.NewScript(meetSource)
	beatScript    = redis.NewScript(beatSource)
	leaveScript   = redis.NewScript(leaveSource)
	saveScript    = redis.NewScript(saveSource)
	claimScript   = redis.NewScript(claimSource)
	releaseScript = redis.NewScript(releaseSource)
	mendScript    = redis.NewScript(mendSource)
)

// Keys that do not belong to a host. Those of hosts begin with another word.
const (
	epochKey    = keyPrefix + "epoch"
	replicasKey = keyPrefix + "replicas"
	sharesKey   = keyPrefix + "shares"
)

// loadScripts loads the scripts into the server that are called in pipelines, where an
// unknown script would fail.
func loadScripts(ctx context.Context, c *redis.Client) error {
	pipe := c.Pipeline()
	for _, source := range []string{reserveSource, undoSource, pushSource, renewSource, saveSource, releaseSource} {
		pipe.ScriptLoad(ctx, source)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// number returns a number in a script's reply.
func number(reply []any, i int) (int64, bool) {
	if i >= len(reply) {
		return 0, false
	}
	n, ok := reply[i].(int64)
	return n, ok
}

// text returns a string in a script's reply.
func text(reply []any, i int) (string, bool) {
	if i >= len(reply) {
		return "", false
	}
	s, ok := reply[i].(string)
	return s, ok
}
