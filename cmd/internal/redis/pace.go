package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

// Reserve implements [pace.Store]. It calls the server once. If the reply takes so long
// that the slot has already ended, Reserve asks again for a longer slot.
func (f *Fleet) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	if len(a.Limiters) < 1 || len(a.Limiters) > maxLimiters {
		return pace.Reservation{}, fmt.Errorf("redis: a slot request with %d limiters", len(a.Limiters))
	}
	if ctx.Err() != nil {
		return pace.Reservation{}, context.Cause(ctx)
	}
	r, took, err := f.reserve(ctx, &a, 0)
	for err == nil && !r.Until.IsZero() && !r.Until.After(r.At) {
		given := r.Lease
		a.Lease, a.Unused = given, true
		r, took, err = f.reserve(ctx, &a, 2*took)
		if r.Lease == nil {
			f.Report(pace.Report{Key: a.Key, Lease: given, Unused: err != nil})
		}
	}
	if err == nil && ctx.Err() != nil {
		if r.Lease != nil {
			f.Report(pace.Report{Key: a.Key, Lease: r.Lease, Unused: true})
		}
		return pace.Reservation{}, context.Cause(ctx)
	}
	return r, err
}

// reserve asks the server once for a slot. The slot is longer than requested by more, or
// by the usual round trip. reserve returns how long the round trip took.
func (f *Fleet) reserve(ctx context.Context, a *pace.SlotRequest, more time.Duration) (pace.Reservation, time.Duration, error) {
	v := f.view.Load()
	if v.StoreAway {
		return pace.Reservation{}, 0, errAlone
	}
	next := &lease{key: a.Key}
	held, _ := a.Lease.(*lease)
	if held != nil {
		next.name = held.name
	} else {
		next.name = f.held.newName(f.id)
	}
	window := time.Duration(0)
	if a.Window > 0 {
		window = (max(a.Window, time.Microsecond) + max(more, f.counts.usually.most())).Truncate(time.Microsecond)
	}

	// The call does not end with the caller's context, which would cost the connection.
	asked := time.Now()
	var took time.Duration
	var r pace.Reservation
	err := f.do(context.WithoutCancel(ctx), func(ctx context.Context, c *redis.Client) error {
		reply, err := reserveScript.Run(ctx, c, next.keys(a), next.args(a, v.epoch, window, held, asked)...).Slice()
		if err == nil {
			took = time.Since(asked)
			r, err = next.read(reply, asked, took, window)
		}
		return err
	})
	if err != nil {
		return pace.Reservation{}, 0, err
	}
	f.counts.roundTrip(took)
	switch {
	case !r.At.IsZero():
		f.held.all.Store(next.name, next.key)
		f.counts.reserved.Add(1)
	case r.Full:
		f.counts.full.Add(1)
	default:
		f.counts.late.Add(1)
	}
	if fetch := next.fetchOf(a); fetch != nil && next.before[0] == fetch.before[0] {
		// Without this slot, that of the fetch counts.
		next.before[0] = fetch.after[0]
	}
	return r, took, nil
}

// read reads the reply of reserve.lua, which took some time. A slot begins at the latest, and ends at the earliest, time
// that the server can mean. The lease of the slot becomes that of the Reservation.
func (l *lease) read(reply []any, asked time.Time, took, window time.Duration) (r pace.Reservation, err error) {
	code, ok := element[int64](reply, 0)
	if ok && code < -1 {
		return r, errEmptied
	}
	micro, hasWait := element[int64](reply, 1)
	length, hasLength := element[int64](reply, 3)
	if !ok || !hasWait || !hasLength || code == 1 && len(reply) < 7 {
		return r, errReply
	}
	wait := time.Duration(micro) * time.Microsecond
	if left, ok := element[int64](reply, 2); ok {
		r.BackOff = pace.BackOff{
			Until:  asked.Add(time.Duration(left) * time.Microsecond),
			Length: time.Duration(length) * time.Microsecond,
		}
		r.BackOff.By, _ = element[string](reply, 4)
	}
	if code != 1 {
		r.Full, r.Wait = code == -1, wait
		return r, nil
	}
	for i := range l.before {
		l.before[i], _ = element[string](reply, 5+2*i)
		l.after[i], _ = element[string](reply, 6+2*i)
	}
	r.At, r.Lease = asked.Add(took+wait), l
	if window > 0 {
		r.Until = asked.Add(wait + window)
	}
	return r, nil
}
