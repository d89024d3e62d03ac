package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

const (
	contentionWeight = 4           // one slot moves the average by a fourth of the difference
	contentionFor    = time.Minute // without a slot, and no other process counts as being there
)

// sharing is what a host knows of the Store. Guarded by host.mu.
type sharing struct {
	reservations map[*request]*reservation
	contention   contention
}

// A reservation is what a request has of the Store. Guarded by host.mu.
type reservation struct {
	wake     chan struct{} // holds a token: something has changed for a request that waits
	readying bool          // a call of Slot.Ready is under way
	under    *outage       // in which the permit was given, see terms.alone
	lease    any           // nil: the request has no concurrency slot of the Store
	unsent   bool          // the slot is not used yet
	at       time.Time     // the slot's begin
	until    time.Time     // the slot's end; zero: none
	missed   int           // slots that ended before they were used
}

func (r *reservation) ended(now time.Time) bool { return !r.until.IsZero() && now.After(r.until) }

// notify has the request look whether its slot is still worth something.
func (r *reservation) notify() {
	select {
	case r.wake <- struct{}{}:
	default: // it has not looked yet
	}
}

// reservation returns what r has of the Store; nil: it has asked for nothing.
func (r *request) reservation() *reservation {
	if r.host.sharing == nil {
		return nil
	}
	return r.host.sharing.reservations[r]
}

// reserving returns the reservation of a call of Ready, which begins.
func (r *request) reserving() *reservation {
	h := r.host
	if h.sharing == nil {
		h.sharing = &sharing{reservations: make(map[*request]*reservation)}
	}
	v := r.reservation()
	if v == nil {
		v = &reservation{wake: make(chan struct{}, 1)}
		if !r.released { // else it would stay
			h.sharing.reservations[r] = v
		}
	}
	v.readying = true
	return v
}

// returnLease reports to the Store that the concurrency slot of r is free, if r has one,
// and its slot with it if that was not used.
func (r *request) returnLease() {
	v := r.reservation()
	if v == nil || v.lease == nil {
		return
	}
	r.process.store.Report(Report{Key: r.limits.Key, Lease: v.lease, Unused: v.unsent})
	v.lease, v.unsent = nil, false
}

// leaveStore has the Store and the host forget what r had reserved.
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

// waiters returns how many requests wait in the host's queues, or for a slot of the Store.
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

// contention is how many times longer a slot of the Store takes than by this process's own
// limiters, as a moving average.
type contention struct {
	average float64
	at      time.Time // the last slot; zero: there was none
}

func (c *contention) forgotten(now time.Time) bool {
	return c.at.IsZero() || now.Sub(c.at) >= contentionFor
}

// note counts a slot for which a request waited so long, with so many of this process's
// requests on their way.
func (c *contention) note(interval, wait time.Duration, own int, now time.Time) {
	n := 1 + float64(max(0, wait))/float64(interval)/float64(max(1, own))
	if c.forgotten(now) {
		c.average = n
	}
	c.average += (n - c.average) / contentionWeight
	c.at = now
}

// stretch turns a forecast by this process's own limiters into one with all other processes
// there. Of d, backedOff is the rest of a back-off.
func (c *contention) stretch(d, backedOff time.Duration, now time.Time) time.Duration {
	if c.forgotten(now) || d <= backedOff {
		return d
	}
	return min(never-backedOff, limiter.Nanoseconds(float64(d-backedOff)*c.average)) + backedOff
}
