package redis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

const (
	// leaseTime is for how long a concurrency slot stays taken if its lease is not renewed.
	leaseTime = 10 * time.Second

	// longest is the longest time that a script is told of.
	longest = 365 * 24 * time.Hour

	// maxName is the longest name of a host or limiter, in bytes, that becomes part of a
	// Redis key as it is. A longer one is cut and gets its hash.
	maxName = 300

	// maxLimiters are as many as a request may go by.
	maxLimiters = 2
)

// A lease is the Lease of a pace.Reservation. It never changes.
type lease struct {
	key    string
	name   string // in the sorted set of leases
	names  [maxLimiters]string
	before [maxLimiters]string // each limiter before the slot
	after  [maxLimiters]string // each limiter after the slot; empty: there is none
}

func paceKey(key string) string   { return keyPrefix + "pace:" + short(key) }
func leasesKey(key string) string { return keyPrefix + "places:" + short(key) }

func limiterKey(key, name string) string {
	key = short(key)
	return keyPrefix + "clock:" + strconv.Itoa(len(key)) + ":" + key + ":" + short(name)
}

func short(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName] + ":" + hex.EncodeToString(sum[:])
}

// Reserve implements [pace.Store]. It calls the server once. If the answer took so much
// longer than usual that the slot has ended already, Reserve asks for a longer one instead.
func (f *Fleet) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	if len(a.Limiters) < 1 || len(a.Limiters) > maxLimiters {
		return pace.Reservation{}, fmt.Errorf("redis: a turn by %d clocks", len(a.Limiters))
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

// reserve asks the server once, for a slot that lasts longer than the caller wants by more
// or by the usual round trip. It returns how long the round trip took.
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

	// If the caller leaves, or has little time, the connection is kept nevertheless.
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
	return f.read(reply, next, asked, replied, window), took, nil
}

// keys returns those of reserve.lua.
func (l *lease) keys(a *pace.SlotRequest) []string {
	keys := []string{paceKey(l.key), leasesKey(l.key), epochKey, paceKey(cmp.Or(a.BackOffKey, a.Key))}
	if len(a.Limiters) > 1 {
		keys = append(keys, limiterKey(l.key, a.Limiters[1].Name))
	}
	return keys
}

// args returns those of reserve.lua, and names the limiters in l.
func (l *lease) args(a *pace.SlotRequest, epoch string, window time.Duration, held *lease, now time.Time) []any {
	args := make([]any, 0, 8+7*maxLimiters)
	args = append(args, epoch, l.name, micros(leaseTime), a.MaxConcurrent, int64(a.MaxWait/time.Microsecond), micros(window))
	args = appendBackOff(args, a.BackOff, now)
	for i, c := range a.Limiters {
		l.names[i] = short(c.Name)
		each := min(1e6/c.PerSecond, float64(longest/time.Microsecond))
		var before, after string
		if held != nil && a.Unused && held.names[i] == l.names[i] {
			before, after = held.before[i], held.after[i]
		}
		args = append(args, l.names[i], each, c.Burst, micros(c.Gap), ago(c.Sent, now), before, after)
	}
	return args
}

// checkReply returns an error unless reserve.lua's reply is complete.
func checkReply(reply []any) error {
	code, ok := number(reply, 0)
	if ok && code < -1 {
		return errEmptied
	}
	_, wait := number(reply, 1)
	_, length := number(reply, 3)
	if !ok || !wait || !length || code == 1 && len(reply) < 6 {
		return errReply
	}
	return nil
}

// read reads a complete reply. A slot begins when the server, at the latest, thinks so, and
// ends when it does at the earliest.
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
	}
	if code != 1 {
		r.Full, r.Wait = code == -1, wait
		f.counts.refused(r.Full)
		return r
	}
	for i := 4; i+1 < len(reply) && (i-4)/2 < maxLimiters; i += 2 {
		next.before[(i-4)/2], _ = text(reply, i)
		next.after[(i-4)/2], _ = text(reply, i+1)
	}
	r.At, r.Lease = replied.Add(wait), next
	if window > 0 {
		r.Until = asked.Add(wait + window)
	}
	f.held.add(next)
	f.counts.reserved.Add(1)
	return r
}

// appendBackOff appends what a script is told of a back-off.
func appendBackOff(args []any, b pace.BackOff, now time.Time) []any {
	if b.Until.IsZero() {
		return append(args, "", 0)
	}
	return append(args, int64(clamp(b.Until.Sub(now))/time.Microsecond), micros(b.Length))
}

// ago returns how long before now t was, in microseconds, or -1 for the zero time.
func ago(t, now time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return int64(clamp(max(0, now.Sub(t))) / time.Microsecond)
}

// micros rounds up.
func micros(d time.Duration) int64 {
	return int64((clamp(d) + time.Microsecond - 1) / time.Microsecond)
}

func clamp(d time.Duration) time.Duration { return min(max(d, -longest), longest) }

// usual is how long a round trip usually takes, with most of those that take longer, as TCP
// estimates it (RFC 6298).
type usual struct {
	mean, spread atomic.Int64 // nanoseconds; a lost update of two at once does no harm
}

func (u *usual) add(d time.Duration) {
	took := float64(d)
	mean, spread := float64(u.mean.Load()), float64(u.spread.Load())
	if mean == 0 {
		mean, spread = took, took/2
	}
	spread += (math.Abs(took-mean) - spread) / 4
	mean += (took - mean) / 8
	u.mean.Store(int64(mean))
	u.spread.Store(int64(spread))
}

func (u *usual) most() time.Duration {
	return min(time.Duration(u.mean.Load()+4*u.spread.Load()), callTime)
}
