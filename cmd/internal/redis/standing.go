package redis

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

const (
	beatEvery  = 500 * time.Millisecond // while shared
	probeEvery = 250 * time.Millisecond // while alone
	pushEvery  = 100 * time.Millisecond // while returning

	// gone is when a replica that has not been heard of counts as gone.
	gone = 2 * time.Second

	// returnTime is for how long a replica returns: within it, all who notice at their
	// next beat that the store has lost what it knew have told it again.
	returnTime = time.Second

	// shareLeft is for how long the others leave a replica's share to the next one.
	shareLeft = 10 * time.Minute
)

// A view is how this replica stands among the others. It never changes.
type view struct {
	pace.Standing
	cause Cause     // of being alone, or of the last time
	since time.Time // of Alone, or its end
	epoch string    // of the store; empty: not known
	began time.Time // of returning; zero: it does not
	there int       // replicas, and this one, that were last seen
	left  int       // shares that others have left behind
}

func alone(times int, c Cause, now time.Time) *view {
	return &view{Standing: pace.Standing{Alone: true, Slowdown: float64(times), Since: now}, cause: c, since: now}
}

// Standing is [pace.Store]'s.
func (f *Fleet) Standing() pace.Standing { return f.view.Load().Standing }

// fail makes this replica alone, since a call of c has failed. c is not used again.
func (f *Fleet) fail(c *redis.Client, cause Cause) {
	f.counts.failures[cause].Add(1)
	if next := f.failed(c, cause); next != nil {
		f.log.Warn("the store is away: this replica paces alone", "cause", cause.String(), "times_slower", next.Slowdown)
	}
}

// failed is fail, and gives what is to be logged; nil: it is known, or c is of before.
func (f *Fleet) failed(c *redis.Client, cause Cause) (news *view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client.Load() != c {
		return nil
	}
	old := f.view.Load()
	now := time.Now()
	if old.Alone {
		now = old.since
	}
	next := alone(max(f.replicas, old.there), cause, now)
	next.there = old.there
	if !old.Alone && cause != Ended {
		f.counts.outages.Add(1)
	}
	f.view.Store(next)
	if !f.over {
		f.stale = append(f.stale, c)
		f.client.Store(f.connect())
	}
	if !old.Alone {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	if cause == Ended || f.told[cause] {
		return nil
	}
	f.told[cause] = true
	return next
}

// closeStale closes the clients that have failed, with what is under way on them.
func (f *Fleet) closeStale() {
	f.mu.Lock()
	stale := f.stale
	f.stale = nil
	f.mu.Unlock()
	for _, c := range stale {
		c.Close()
	}
}

// become puts next in the place of the view that it was made from, unless that is
// past already.
func (f *Fleet) become(old, next *view) bool {
	f.mu.Lock()
	is := f.view.Load() == old
	joins := is && old.Alone && !next.Alone
	if is {
		f.view.Store(next)
	}
	if joins {
		clear(f.told)
	}
	f.mu.Unlock()
	if is && !next.Alone {
		f.tellOthers(old, next)
	}
	return is
}

// tellOthers logs with how many others this replica shares now, where that is not as it
// was logged before.
func (f *Fleet) tellOthers(old, next *view) {
	seen := []any{"replicas", next.there, "expected", f.replicas, "times_slower", next.Slowdown}
	switch {
	case old.Alone:
		f.log.Info("the store is there: this replica shares its pace with the others", seen...)
	case next.there != old.there || next.Slowdown != old.Slowdown:
		f.log.Info("the number of replicas that share the pace has changed", seen...)
	}
	if next.there > max(old.there, f.replicas) {
		f.log.Warn("more replicas share the pace than store.replicas says: set it to as many as there may be, those of run among them", seen[:4]...)
	}
}

// keepUp is the part of Run that finds out how this replica stands.
func (f *Fleet) keepUp(ctx context.Context, h Hooks) error {
	p := pusher{fleet: f, clocks: h.Clocks}
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
		if f.Standing() != before {
			h.Recheck()
		}
	}
}

// step does what is next in the present state, and says when to come again.
func (f *Fleet) step(ctx context.Context, p *pusher) time.Duration {
	v := f.view.Load()
	switch {
	case !v.Alone:
		f.beat(ctx, v, false)
		return beatEvery
	case v.began.IsZero():
		p.pushed = time.Time{}
		if !f.probe(ctx, v) {
			return probeEvery
		}
		return 0
	}
	// What is sent while all is pushed is pushed then; before the last push is short, it
	// is too early to share.
	began := time.Now()
	if p.push(ctx, v.epoch) && time.Since(began) < returnTime && time.Since(v.began) >= returnTime && f.beat(ctx, v, true) {
		p.push(ctx, v.epoch)
		f.reports.renew()
		return beatEvery
	}
	return pushEvery
}

// probe asks whether the server is there, and begins to return. Where this replica was
// never there and others share the store already, that takes no time.
func (f *Fleet) probe(ctx context.Context, v *view) bool {
	var epoch string
	var shared bool
	err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		if err := loadScripts(ctx, c); err != nil {
			return err
		}
		reply, err := meetScript.Run(ctx, c, []string{epochKey, thereKey}, rand.Text()).Slice()
		if err != nil {
			return err
		}
		var ok bool
		if epoch, ok = text(reply, 0); !ok {
			return errReply
		}
		n, _ := number(reply, 1)
		shared = n == 1
		return nil
	})
	if err != nil {
		return false
	}
	f.warnOfEviction(ctx)
	next := *v
	next.epoch, next.began = epoch, time.Now()
	if v.cause == Starting && shared {
		next.began = next.began.Add(-returnTime)
	}
	return f.become(v, &next)
}

// beat says that this replica is there, and learns of the others. With join it is
// among them from now on.
func (f *Fleet) beat(ctx context.Context, v *view, join bool) bool {
	next := *v
	isNew := 0
	if join && v.there == 0 {
		isNew = 1
	}
	err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		reply, err := beatScript.Run(ctx, c, []string{epochKey, thereKey, leftKey},
			v.epoch, f.id, gone.Milliseconds(), shareLeft.Milliseconds(), isNew).Slice()
		if err != nil {
			return err
		}
		there, ok := number(reply, 0)
		if ok && there < 0 {
			return errEmptied
		}
		left, also := number(reply, 1)
		if !ok || !also {
			return errReply
		}
		next.there, next.left = int(there), int(left)
		return nil
	})
	if err != nil {
		return false
	}
	next.Standing = pace.Standing{Slowdown: max(1, float64(f.replicas)/float64(max(1, next.there+next.left)))}
	if join {
		next.began, next.since = time.Time{}, time.Now()
	}
	return f.become(v, &next)
}

// leave leaves this replica's share to the next one, and makes it alone.
func (f *Fleet) leave(ctx context.Context) {
	v := f.view.Load()
	if !v.Alone {
		// It is the last call: that it fails means that the share is gone sooner.
		_ = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
			return leaveScript.Run(ctx, c, []string{thereKey, leftKey}, f.id, shareLeft.Milliseconds(), f.replicas).Err()
		})
	}
	f.fail(f.client.Load(), Ended)
	f.closeStale()
}

// warnOfEviction says where the server may forget what it was told: all keys but one
// end by themselves, so any policy but noeviction concerns them.
func (f *Fleet) warnOfEviction(ctx context.Context) {
	var policy string
	err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "memory").Result()
		if _, refused := err.(redis.Error); refused {
			return nil
		}
		policy = info["Memory"]["maxmemory_policy"]
		return err
	})
	if err == nil && forgets(policy) {
		f.log.Warn("the store's maxmemory-policy lets it forget when a host was last sent a request: set it to noeviction", "policy", policy)
	}
}
