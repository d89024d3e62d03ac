package policy

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrQuota is what every [QuotaError] is, for errors.Is.
var ErrQuota = errors.New("the client's requests of the day are used up")

// A QuotaError says that a client may send no more today. It is [ErrQuota].
type QuotaError struct {
	PerDay int
	Until  time.Time // when the count begins anew
}

func (e *QuotaError) Error() string { return fmt.Sprintf("%v: %d", ErrQuota, e.PerDay) }

// Is makes a QuotaError ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// A Ticket is one of the requests that a client may send in a day. The zero
// Ticket is that of a client who is not counted.
type Ticket struct {
	quota *quota
	day   int64
}

// Take counts a request of a client that is about to go out. It is a
// *QuotaError when that were one too many for the day, which is that of UTC.
// The count is this process's own.
func (e *Engine) Take(client string) (Ticket, error) {
	m := e.members[client]
	if m == nil || m.PerDay <= 0 {
		return Ticket{}, nil
	}
	return m.quota.take(time.Now(), m.PerDay)
}

// GiveBack takes the request back out of the count: it has not gone out. Once
// at most, and when the day is over it counts for nothing.
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

const secondsPerDay = 24 * 60 * 60

// A quota counts what a client sends. Engines that follow each other share it.
type quota struct {
	mu   sync.Mutex // guards what follows
	day  int64      // since 1970
	used int        // on that day
}

// take counts one more of so many a day.
func (q *quota) take(now time.Time, perDay int) (Ticket, error) {
	day := now.Unix() / secondsPerDay
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day != day {
		q.day, q.used = day, 0
	}
	if q.used >= perDay {
		return Ticket{}, &QuotaError{PerDay: perDay, Until: time.Unix((day+1)*secondsPerDay, 0)}
	}
	q.used++
	return Ticket{q, day}, nil
}

// counts says whether q has counted anything on the day of now.
func (q *quota) counts(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used > 0 && q.day == now.Unix()/secondsPerDay
}
