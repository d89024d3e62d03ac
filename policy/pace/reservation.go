package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
	"robotsproxy/policy/wake"
)

// contentionFor is how long a slot of the Store tells about other processes. After this time, no
// other process counts as active.
const contentionFor = time.Minute

func (r *reservation) ended(now time.Time) bool { return !r.until.IsZero() && now.After(r.until) }

// given notes a slot that the Store has reserved.
func (r *reservation) given(g Reservation) {
	r.lease, r.unsent, r.at, r.until = g.Lease, true, g.At, g.Until
}

// beginReserving makes r wait for a slot of the Store, in a call of Ready.
func (r *request) beginReserving() {
	h, v := r.host, r.reservation
	if v.wake == nil {
		v.wake = wake.New()
	}
	if h.reserving == nil {
		h.reserving = make(map[*request]bool)
	}
	h.reserving[r] = true
}

// returnLease reports to the Store that the concurrency slot of r is free, if r has one.
// It also returns the slot if it was not used.
func (r *request) returnLease() {
	v := r.reservation
	if v == nil || v.lease == nil {
		return
	}
	r.process.store.Report(Report{Key: r.limits.Key, Lease: v.lease, Unused: v.unsent})
	v.lease, v.unsent = nil, false
}

// leaveStore removes everything that r has reserved, in the Store and in the host.
func (r *request) leaveStore() {
	r.returnLease()
	if v := r.reservation; v != nil {
		v.wake.Set()
		delete(r.host.reserving, r)
	}
}

// notifyReserving makes all requests that wait for a slot of the Store check whether their slots are still useful.
func (h *host) notifyReserving() {
	for r := range h.reserving {
		r.reservation.wake.Set()
	}
}

// waiters returns how many requests wait in the host's queues or for a slot of the Store, and since when the first of them
// waits; zero: none does.
func (h *host) waiters() (n int, since time.Time) {
	count := func(from time.Time) {
		if n++; n == 1 || from.Before(since) {
			since = from
		}
	}
	for _, w := range h.expiry {
		count(w.since)
	}
	for r := range h.reserving {
		if r.stage == granted {
			count(r.admitted)
		}
	}
	return n, since
}

// counts reports whether other processes may still be as active as at the slot, and terms are
// those under which it was reserved.
func (c *contention) counts(t terms, now time.Time) bool {
	return c != nil && c.terms == t && now.Sub(c.at) < contentionFor
}

// slotIn returns the time until the queue's slot in the Store, if a request waits for it.
func (q *queue) slotIn(now time.Time) time.Duration {
	if q.contention == nil || q.limiter.unsent == 0 {
		return 0
	}
	return max(0, q.contention.slot.Sub(now))
}

// stretch converts the part d of a forecast by this process's own limiters into one that includes
// the other processes. One slot that took long is no contention: it takes two in a row.
func (q *queue) stretch(d time.Duration, l *Limits, now time.Time) time.Duration {
	if c := q.contention; c.counts(l.terms(0), now) {
		return limiter.Nanoseconds(float64(d) * min(c.last, c.before))
	}
	return d
}
