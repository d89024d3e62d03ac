package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

// A fleet is what a host knows of others that share its Store.
type fleet struct {
	bookings map[*Slot]*booking
	tries    map[*try]struct{} // that are under way

	crowd float64   // on a moving average, how many times longer a turn takes than by our own clocks
	at    time.Time // the last of these; zero: there was none
}

const (
	crowdWeight = 4           // one turn moves the average by a fourth of the difference
	crowdFor    = time.Minute // without a turn, and nobody else counts as being there
)

// enlist has a host know of a try, to rouse it: at once, where Close did not find it.
func (h *host) enlist(t *try) {
	if h.fleet == nil {
		h.fleet = &fleet{bookings: make(map[*Slot]*booking), tries: make(map[*try]struct{})}
	}
	h.fleet.tries[t] = struct{}{}
	if t.booking = t.Slot.booking(); t.booking == nil {
		t.booking = &booking{wake: make(chan struct{}, 1)}
		if !t.over { // else it would stay
			h.fleet.bookings[t.Slot] = t.booking
		}
	}
	if t.pacer.closed.Load() {
		t.rouse()
	}
}

// leaveFleet has the Store and h forget what s had of it.
func (h *host) leaveFleet(s *Slot) {
	h.handBack(s)
	if b := s.booking(); b != nil {
		b.rouse()
		delete(h.fleet.bookings, s)
	}
}

func (b *booking) rouse() {
	select {
	case b.wake <- struct{}{}:
	default: // it has not looked yet
	}
}

// rouse has all who wait for a turn of the Store look whether that is worth something
// still.
func (h *host) rouse() {
	if h.fleet == nil {
		return
	}
	for t := range h.fleet.tries {
		t.rouse()
	}
}

// waits is how many wait in the host's queues, or for a turn of the Store.
func (h *host) waits() int {
	n := len(h.expiry)
	if h.fleet != nil {
		for t := range h.fleet.tries {
			if t.stage == granted {
				n++
			}
		}
	}
	return n
}

// note counts a turn for which one waited so long, with so many of this process's on
// their way.
func (f *fleet) note(interval, wait time.Duration, own int, now time.Time) {
	n := 1 + float64(max(0, wait))/float64(interval)/float64(max(1, own))
	if f.at.IsZero() || now.Sub(f.at) >= crowdFor {
		f.crowd = n
	}
	f.crowd += (n - f.crowd) / crowdWeight
	f.at = now
}

// crowded gives a forecast by our own clocks, of which paused is a pause, as it is with
// all the others there.
func (f *fleet) crowded(d, paused time.Duration, now time.Time) time.Duration {
	if f.at.IsZero() || now.Sub(f.at) >= crowdFor || d <= paused {
		return d
	}
	return min(never-paused, limiter.Nanoseconds(float64(d-paused)*f.crowd)) + paused
}
