package redis

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy"
)

const (
	// quotaPrefix begins the key of a day's uses: a hash, see take.lua.
	quotaPrefix = keyPrefix + "quota:"

	// quotaKept is how long a day's uses are kept after their last change, longer than the day.
	quotaKept = 48 * time.Hour

	// flushQuotas is how often the uses of other requests than Take's are sent.
	flushQuotas = time.Second
)

// quotaUses are uses that the server was not told yet.
type quotaUses struct {
	// mu guards uses.
	mu   sync.Mutex
	uses map[quotaKey]policy.Use
}

// A quotaKey is a client on a day.
type quotaKey struct {
	client string
	day    int64
}

// add adds a use. Only clients of the configuration have quotas, so there are few.
func (q *quotaUses) add(k quotaKey, u policy.Use) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.uses == nil {
		q.uses = map[quotaKey]policy.Use{}
	}
	q.uses[k] = q.uses[k].Plus(u, 1)
}

// take removes the use of a client on a day.
func (q *quotaUses) take(k quotaKey) policy.Use {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.uses[k]
	delete(q.uses, k)
	return u
}

// keys returns the clients and days with uses.
func (q *quotaUses) keys() (all []quotaKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range q.uses {
		all = append(all, k)
	}
	return all
}

// Take implements [policy.QuotaStore]. It calls the server once.
func (f *Fleet) Take(ctx context.Context, client string, day int64, q policy.Quota) (used policy.Use, taken bool, err error) {
	if f.Standing().StoreAway {
		return used, false, errAlone
	}
	return f.takeQuota(ctx, quotaKey{client, day}, 1, q)
}

// takeQuota counts requests of a client unless its quota is reached, and before that what the server was not told yet.
func (f *Fleet) takeQuota(ctx context.Context, k quotaKey, requests int, q policy.Quota) (used policy.Use, taken bool, err error) {
	untold := f.quotas.take(k)
	// The call does not end with the caller's context, which would cost the connection.
	err = f.do(context.WithoutCancel(ctx), func(ctx context.Context, c *redis.Client) error {
		reply, err := takeScript.Run(ctx, c, []string{quotaPrefix + strconv.FormatInt(k.day, 10)}, k.client,
			untold.Requests, untold.Bytes, requests, q.Requests, q.Bytes, quotaKept.Milliseconds()).Slice()
		if err != nil {
			return err
		}
		was, ok := element[int64](reply, 0)
		var hasRequests, hasBytes bool
		used.Requests, hasRequests = element[int64](reply, 1)
		used.Bytes, hasBytes = element[int64](reply, 2)
		if !ok || !hasRequests || !hasBytes {
			return errReply
		}
		taken = was == 1
		return nil
	})
	if err != nil {
		f.quotas.add(k, untold)
	}
	return used, taken, err
}

// Add implements [policy.QuotaStore].
func (f *Fleet) Add(client string, day int64, u policy.Use) { f.quotas.add(quotaKey{client, day}, u) }

// Replicas implements [policy.QuotaStore].
func (f *Fleet) Replicas() int64 { return int64(f.replicas) }

// shareQuotas is the part of Run that sends the uses.
func (f *Fleet) shareQuotas(ctx context.Context) error {
	ticks := time.NewTicker(flushQuotas)
	defer ticks.Stop()
	for {
		ending := false
		select {
		case <-ctx.Done():
			ending = true
		case <-ticks.C:
		}
		for _, k := range f.quotas.keys() {
			if f.Standing().StoreAway {
				break
			}
			// They are kept for the next time if this fails.
			_, _, _ = f.takeQuota(context.WithoutCancel(ctx), k, 0, policy.Quota{})
		}
		if ending {
			return nil
		}
	}
}
