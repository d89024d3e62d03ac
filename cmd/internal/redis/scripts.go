package redis

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts
var scriptFiles embed.FS

var (
	reserveScript = redis.NewScript(source("reserve"))
	undoScript    = redis.NewScript(source("undo"))
	pushScript    = redis.NewScript(source("push"))
	renewScript   = redis.NewScript(source("renew"))
	meetScript    = redis.NewScript(source("meet"))
	beatScript    = redis.NewScript(source("beat"))
	leaveScript   = redis.NewScript(source("leave"))
	saveScript    = redis.NewScript(source("save"))
	claimScript   = redis.NewScript(source("claim"))
	releaseScript = redis.NewScript(source("release"))
	endScript     = redis.NewScript(source("end"))
	mendScript    = redis.NewScript(source("mend"))
	rosterScript  = redis.NewScript(source("roster"))
	takeScript    = redis.NewScript(source("take"))
	stopScript    = redis.NewScript(source("stop"))
)

// source returns the source of a script.
func source(name string) string {
	lua, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(lua)
}

// keyPrefix is the beginning of each key.
const keyPrefix = "robotsproxy:"

// Keys that do not belong to a host. Those of hosts begin with another word.
const (
	epochKey    = keyPrefix + "epoch"
	replicasKey = keyPrefix + "replicas"
	sharesKey   = keyPrefix + "shares"
)

// loadScripts loads the scripts into the server that are called in pipelines, where an
// unknown script would fail.
func loadScripts(ctx context.Context, c *redis.Client) error {
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range []string{"reserve", "undo", "push", "renew", "end", "save", "release", "stop"} {
			p.ScriptLoad(ctx, source(name))
		}
		return nil
	})
	return err
}

// pipeline sends the commands that queue adds in one round trip. After SCRIPT FLUSH, the server must be given the
// scripts again. The commands are then sent twice, which must do no harm.
func pipeline(ctx context.Context, c *redis.Client, queue func(redis.Pipeliner)) error {
	send := func() error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			queue(p)
			return nil
		})
		return err
	}
	err := send()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = loadScripts(ctx, c); err == nil {
			err = send()
		}
	}
	return err
}

// element returns an element of a script's reply. It returns false if there is none of this type.
func element[T int64 | string](reply []any, i int) (value T, ok bool) {
	if i < len(reply) {
		value, ok = reply[i].(T)
	}
	return value, ok
}
