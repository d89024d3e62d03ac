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
	// pausesChannel is where a pause is told to those that hold a turn already. A message
	// that is lost is no harm: the answer to the next reservation tells of it too.
	pausesChannel = keyPrefix + "pauses"

	maxPauseNote = 4 << 10 // octets of a message; a longer one is none of ours
)

// A pauseNote is a message of pausesChannel.
type pauseNote struct {
	From   string        `json:"from"`
	Key    string        `json:"key"`
	Left   time.Duration `json:"left_ns"`
	Length time.Duration `json:"length_ns"`
}

func (f *Fleet) queuePause(ctx context.Context, pipe redis.Pipeliner, r *pace.Report, now time.Time) {
	args := appendPause([]any{""}, r.BackOff, now)
	pushScript.EvalSha(ctx, pipe, []string{epochKey, paceKey(r.Key)}, append(args, 0, -1, -1)...)
	note, err := json.Marshal(pauseNote{f.id, r.Key, r.BackOff.Until.Sub(now), r.BackOff.Length})
	if err == nil && len(note) <= maxPauseNote {
		pipe.Publish(ctx, pausesChannel, note)
	}
}

// hear is the part of Run that tells this process of the pauses of others.
func (f *Fleet) hear(ctx context.Context, h Hooks) error {
	for {
		if !f.away() {
			f.listen(ctx, h)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(probeEvery):
		}
	}
}

// listen hears the messages until the connection fails, or the server was away.
func (f *Fleet) listen(ctx context.Context, h Hooks) {
	c := f.client.Load()
	sub := c.Subscribe(ctx, pausesChannel)
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
			f.heard(m.Payload, h)
		}
	}
}

func (f *Fleet) heard(payload string, h Hooks) {
	var note pauseNote
	if len(payload) > maxPauseNote || json.Unmarshal([]byte(payload), &note) != nil || note.From == f.id || note.Left <= 0 {
		return
	}
	h.BackOff(note.Key, pace.BackOff{Until: time.Now().Add(within(note.Left)), Length: within(max(0, note.Length))})
}
