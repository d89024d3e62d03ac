package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy"
)

const (
	// meterPrefix begins the key of a meter: a hash, see take.lua.
	meterPrefix = keyPrefix + "meter:"

	// tellEvery is how often Hooks.Tell is called.
	tellEvery = time.Second
)

// Take implements [policy.QuotaStore]. It calls the server once.
func (f *Fleet) Take(ctx context.Context, requests int64, all []policy.Charge) (count policy.Count, err error) {
	// A replica that returns from an outage tells what it has used, before it shares quotas and budgets again.
	if v := f.view.Load(); v.StoreAway && (requests > 0 || v.returnsSince.IsZero()) {
		return count, errAlone
	}
	var keys []string
	args := []any{requests, policy.MaxBuckets}
	for i := range all {
		c := &all[i]
		keys = append(keys, meterPrefix+c.Name)
		args = append(args, c.Width.Milliseconds(), c.Span.Milliseconds(), c.Limit.Requests, c.Limit.Bytes, bucketsText(c.Untold))
	}
	// The call does not end with the caller's context, which would cost the connection.
	err = f.do(context.WithoutCancel(ctx), func(ctx context.Context, c *redis.Client) error {
		reply, err := takeScript.Run(ctx, c, keys, args...).Slice()
		if err != nil {
			return err
		}
		count, err = countOf(reply, len(all))
		return err
	})
	return count, err
}

// bucketsText returns buckets as take.lua reads them.
func bucketsText(all []policy.Bucket) string {
	var text strings.Builder
	for _, b := range all {
		fmt.Fprintf(&text, "%d:%d:%d,", b.End, b.Requests, b.Bytes)
	}
	return text.String()
}

// countOf returns the reply of take.lua about meters.
func countOf(reply []any, meters int) (count policy.Count, err error) {
	taken, hasTaken := element[int64](reply, 0)
	now, hasNow := element[int64](reply, 1)
	if !hasTaken || !hasNow {
		return policy.Count{}, errReply
	}
	count = policy.Count{Taken: taken == 1, Now: time.UnixMilli(now)}
	for i := range meters {
		text, ok := element[string](reply, 2+i)
		if !ok {
			return policy.Count{}, errReply
		}
		all, err := bucketsOf(text)
		if err != nil {
			return policy.Count{}, err
		}
		count.Used = append(count.Used, all)
	}
	return count, nil
}

// bucketsOf returns the buckets of a meter in a reply of take.lua.
func bucketsOf(text string) (all []policy.Bucket, err error) {
	for part := range strings.SplitSeq(text, ",") {
		var n [3]int64
		fields := strings.Split(part, ":")
		switch {
		case text == "":
			return nil, nil
		case len(fields) != len(n):
			return nil, errReply
		}
		for i, field := range fields {
			if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
				return nil, errReply
			}
		}
		all = append(all, policy.Bucket{End: n[0], Use: policy.Use{Requests: n[1], Bytes: n[2]}})
	}
	if !policy.AreValid(all) {
		return nil, errReply
	}
	return all, nil
}

// Replicas implements [policy.QuotaStore].
func (f *Fleet) Replicas() int64 { return int64(f.replicas) }

// tellUses is the part of Run that calls Hooks.Tell, at the end too.
func (f *Fleet) tellUses(ctx context.Context, h Hooks) error {
	if h.Tell == nil {
		return nil
	}
	ticks := time.NewTicker(tellEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			h.Tell(context.WithoutCancel(ctx))
			return nil
		case <-ticks.C:
			h.Tell(ctx)
		}
	}
}
