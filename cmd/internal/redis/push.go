package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

// A pusher tells the store what this replica has sent without a turn of it.
type pusher struct {
	fleet  *Fleet
	clocks func(now, since time.Time) []pace.Clock
	pushed time.Time // up to when all is told; zero: nothing is
}

// push tells what has changed since it was called last, and says whether that is
// done.
func (p *pusher) push(ctx context.Context, epoch string) bool {
	now := time.Now()
	clocks := p.clocks(now, p.pushed)
	for len(clocks) > 0 {
		n := min(batch, len(clocks))
		keys, args := pushArgs(clocks[:n], epoch, time.Now())
		err := p.fleet.do(ctx, func(ctx context.Context, c *redis.Client) error {
			code, err := pushScript.Run(ctx, c, keys, args...).Int()
			if err == nil && code < 0 {
				err = errEmptied
			}
			return err
		})
		if err != nil {
			return false
		}
		clocks = clocks[n:]
	}
	p.pushed = now
	return true
}

// pushArgs are the keys and arguments of push.lua.
func pushArgs(clocks []pace.Clock, epoch string, now time.Time) ([]string, []any) {
	keys := []string{epochKey}
	args := []any{epoch}
	for i := range clocks {
		c := &clocks[i]
		keys = append(keys, paceKey(c.Key))
		args = appendPause(args, pace.BackOff{Until: c.BackOffUntil, Length: c.BackOffLength}, now)
		args = append(args, micros(max(0, c.Gap)), ago(c.Sent, now), ago(c.AssetsSent, now))
	}
	return keys, args
}
