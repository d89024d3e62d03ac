package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ErrQuota matches every [QuotaError] with errors.Is.
var ErrQuota = errors.New("daily quota of the client used up")

// A QuotaError reports that a client has used its quota for the day. It is [ErrQuota].
type QuotaError struct {
	Quota Quota
	Used  Use

	// Until is the next midnight, UTC.
	Until time.Time
}

func (e *QuotaError) Error() string {
	if e.Quota.Requests > 0 && e.Used.Requests >= e.Quota.Requests {
		return fmt.Sprintf("%v: %d requests", ErrQuota, e.Quota.Requests)
	}
	return fmt.Sprintf("%v: %d bytes", ErrQuota, e.Quota.Bytes)
}

// Is makes a QuotaError ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// A Quota is what a client may use in a day. A zero member limits nothing.
type Quota struct{ Requests, Bytes int64 }

// IsReached reports whether nothing is left after a use.
func (q Quota) IsReached(u Use) bool {
	return q.Requests > 0 && u.Requests >= q.Requests || q.Bytes > 0 && u.Bytes >= q.Bytes
}

// A Use is what a client has used in a day: requests that took a slot, and bytes of their responses and of tunnels.
type Use struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// Plus returns the sum of u and n times v.
func (u Use) Plus(v Use, n int64) Use { return Use{u.Requests + n*v.Requests, u.Bytes + n*v.Bytes} }

// A DayUse is what clients have used on a day, by name.
type DayUse struct {
	// Day counts the UTC days since 1970.
	Day  int64          `json:"day"`
	Used map[string]Use `json:"used"`
}

// A QuotaStore counts the use of clients for all processes that share it. Any number of goroutines may use it.
type QuotaStore interface {
	// Take counts a request of a client on a day, unless its quota is reached. It returns what all processes have used, with the
	// request if it was taken. After an error, which may be the context's, nothing was counted, or it is unknown.
	Take(ctx context.Context, client string, day int64, q Quota) (used Use, taken bool, err error)

	// Add adds to the use of a client on a day; a negative use takes from it. It does not wait: if the store is unavailable, it is
	// told later.
	Add(client string, day int64, u Use)

	// Replicas returns the number of processes that share the store, at most.
	Replicas() int64
}

// A Ticket is one counted request of a client. The zero Ticket is that of a client without a quota.
type Ticket struct {
	quotas *quotas
	client string
	day    int64
}

// GiveBack uncounts a request that was not sent. It is called at most once, and has no effect after
// the end of the day.
func (t Ticket) GiveBack() { t.add(Use{Requests: -1}) }

// AddBytes counts bytes that the request has received, or sent in a tunnel.
func (t Ticket) AddBytes(n int64) { t.add(Use{Bytes: max(0, n)}) }

func (t Ticket) add(u Use) {
	if t.quotas == nil || u == (Use{}) {
		return
	}
	t.quotas.mu.Lock()
	defer t.quotas.mu.Unlock()
	if t.quotas.day == t.day {
		t.quotas.add(t.client, u)
	}
}

const (
	daySeconds = 24 * 60 * 60
	// maxFormer bounds the removed clients whose requests of the day are counted on, at about 100 bytes each.
	maxFormer = 100_000
)

// quotas counts what each client uses on one day. The Engines before and after a Renew share it, so that a reload
// may remove a client and add it again.
type quotas struct {
	// store counts for several processes; nil: this one is alone.
	store QuotaStore

	// mu guards the fields below.
	mu sync.Mutex

	// day is the day of the last request, in days since 1970 (UTC), and used the use on that day by client.
	day  int64
	used map[string]clientUse
}

// A clientUse is what is known of the use of one client.
type clientUse struct {
	// known is what all processes had used when the store was asked last, and what this process has used without a store.
	known Use

	// since is what this process has used since then.
	since Use
}

// add adds a use on the day. q.mu is held.
func (q *quotas) add(client string, u Use) {
	c := q.used[client]
	if q.store == nil {
		c.known = c.known.Plus(u, 1)
	} else {
		c.since = c.since.Plus(u, 1)
		q.store.Add(client, q.day, u)
	}
	q.used[client] = c
}

// take counts one more request of a client.
func (q *quotas) take(ctx context.Context, client string, now time.Time, limit Quota) (Ticket, error) {
	q.mu.Lock()
	q.begin(now)
	day := q.day
	q.mu.Unlock()
	if q.store != nil {
		used, taken, err := q.store.Take(ctx, client, day, limit)
		if ctx.Err() != nil {
			if taken {
				q.store.Add(client, day, Use{Requests: -1})
			}
			return Ticket{}, context.Cause(ctx)
		}
		if err == nil {
			q.learn(client, day, used)
			if !taken {
				return Ticket{}, quotaError(limit, used, day)
			}
			return Ticket{q, client, day}, nil
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin(now)
	if err := q.exhausted(client, limit, q.shares()); err != nil {
		return Ticket{}, err
	}
	q.add(client, Use{Requests: 1})
	return Ticket{q, client, q.day}, nil
}

// learn notes what all processes have used.
func (q *quotas) learn(client string, day int64, used Use) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day == day {
		q.used[client] = clientUse{known: used}
	}
}

// begin begins the day of now, if it is not that of the last request. Of two requests at midnight, the earlier may be counted last.
// q.mu is held.
func (q *quotas) begin(now time.Time) {
	if day := now.Unix() / daySeconds; day != q.day && day != q.day-1 || q.used == nil {
		q.day, q.used = day, map[string]clientUse{}
	}
}

// shares returns the number of shares of what is left while the store is unavailable: what this process uses then counts as often as
// there are processes.
func (q *quotas) shares() int64 {
	if q.store == nil {
		return 1
	}
	return q.store.Replicas()
}

// exhausted returns the error of one more request of a client, if there are shares. q.mu is held.
func (q *quotas) exhausted(client string, limit Quota, shares int64) error {
	c := q.used[client]
	if used := c.known.Plus(c.since, shares); limit.IsReached(used) {
		return quotaError(limit, c.known.Plus(c.since, 1), q.day)
	}
	return nil
}

func quotaError(limit Quota, used Use, day int64) error {
	return &QuotaError{Quota: limit, Used: used, Until: time.Unix((day+1)*daySeconds, 0)}
}

// count returns what a client has used on the day of now, as far as this process knows.
func (q *quotas) count(client string, now time.Time) Use {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day != now.Unix()/daySeconds {
		return Use{}
	}
	c := q.used[client]
	return c.known.Plus(c.since, 1)
}

// dayUse returns what all clients have used on the day.
func (q *quotas) dayUse() DayUse {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := DayUse{q.day, make(map[string]Use, len(q.used))}
	for client, c := range q.used {
		all.Used[client] = c.known.Plus(c.since, 1)
	}
	return all
}

// restore takes over what a process before this one has counted.
func (q *quotas) restore(before DayUse) {
	q.day, q.used = before.Day, make(map[string]clientUse, len(before.Used))
	for client, u := range before.Used {
		q.used[client] = clientUse{known: u}
	}
}

// forget drops what was counted before the day of now, and the counts of removed clients if there are too many.
func (q *quotas) forget(now time.Time, clients map[string]*clientState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	over, tooMany := q.day < now.Unix()/daySeconds, len(q.used) > len(clients)+maxFormer
	maps.DeleteFunc(q.used, func(name string, _ clientUse) bool { return over || tooMany && clients[name] == nil })
}
