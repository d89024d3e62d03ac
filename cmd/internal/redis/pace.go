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
	// leaseTime is for how long a place stays taken that nobody renews.
	leaseTime = 10 * time.Second

	// longest is the longest time that a script is told of.
	longest = 365 * 24 * time.Hour

	// maxName is the longest name of a key or a clock that is part of a key of the
	// server's; of a longer one it is a hash.
	maxName = 300

	// maxClocks are as many as a turn may go by.
	maxClocks = 2
)

// A turn is the Lease of a pace.Turn. It never changes.
type turn struct {
	key   string
	place string // the name of its lease
	names [maxClocks]string
	was   [maxClocks]string // each clock before the turn
	is    [maxClocks]string // and after; empty: there is none
}

func paceKey(key string) string   { return keyPrefix + "pace:" + short(key) }
func placesKey(key string) string { return keyPrefix + "places:" + short(key) }

func clockKey(key, name string) string {
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

// Reserve is [pace.Store]'s. It is one call of the server, but where the answer took so
// much longer than usual that the turn is over already: then it asks for a wider one
// instead.
func (f *Fleet) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	if len(a.Limiters) < 1 || len(a.Limiters) > maxClocks {
		return pace.Reservation{}, fmt.Errorf("redis: a turn by %d clocks", len(a.Limiters))
	}
	if ctx.Err() != nil {
		return pace.Reservation{}, context.Cause(ctx)
	}
	t, took, err := f.reserve(ctx, &a, 0)
	for err == nil && !t.Until.IsZero() && !t.Until.After(t.At) {
		given := t.Lease
		a.Lease, a.Unused = given, true
		t, took, err = f.reserve(ctx, &a, 2*took)
		if t.Lease == nil {
			f.Report(pace.Report{Key: a.Key, Lease: given, Unused: err != nil})
		}
	}
	if err == nil && ctx.Err() != nil {
		if t.Lease != nil {
			f.Report(pace.Report{Key: a.Key, Lease: t.Lease, Unused: true})
		}
		return pace.Reservation{}, context.Cause(ctx)
	}
	return t, err
}

// reserve asks the server once for a turn that is good for more than is wanted, and
// says how long that took.
func (f *Fleet) reserve(ctx context.Context, a *pace.SlotRequest, more time.Duration) (pace.Reservation, time.Duration, error) {
	v := f.view.Load()
	if v.Alone {
		return pace.Reservation{}, 0, errAway
	}
	next := &turn{key: a.Key}
	held, _ := a.Lease.(*turn)
	if held != nil {
		next.place = held.place
	} else {
		next.place = f.held.name(f.id)
	}
	width := time.Duration(0)
	if a.Window > 0 {
		width = (max(a.Window, time.Microsecond) + max(more, f.counts.usual())).Truncate(time.Microsecond)
	}

	// A caller that leaves, or has little time, is no reason to give up a connection.
	asked := time.Now()
	var reply []any
	err := f.do(context.WithoutCancel(ctx), func(ctx context.Context, c *redis.Client) error {
		var err error
		reply, err = reserveScript.Run(ctx, c, next.keys(a), next.args(a, v.epoch, width, held, asked)...).Slice()
		if err == nil {
			err = sound(reply)
		}
		return err
	})
	if err != nil {
		return pace.Reservation{}, 0, err
	}
	replied := time.Now()
	took := replied.Sub(asked)
	f.counts.roundTrip(took)
	return f.read(reply, next, asked, replied, width), took, nil
}

// keys are those of reserve.lua.
func (t *turn) keys(a *pace.SlotRequest) []string {
	keys := []string{paceKey(t.key), placesKey(t.key), epochKey, paceKey(cmp.Or(a.BackOffKey, a.Key))}
	if len(a.Limiters) > 1 {
		keys = append(keys, clockKey(t.key, a.Limiters[1].Name))
	}
	return keys
}

// args are those of reserve.lua. They name the clocks in t.
func (t *turn) args(a *pace.SlotRequest, epoch string, width time.Duration, held *turn, now time.Time) []any {
	args := make([]any, 0, 8+7*maxClocks)
	args = append(args, epoch, t.place, micros(leaseTime), a.MaxConcurrent, int64(a.MaxWait/time.Microsecond), micros(width))
	args = appendPause(args, a.BackOff, now)
	for i, c := range a.Limiters {
		t.names[i] = short(c.Name)
		each := min(1e6/c.PerSecond, float64(longest/time.Microsecond))
		var was, is string
		if held != nil && a.Unused && held.names[i] == t.names[i] {
			was, is = held.was[i], held.is[i]
		}
		args = append(args, t.names[i], each, c.Burst, micros(c.Gap), ago(c.Sent, now), was, is)
	}
	return args
}

// sound says whether reserve.lua's reply is all there.
func sound(reply []any) error {
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

// read reads a reply that is sound. A turn begins when the server, at the latest,
// thinks so, and ends when it does at the earliest.
func (f *Fleet) read(reply []any, next *turn, asked, replied time.Time, width time.Duration) pace.Reservation {
	code, _ := number(reply, 0)
	micro, _ := number(reply, 1)
	length, _ := number(reply, 3)
	wait := time.Duration(micro) * time.Microsecond
	var t pace.Reservation
	if left, ok := number(reply, 2); ok {
		t.BackOff = pace.BackOff{
			Until:  asked.Add(time.Duration(left) * time.Microsecond),
			Length: time.Duration(length) * time.Microsecond,
		}
	}
	if code != 1 {
		t.Full, t.Wait = code == -1, wait
		f.counts.refused(t.Full)
		return t
	}
	for i := 4; i+1 < len(reply) && (i-4)/2 < maxClocks; i += 2 {
		next.was[(i-4)/2], _ = text(reply, i)
		next.is[(i-4)/2], _ = text(reply, i+1)
	}
	t.At, t.Lease = replied.Add(wait), next
	if width > 0 {
		t.Until = asked.Add(wait + width)
	}
	f.held.add(next)
	f.counts.reserved.Add(1)
	return t
}

// appendPause tells of a pause; of none, where it has no end.
func appendPause(args []any, b pace.BackOff, now time.Time) []any {
	if b.Until.IsZero() {
		return append(args, "", 0)
	}
	return append(args, int64(within(b.Until.Sub(now))/time.Microsecond), micros(b.Length))
}

// ago is how long before now it was, in microseconds; -1 where it never was.
func ago(t, now time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return int64(within(max(0, now.Sub(t))) / time.Microsecond)
}

// micros rounds up.
func micros(d time.Duration) int64 {
	return int64((within(d) + time.Microsecond - 1) / time.Microsecond)
}

func within(d time.Duration) time.Duration { return min(max(d, -longest), longest) }

// usual is how long a round trip takes, with most of those that take longer, as TCP
// reckons (RFC 6298).
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
