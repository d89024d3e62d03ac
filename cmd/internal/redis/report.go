package redis

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

const (
	// renewEvery is how often leases are renewed, less than a third of leaseTime.
	renewEvery = 3 * time.Second

	// backOffChannel is where a back-off is published for the replicas that already hold a
	// slot. A lost message does no harm, because the reply to the next reservation contains
	// the back-off too.
	backOffChannel = keyPrefix + "pauses"

	// backOffByField is the field of the cause of a back-off, see reserve.lua.
	backOffByField = "b"
)

// Report implements [pace.Store].
func (f *Fleet) Report(r pace.Report) {
	if l, ok := r.Lease.(*lease); ok {
		f.held.all.Delete(l.name)
	} else if r.BackOff == (pace.BackOff{}) {
		return
	}
	if !f.reports.add(r) {
		f.counts.dropped.Add(1)
	}
}

// report is the part of Run that sends the reports and renews the leases. No other
// goroutine does either, so a returned lease is not renewed.
func (f *Fleet) report(ctx context.Context, h Hooks) error {
	ticks := time.NewTicker(renewEvery)
	defer ticks.Stop()
	var spare []pace.Report
	for {
		due, ending := false, false
		select {
		case <-ctx.Done():
			ending = true
		case <-ticks.C:
			due = true
		case <-f.reports.wake:
		}
		if f.Standing().StoreAway {
			if ending {
				return nil
			}
			// The reports are sent, and the leases renewed, when the server is available.
			continue
		}
		all, asked := f.reports.take(spare[:0])
		short := context.WithoutCancel(ctx)
		f.send(short, all)
		// If the server was not told, at least this replica's back-off ends.
		for i := range all {
			if all[i].BackOff.Ended {
				h.BackOff(all[i].Key, all[i].BackOff)
			}
		}
		if ending {
			return nil
		}
		if due || asked {
			f.renewAll(short)
		}
		clear(all)
		spare = all
	}
}

// send sends the reports in pipelines. If one fails, the remaining reports are lost.
func (f *Fleet) send(ctx context.Context, all []pace.Report) {
	for len(all) > 0 {
		some := all[:min(batch, len(all))]
		err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
			return pipeline(ctx, c, func(p redis.Pipeliner) {
				now := time.Now()
				for i := range some {
					f.queueReport(ctx, p, &some[i], now)
				}
			})
		})
		if err != nil {
			f.counts.dropped.Add(uint64(len(all)))
			return
		}
		all = all[len(some):]
	}
}

func (f *Fleet) queueReport(ctx context.Context, pipe redis.Pipeliner, r *pace.Report, now time.Time) {
	if l, ok := r.Lease.(*lease); ok {
		pipe.ZRem(ctx, leasesKey(l.key), l.name)
		if r.Unused {
			undoScript.EvalSha(ctx, pipe, l.undoKeys(), l.undoArgs()...)
		}
	}
	if r.BackOff != (pace.BackOff{}) {
		f.queueBackOff(ctx, pipe, r, now)
	}
}

// renewAll renews all leases that are held.
func (f *Fleet) renewAll(ctx context.Context) {
	keys, names := f.held.list()
	for len(keys) > 0 {
		n := min(batch, len(keys))
		err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
			return renewScript.Run(ctx, c, keys[:n], append([]any{micros(leaseTime)}, names[:n]...)...).Err()
		})
		if err != nil {
			return
		}
		keys, names = keys[n:], names[n:]
	}
}

// A backOffMessage is a message of backOffChannel.
type backOffMessage struct {
	From string `json:"from"`
	Key  string `json:"key"`

	// Left is zero if Ended is true. Earlier versions ignore such a message.
	Left   time.Duration `json:"left_ns"`
	Length time.Duration `json:"length_ns"`
	By     string        `json:"by,omitempty"`
	Ended  bool          `json:"ended,omitempty"`
}

func (f *Fleet) queueBackOff(ctx context.Context, pipe redis.Pipeliner, r *pace.Report, now time.Time) {
	m := backOffMessage{From: f.id, Key: r.Key, Ended: r.BackOff.Ended}
	if m.Ended {
		endScript.EvalSha(ctx, pipe, []string{paceKey(r.Key)})
	} else {
		m.Left, m.Length, m.By = r.BackOff.Until.Sub(now), r.BackOff.Length, r.BackOff.By
		args := appendBackOff([]any{""}, r.BackOff, now)
		pushScript.EvalSha(ctx, pipe, []string{epochKey, paceKey(r.Key)}, append(args, 0, -1, -1)...)
		// The field is set after the script, which gives the key its expiry.
		pipe.HSet(ctx, paceKey(r.Key), backOffByField, m.By)
	}
	message, err := json.Marshal(m)
	if err == nil && len(message) <= maxBackOffMessage {
		pipe.Publish(ctx, backOffChannel, message)
	}
}

// receiveBackOffs is the part of Run that reports the back-offs of others to this
// process.
func (f *Fleet) receiveBackOffs(ctx context.Context, h Hooks) error {
	for {
		if !f.Standing().StoreAway {
			f.subscribe(ctx, h)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(probeEvery):
		}
	}
}

// subscribe receives the messages until the connection fails or the server was
// unavailable.
func (f *Fleet) subscribe(ctx context.Context, h Hooks) {
	c := f.client.Load()
	sub := c.Subscribe(ctx, backOffChannel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	for ctx.Err() == nil && f.client.Load() == c {
		got, err := sub.ReceiveTimeout(ctx, beatEvery)
		var quiet net.Error
		if errors.As(err, &quiet) && quiet.Timeout() {
			continue
		}
		if err != nil {
			return
		}
		if m, ok := got.(*redis.Message); ok {
			f.received(m.Payload, h)
		}
	}
}

func (f *Fleet) received(payload string, h Hooks) {
	var m backOffMessage
	if len(payload) > maxBackOffMessage || json.Unmarshal([]byte(payload), &m) != nil || m.From == f.id || m.Left <= 0 && !m.Ended {
		return
	}
	if m.Ended {
		h.BackOff(m.Key, pace.BackOff{Ended: true})
		return
	}
	h.BackOff(m.Key, pace.BackOff{Until: time.Now().Add(clamp(m.Left)), Length: clamp(max(0, m.Length)), By: m.By})
}
