package policy

import (
	"errors"
	"fmt"
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
	quota *quota
	day   int64
}

// GiveBack uncounts a request that was not sent. It is called at most once, and has no effect after
// the end of the day.
func (t Ticket) GiveBack() {
	if t.quota == nil {
		return
	}
	t.quota.mu.Lock()
	defer t.quota.mu.Unlock()
	if t.quota.day == t.day {
		t.quota.used--
	}
}

const daySeconds = 24 * 60 * 60

// A quota counts a client's requests. The Engines before and after a Renew share it.
type quota struct {
	// mu guards the fields below.
	mu sync.Mutex

	// day is the day of the last request, in days since 1970 (UTC), and used the number of requests on that day.
	day  int64
	used int
}

// take counts one more request, of at most perDay.
func (q *quota) take(now time.Time, perDay int) (Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.exhausted(now, perDay); err != nil {
		return Ticket{}, err
	}
	q.used++
	return Ticket{q, q.day}, nil
}

// exhausted returns the error of one more request, of at most perDay. q.mu is held.
func (q *quota) exhausted(now time.Time, perDay int) error {
	// Of two requests at midnight, the earlier may be counted last.
	if day := now.Unix() / daySeconds; day != q.day && day != q.day-1 {
		q.day, q.used = day, 0
	}
	if q.used < perDay {
		return nil
	}
	return &QuotaError{PerDay: perDay, Until: time.Unix((q.day+1)*daySeconds, 0)}
}

// count returns how many requests q has counted on the day of now.
func (q *quota) count(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day != now.Unix()/daySeconds {
		return 0
	}
	return q.used
}
