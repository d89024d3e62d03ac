package policy

import (
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
	PerDay int

	// Until is the next midnight, UTC.
	Until time.Time
}

func (e *QuotaError) Error() string { return fmt.Sprintf("%v: %d", ErrQuota, e.PerDay) }

// Is makes a QuotaError ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// A Ticket is one counted request of a client. The zero Ticket is that of a client without a quota.
type Ticket struct {
	quotas *quotas
	client string
	day    int64
}

// GiveBack uncounts a request that was not sent. It is called at most once, and has no effect after
// the end of the day.
func (t Ticket) GiveBack() {
	if t.quotas == nil {
		return
	}
	t.quotas.mu.Lock()
	defer t.quotas.mu.Unlock()
	if t.quotas.day == t.day {
		t.quotas.used[t.client]--
	}
}

const (
	daySeconds = 24 * 60 * 60
	// maxFormer bounds the removed clients whose requests of the day are counted on, at about 100 bytes each.
	maxFormer = 100_000
)

// quotas counts the requests of each client on one day. The Engines before and after a Renew share it, so that a reload
// may remove a client and add it again.
type quotas struct {
	// mu guards the fields below.
	mu sync.Mutex

	// day is the day of the last request, in days since 1970 (UTC), and used the number of requests on that day by client.
	day  int64
	used map[string]int
}

// take counts one more request of a client, of at most perDay.
func (q *quotas) take(client string, now time.Time, perDay int) (Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.exhausted(client, now, perDay); err != nil {
		return Ticket{}, err
	}
	q.used[client]++
	return Ticket{q, client, q.day}, nil
}

// exhausted returns the error of one more request of a client, of at most perDay. q.mu is held.
func (q *quotas) exhausted(client string, now time.Time, perDay int) error {
	// Of two requests at midnight, the earlier may be counted last.
	if day := now.Unix() / daySeconds; day != q.day && day != q.day-1 || q.used == nil {
		q.day, q.used = day, map[string]int{}
	}
	if q.used[client] < perDay {
		return nil
	}
	return &QuotaError{PerDay: perDay, Until: time.Unix((q.day+1)*daySeconds, 0)}
}

// count returns how many requests of a client were counted on the day of now.
func (q *quotas) count(client string, now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day != now.Unix()/daySeconds {
		return 0
	}
	return q.used[client]
}

// forget drops what was counted before the day of now, and the counts of removed clients if there are too many.
func (q *quotas) forget(now time.Time, clients map[string]*clientState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	over, tooMany := q.day < now.Unix()/daySeconds, len(q.used) > len(clients)+maxFormer
	maps.DeleteFunc(q.used, func(name string, _ int) bool { return over || tooMany && clients[name] == nil })
}
