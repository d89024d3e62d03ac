package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// checkpointsKey is the key of a stream of the checkpoints of all replicas' audits.
	checkpointsKey = keyPrefix + "checkpoints"

	// maxCheckpoints is about how many the stream has, and checkpointsKept how long it is kept without a new one.
	maxCheckpoints  = 1000
	checkpointsKept = 31 * 24 * time.Hour

	// maxCheckpoint is the maximum length of one in bytes.
	maxCheckpoint = maxNewsEntry - 256
)

// ShareCheckpoint gives the other replicas a checkpoint of this replica's audit, a signed note.
func (f *Fleet) ShareCheckpoint(ctx context.Context, note []byte) error {
	if len(note) > maxCheckpoint {
		return fmt.Errorf("a checkpoint of more than %d bytes cannot be shared", maxCheckpoint)
	}
	return f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		return pipeline(ctx, c, func(p redis.Pipeliner) {
			values := []string{"note", string(note)}
			p.XAdd(ctx, &redis.XAddArgs{Stream: checkpointsKey, MaxLen: maxCheckpoints, Approx: true, Values: values})
			p.PExpire(ctx, checkpointsKey, checkpointsKept)
		})
	})
}

// Checkpoints returns the checkpoints that replicas, also this one, have shared after the one that last names, the oldest
// first, at most newsRead of them. If next is last, there are no more. The first last is "". What the notes contain was not
// checked.
func (f *Fleet) Checkpoints(ctx context.Context, last string) (notes [][]byte, next string, err error) {
	from := last
	if from == "" {
		from = firstNews
	}
	next = last
	err = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		streams, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{checkpointsKey, from}, Count: newsRead, Block: -1}).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil || len(streams) != 1 {
			return errors.Join(errReply, err)
		}
		for _, m := range streams[0].Messages {
			note, _ := m.Values["note"].(string)
			if next = m.ID; len(note) <= maxCheckpoint {
				notes = append(notes, []byte(note))
			}
		}
		return nil
	})
	return notes, next, err
}
