package redis

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// keyTypes are the types of the keys that begin like this. Other keys are strings.
var keyTypes = map[string]string{
	replicasKey: "zset", sharesKey: "zset", leasesPrefix: "zset", pacePrefix: "hash",
	meterPrefix: "hash", rosterKey: "hash", numbersKey: "hash",
	stopsKey: "hash", stopNewsKey: "zset", stopEndsKey: "zset",
	robotsKeys.news: "stream", tdmrepKeys.news: "stream", checkpointsKey: "stream",
}

func keyType(key string) string {
	for prefix, kind := range keyTypes {
		if strings.HasPrefix(key, prefix) {
			return kind
		}
	}
	return "string"
}

// maxMends bounds how often a command is repeated: somebody may replace another key meanwhile.
const maxMends = 3

// A mender is a hook of a client. If a command fails because somebody has replaced a key of the proxy
// by one of another type, it deletes the key and repeats the command. All commands may be repeated.
type mender struct {
	client *redis.Client
	log    *slog.Logger

	// logged is shared by all clients.
	logged *sync.Once
}

// DialHook implements [redis.Hook].
func (m *mender) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (m *mender) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		cmd.SetErr(next(ctx, cmd))
		for range maxMends {
			if !m.mend(ctx, cmd) {
				break
			}
			cmd.SetErr(next(ctx, cmd))
		}
		return cmd.Err()
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (m *mender) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for range maxMends {
			if !m.mend(ctx, cmds...) {
				break
			}
			err = next(ctx, cmds)
		}
		return err
	}
}

// mend deletes the keys of the wrong type of commands that have failed because of them. It reports
// whether the commands must be repeated; they then have no error.
func (m *mender) mend(ctx context.Context, cmds ...redis.Cmder) bool {
	var keys []string
	var types []any
	for _, cmd := range cmds {
		if !redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE") {
			continue
		}
		for _, arg := range cmd.Args() {
			if key, ok := arg.(string); ok && strings.HasPrefix(key, keyPrefix) {
				keys, types = append(keys, key), append(types, keyType(key))
			}
		}
	}
	if len(keys) == 0 {
		return false
	}
	deleted, err := mendScript.Run(ctx, m.client, keys, types...).StringSlice()
	if err != nil {
		return false
	}
	// If no key was deleted, another replica was faster.
	if len(deleted) > 0 {
		m.logged.Do(func() {
			m.log.Warn("store key of the wrong type deleted, further ones are not logged", "key", deleted[0])
		})
	}
	for _, cmd := range cmds {
		cmd.SetErr(nil)
	}
	return true
}
