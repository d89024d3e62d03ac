package redis

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

const (
	// beatEvery is how often a replica that shares the rate reports that it is present.
	beatEvery = 500 * time.Millisecond

	// probeEvery is how often a replica that is alone tries the server.
	probeEvery = 250 * time.Millisecond

	// pushEvery is how often a replica that returns from an outage pushes what it has sent.
	pushEvery = 100 * time.Millisecond

	// gone is the time after which a silent replica counts as gone.
	gone = 2 * time.Second

	// returnTime is how long a return from an outage takes. Within this time, all replicas
	// that notice at their next beat that the store was emptied have pushed their requests
	// again.
	returnTime = time.Second

	// shareLeft is how long the other replicas leave the share of a replica that has shut
	// down to its successor.
	shareLeft = 10 * time.Minute
)

// maintain is the part of Run that keeps the view up to date.
func (f *Fleet) maintain(ctx context.Context, h Hooks) error {
	p := pusher{fleet: f, clocks: h.Clocks, tell: h.Tell}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		before := f.Standing()
		select {
		case <-ctx.Done():
			f.leave(context.WithoutCancel(ctx))
			h.Recheck()
			return nil
		case <-f.wake:
			h.Recheck()
		case <-timer.C:
		}
		f.closeStale()
		timer.Reset(f.step(ctx, &p))
		f.enrol(ctx, h.Self)
		if f.Standing() != before {
			h.Recheck()
		}
	}
}

// step does the next step in the present state. It returns when it must be called again.
func (f *Fleet) step(ctx context.Context, p *pusher) time.Duration {
	v := f.view.Load()
	switch {
	case !v.StoreAway:
		f.beat(ctx, v, false)
		return beatEvery
	case v.returnsSince.IsZero():
		p.pushed = time.Time{}
		if !f.probe(ctx, v) {
			return probeEvery
		}
		return 0
	}
	// Requests that are sent during a push are part of the next push. Sharing can begin
	// only when the last push was short.
	began := time.Now()
	p.tellUses(ctx)
	if p.push(ctx, v.epoch) && time.Since(began) < returnTime && time.Since(v.returnsSince) >= returnTime && f.beat(ctx, v, true) {
		p.push(ctx, v.epoch)
		p.tellUses(ctx)
		f.reports.renew()
		return beatEvery
	}
	return pushEvery
}

// probe checks whether the server answers, and begins the return. If this replica has
// never joined and others already share the store, the return takes no time.
func (f *Fleet) probe(ctx context.Context, v *view) bool {
	var epoch string
	var shared bool
	err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		if err := loadScripts(ctx, c); err != nil {
			return err
		}
		reply, err := meetScript.Run(ctx, c, []string{epochKey, replicasKey}, rand.Text()).Slice()
		if err != nil {
			return err
		}
		var ok bool
		if epoch, ok = element[string](reply, 0); !ok {
			return errReply
		}
		n, _ := element[int64](reply, 1)
		shared = n == 1
		return nil
	})
	if err != nil {
		return false
	}
	f.warnOfEviction(ctx)
	next := *v
	next.epoch, next.returnsSince = epoch, time.Now()
	if next.returnsSince.Sub(v.quietSince) >= quietEvery {
		// Another replica may share the pace again before this one.
		next.quietSince, next.Turns.Quiet = next.returnsSince, next.returnsSince.Add(2*returnTime)
	}
	if v.cause == Starting && shared {
		next.returnsSince = next.returnsSince.Add(-returnTime)
	}
	return f.replaceView(v, &next)
}

// beat reports to the server that this replica is present, and counts the others. With
// join, this replica shares the rate from now on.
func (f *Fleet) beat(ctx context.Context, v *view, join bool) bool {
	next := *v
	isNew := 0
	if join && v.replicas == 0 {
		isNew = 1
	}
	err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		reply, err := beatScript.Run(ctx, c, []string{epochKey, replicasKey, sharesKey},
			v.epoch, f.id, gone.Milliseconds(), shareLeft.Milliseconds(), isNew).Slice()
		if err != nil {
			return err
		}
		replicas, ok := element[int64](reply, 0)
		if ok && replicas < 0 {
			return errEmptied
		}
		shares, also := element[int64](reply, 1)
		if !ok || !also {
			return errReply
		}
		next.replicas, next.freeShares = int(replicas), int(shares)
		return nil
	})
	if err != nil {
		return false
	}
	next.Standing = pace.Standing{Slowdown: max(1, float64(f.replicas)/float64(max(1, next.replicas+next.freeShares)))}
	if join {
		next.returnsSince, next.since = time.Time{}, time.Now()
	}
	return f.replaceView(v, &next)
}

// leave leaves this replica's share to its successor and makes this replica alone.
func (f *Fleet) leave(ctx context.Context) {
	if !f.Standing().StoreAway {
		// This is the last call: if it fails, the share expires sooner.
		_ = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
			return leaveScript.Run(ctx, c, []string{replicasKey, sharesKey}, f.id, shareLeft.Milliseconds(), f.replicas).Err()
		})
	}
	f.fail(f.client.Load(), Ended)
	f.closeStale()
}

// warnOfEviction logs a warning if the server may evict keys. All keys but one have an
// expiry, so every policy except noeviction affects them.
func (f *Fleet) warnOfEviction(ctx context.Context) {
	var policy string
	err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "memory").Result()
		if is[redis.Error](err) {
			return nil
		}
		policy = info["Memory"]["maxmemory_policy"]
		return err
	})
	if err == nil && evicts(policy) {
		f.log.Warn("store may evict the times of requests, set its maxmemory-policy to noeviction", "policy", policy)
	}
}

// A pusher reports to the store which requests this replica has sent without a slot of
// the store.
type pusher struct {
	fleet  *Fleet
	clocks func(now, since time.Time) []pace.Clock

	// tell is Hooks.Tell.
	tell func(ctx context.Context)

	// pushed is the time up to which everything is pushed; zero if nothing is.
	pushed time.Time
}

// tellUses tells what was used of quotas and budgets, so that the others know of it before this replica shares them again.
func (p *pusher) tellUses(ctx context.Context) {
	if p.tell != nil {
		p.tell(ctx)
	}
}

// push pushes what has changed since the last push, and reports whether all of it was
// pushed.
func (p *pusher) push(ctx context.Context, epoch string) bool {
	now := time.Now()
	for some := range slices.Chunk(p.clocks(now, p.pushed), batch) {
		keys, args := pushArgs(some, epoch, time.Now())
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
	}
	p.pushed = now
	return true
}

// pushArgs returns the keys and arguments of push.lua.
func pushArgs(clocks []pace.Clock, epoch string, now time.Time) ([]string, []any) {
	keys := []string{epochKey}
	args := []any{epoch}
	for i := range clocks {
		c := &clocks[i]
		keys = append(keys, paceKey(c.Key))
		args = appendBackOff(args, pace.BackOff{Until: c.BackOffUntil, Length: c.BackOffLength}, now)
		args = append(args, micros(max(0, c.Gap)), ago(c.Sent, now), ago(c.AssetsSent, now))
	}
	return keys, args
}
