package pace

import (
	"slices"
	"time"
)

// minWake is the least time after which it is looked again whether one may be let
// go; lead is longer, so that nothing is lost by it.
const minWake = time.Millisecond

// A lane is one of a host's clocks, and who waits for it: first in the queue,
// to be let go; then with a connection that is ready, for the right to send.
type lane struct {
	rates   rates
	waits   turns
	dialing []*Slot   // let go, and not ready yet; the first since longest
	ready   []*waiter // before everyone
	shared  bool      // the next request may follow the last one without a gap, see Limits.Shared
	before  time.Time // with shared: when the request before the last one was sent
}

// follows reports whether s, which has so many requests ahead of it, may follow the last
// request without a gap, and how long it then has to wait for the gap to the request
// before that.
func (ln *lane) follows(s *Slot, ahead int, now time.Time) (wait time.Duration, ok bool) {
	if !ln.shared || !s.limits.follows() || ahead > 0 || ln.rates.unsent > 0 {
		return 0, false
	}
	least := s.terms(now).limit().Gap
	if least == 0 {
		return 0, true
	}
	before := ln.before
	if least <= maxPresumed && ln.rates.presumed.After(before) {
		before = ln.rates.presumed
	}
	if before.IsZero() {
		return 0, true
	}
	return max(0, least-now.Sub(before)), true
}

// nextReady gives the waiter whose right to send is due, or after how long to look again.
// A waiter that its client's own clock or its host's back-off holds up does not hold up
// others; else no waiter overtakes another.
func (ln *lane) nextReady(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, w := range ln.ready {
		if d := max(w.slot.pause().left(now), w.slot.ownDue(now)); d > 0 {
			wake = min(wake, d)
		} else if d := w.slot.due(now); d > 0 {
			return nil, min(wake, d)
		} else {
			return w, 0
		}
	}
	return nil, wake
}

// readyAhead is how many are ready that s would have to wait for, and how much longer
// they take than as many like it.
func (ln *lane) readyAhead(s *Slot, now time.Time) (n int, more time.Duration) {
	for _, w := range ln.ready {
		if w.slot.ownDue(now) <= s.host.leadTime() {
			n++
			more += w.slot.interval(now) - s.interval(now)
		}
	}
	return n, more
}

// ahead is how many of those that were let go will need a right before one that
// is let go now, where one that is let go has lead to be ready. Who takes twice that
// over its connection is not waited for: its turn comes when it is ready, and the
// others' slots are not lost; nor is who is held up by its client's own clock. After
// wake the next of them is such.
func (ln *lane) ahead(now time.Time, lead time.Duration) (n int, wake time.Duration) {
	usual, late := 2*lead, 0
	for late < len(ln.dialing) && now.Sub(ln.dialing[late].admitted) >= usual {
		late++
	}
	wake = never
	if late < len(ln.dialing) {
		wake = usual - now.Sub(ln.dialing[late].admitted)
	}
	n = len(ln.dialing) - late
	for _, w := range ln.ready {
		if w.slot.ownDue(now) <= lead {
			n++
		}
	}
	return n, wake
}

func (h *host) lane(l *Limits) *lane {
	if !l.asset() {
		return &h.pages
	}
	return h.assetLane()
}

func (h *host) assetLane() *lane {
	if h.assets == nil {
		h.assets = &lane{rates: rates{presumed: h.pages.rates.presumed}}
	}
	return h.assets
}

// lanes calls f for each lane that is there.
func (h *host) lanes(f func(*lane)) {
	f(&h.pages)
	if h.assets != nil {
		f(h.assets)
	}
}

// client is the clock of a client that has a rate of its own, else nil.
func (h *host) client(name string, l *Limits) *rates {
	if l.Client == (Rate{}) || l.asset() {
		return nil
	}
	r := h.clients[name]
	if r == nil {
		if h.clients == nil {
			h.clients = make(map[string]*rates)
		}
		r = new(rates)
		h.clients[name] = r
	}
	return r
}

// front is who of a lane's queue may be let go now, or after how long to look
// again. A waiter that its client's own clock or its host's back-off holds up does not hold
// up others.
func (h *host) front(ln *lane, now time.Time) (*waiter, time.Duration) {
	lead, wake := h.leadTime(), never
	ahead, late := ln.ahead(now, lead)
	for _, of := range ln.waits.lines {
		w, after := of.front(now)
		if w == nil {
			wake = min(wake, after)
			continue
		}
		s := w.slot
		if !h.hasPlace(s, now) {
			if len(h.places) >= s.maxPlaces() {
				return nil, wake
			}
			continue // the last one is for others
		}
		if s.own != nil {
			if d := s.own.wanted(s.ownTerms(), s.own.preparing, now, lead); d > 0 {
				wake = min(wake, d)
				continue
			}
		}
		d := ln.rates.wanted(s.terms(now), ahead, now, lead)
		if wait, ok := ln.follows(s, ahead, now); ok {
			d = min(d, max(0, wait-lead))
		}
		if d > 0 {
			return nil, min(wake, max(minWake, min(d, late))) // nobody overtakes by a rate of its own
		}
		return w, 0
	}
	return nil, wake
}

// dialed says that s is not making its connection ready any more.
func (ln *lane) dialed(s *Slot) {
	if i := slices.Index(ln.dialing, s); i >= 0 {
		ln.dialing = slices.Delete(ln.dialing, i, i+1)
	}
}
