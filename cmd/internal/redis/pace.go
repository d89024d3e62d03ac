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
	if v.Alone {
		return pace.Reservation{}, 0, errAway
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
		window = (max(a.Window, time.Microsecond) + max(more, f.counts.usual())).Truncate(time.Microsecond)
	}

	// The call does not end with the caller's context, which would cost the connection.
	asked := time.Now()
	var reply []any
	err := f.do(context.WithoutCancel(ctx), func(ctx context.Context, c *redis.Client) error {
		var err error
		reply, err = reserveScript.Run(ctx, c, next.keys(a), next.args(a, v.epoch, window, held, asked)...).Slice()
		if err == nil {
			err = checkReply(reply)
		}
		return err
	})
	if err != nil {
		return pace.Reservation{}, 0, err
	}
	replied := time.Now()
	took := replied.Sub(asked)
	f.counts.roundTrip(took)
	r := f.read(reply, next, asked, replied, window)
	if fetch := next.fetchOf(a); fetch != nil && next.before[0] == fetch.before[0] {
		// Without this slot, that of the fetch counts.
		next.before[0] = fetch.after[0]
	}
	return r, took, nil
}

// checkReply returns an error unless reserve.lua's reply is complete.
func checkReply(reply []any) error {
	code, ok := number(reply, 0)
	if ok && code < -1 {
		return errEmptied
	}
	_, wait := number(reply, 1)
	_, length := number(reply, 3)
	if !ok || !wait || !length || code == 1 && len(reply) < 7 {
		return errReply
	}
	return nil
}

// read reads a complete reply. A slot begins at the latest, and ends at the earliest, time
// that the server can mean.
func (f *Fleet) read(reply []any, next *lease, asked, replied time.Time, window time.Duration) pace.Reservation {
	code, _ := number(reply, 0)
	micro, _ := number(reply, 1)
	length, _ := number(reply, 3)
	wait := time.Duration(micro) * time.Microsecond
	var r pace.Reservation
	if left, ok := number(reply, 2); ok {
		r.BackOff = pace.BackOff{
			Until:  asked.Add(time.Duration(left) * time.Microsecond),
			Length: time.Duration(length) * time.Microsecond,
		}
		r.BackOff.By, _ = text(reply, 4)
	}
	if code != 1 {
		r.Full, r.Wait = code == -1, wait
		f.counts.refused(r.Full)
		return r
	}
	for i := 5; i+1 < len(reply) && (i-5)/2 < maxLimiters; i += 2 {
		next.before[(i-5)/2], _ = text(reply, i)
		next.after[(i-5)/2], _ = text(reply, i+1)
	}
	r.At, r.Lease = replied.Add(wait), next
	if window > 0 {
		r.Until = asked.Add(wait + window)
	}
	f.held.add(next)
	f.counts.reserved.Add(1)
	return r
}
