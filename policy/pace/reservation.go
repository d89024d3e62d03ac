package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

const (
	contentionWeight = 4           // one slot moves the average by a quarter of the difference
	contentionFor    = time.Minute // after this time without a slot, no other process counts as active
)

// sharing is what a host knows of the Store. host.mu guards it.
type sharing struct {
	reservations map[*request]*reservation
	contention   contention
}

// A reservation is what one request has reserved in the Store. host.mu guards it.
type reservation struct {
	wake     chan struct{} // contains a value if something has changed for the waiting request
	readying bool          // Slot.Ready is running
	under    *outage       // the outage in which the permit was given, see terms.alone
	lease    any           // nil: the request has no concurrency slot of the Store
	unsent   bool          // the slot was not used yet
	at       time.Time     // begin of the slot
	until    time.Time     // end of the slot; zero: none
	missed   int           // number of slots that ended before they were used
}

func (r *reservation) ended(now time.Time) bool { return !r.until.IsZero() && now.After(r.until) }

// notify makes the request check whether its slot is still useful.
func (r *reservation) notify() {
	select {
	case r.wake <- struct{}{}:
	default: // it has not read the last value yet
	}
}

// reservation returns the reservation of r, or nil if r has not asked the Store.
func (r *request) reservation() *reservation {
	if r.host.sharing == nil {
		return nil
	}
	return r.host.sharing.reservations[r]
}

// reserving returns the reservation for a call of Ready that begins.
func (r *request) reserving() *reservation {
	h := r.host
	if h.sharing == nil {
		h.sharing = &sharing{reservations: make(map[*request]*reservation)}
	}
	v := r.reservation()
	if v == nil {
		v = &reservation{wake: make(chan struct{}, 1)}
		if !r.released { // it would never be removed
			h.sharing.reservations[r] = v
		}
	}
	v.readying = true
	return v
}

// returnLease reports to the Store that the concurrency slot of r is free, if r has one.
// It also returns the slot if it was not used.
func (r *request) returnLease() {
	v := r.reservation()
	if v == nil || v.lease == nil {
		return
	}
	r.process.store.Report(Report{Key: r.limits.Key, Lease: v.lease, Unused: v.unsent})
	v.lease, v.unsent = nil, false
}

// leaveStore removes everything that r has reserved, in the Store and in the host.
func (r *request) leaveStore() {
	r.returnLease()
	if v := r.reservation(); v != nil {
		v.notify()
		delete(r.host.sharing.reservations, r)
	}
}

// notifyReserving notifies all requests that wait for a slot of the Store.
func (h *host) notifyReserving() {
	if h.sharing == nil {
		return
	}
	for _, v := range h.sharing.reservations {
		if v.readying {
			v.notify()
		}
	}
}

// waiters returns how many requests wait in the host's queues or for a slot of the Store.
func (h *host) waiters() int {
	n := len(h.expiry)
	if h.sharing != nil {
		for r, v := range h.sharing.reservations {
			if v.readying && r.stage == granted {
				n++
			}
		}
	}
	return n
}

// contention is a moving average: how many times longer a slot of the Store takes than one
// of this process's own limiters.
type contention struct {
	average float64
	at      time.Time // time of the last slot; zero: there was none
}

func (c *contention) forgotten(now time.Time) bool {
	return c.at.IsZero() || now.Sub(c.at) >= contentionFor
}

// note counts a slot for which a request waited for the given time, with own requests of
// this process on their way.
func (c *contention) note(interval, wait time.Duration, own int, now time.Time) {
	n := 1 + float64(max(0, wait))/float64(interval)/float64(max(1, own))
	if c.forgotten(now) {
		c.average = n
	}
	c.average += (n - c.average) / contentionWeight
	c.at = now
}

// stretch converts a forecast by this process's own limiters into one that includes the
// other processes. backedOff is the part of d that is a back-off.
func (c *contention) stretch(d, backedOff time.Duration, now time.Time) time.Duration {
	if c.forgotten(now) || d <= backedOff {
		return d
	}
	return min(never-backedOff, limiter.Nanoseconds(float64(d-backedOff)*c.average)) + backedOff
}
