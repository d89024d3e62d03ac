package pace

import (
	"sync"
	"sync/atomic"
	"time"
)

// A host is the record of one key: what was sent, who is under way, who waits.
type host struct {
	pins  atomic.Int32 // slots of other keys that follow this host's back-off; grows under mu
	pause currentPause // for any goroutine

	mu    sync.Mutex // guards all below; no other lock is taken under it
	gone  bool       // forgotten: to be looked up anew
	owner string     // the client that the host counts against: that of the last request sent, else that of the first to ask; "": none, the host is from before a restart

	pages   lane
	assets  *lane             // nil: none has come
	clients map[string]*rates // of those that have a rate of their own
	enters  turns             // Enter: not held up by a rate
	last    *turns            // where the last who had to wait for a place stood; nil: nobody has had to
	slow    slowness
	lead    time.Duration
	places  []*Slot   // slots that have a place; see Limits.MaxConcurrent
	yielded []*Slot   // slots that gave their place back while their transfers go on
	look    time.Time // when both are looked at next; zero: nobody waits for a place
	streams []*Slot   // slots that gave their place back to a stream; see Detach
	expiry  expiry
	timer   *time.Timer
	fleet   *fleet // nil: nobody has asked for turns of a Store
}

// ask lets s go at once, or enqueues it (the waiter is to be awaited), or refuses it.
func (h *host) ask(s *Slot, rated bool) (*waiter, error) {
	now, l := s.pacer.now(), &s.limits
	s.deadline = now.Add(l.MaxWait)
	s.lane, s.own = h.lane(l), h.client(s.client, l)
	if l.First {
		l.CrawlDelay = max(l.CrawlDelay, s.lane.rates.terms.delay)
	}
	s.apply(now) // so that there are limiters to count what is sent
	queue := &h.enters
	if rated {
		queue = &s.lane.waits
	}
	if queue.n == 0 && h.hasPlace(s, now) && s.pause().left(now) == 0 &&
		(!rated || h.soon(s, now) <= min(h.leadTime(), l.MaxWait)) {
		h.admit(s, rated, now)
		return nil, nil
	}
	est := h.estimate(s, rated, now)
	if est > l.MaxWait || l.MaxWait <= 0 {
		return nil, h.busy(s, now, est, l.MaxWait)
	}
	if h.waiting() >= l.MaxQueue && !l.First && !h.makeWay(s, now) {
		e := h.busy(s, now, est, l.MaxWait)
		e.Reason = QueueFull
		return nil, e
	}
	w := &waiter{slot: s, queue: queue, rated: rated, since: now, until: s.deadline, ready: make(chan struct{})}
	h.enqueue(w)
	return w, nil
}

// waiting is how many have no place yet, as Limits.MaxQueue counts them.
func (h *host) waiting() int {
	n := h.enters.n
	h.lanes(func(ln *lane) { n += ln.waits.n - ln.waits.firsts })
	return n
}

// makeWay refuses the last request of the client that has the most in a full queue, where
// those are more than the client of s would have then; it says whether it did.
func (h *host) makeWay(s *Slot, now time.Time) bool {
	waiting := make(map[string]int)
	var most *line // of the client with the most, a line
	count := func(t *turns) {
		for _, ln := range t.lines {
			for _, w := range ln.waiters {
				if w.slot.limits.First {
					continue // MaxQueue does not count it
				}
				if waiting[ln.client]++; most == nil || waiting[ln.client] > waiting[most.client] {
					most = ln // whose last waiter is not under Limits.First
				}
			}
		}
	}
	count(&h.enters)
	h.lanes(func(ln *lane) { count(&ln.waits) })
	if most == nil || waiting[most.client] <= waiting[s.client]+1 {
		return false
	}
	w := most.waiters[len(most.waiters)-1]
	h.remove(w, now)
	e := h.busy(w.slot, now, h.estimate(w.slot, w.rated, now), w.until.Sub(w.since))
	e.Reason = QueueFull
	w.finish(e)
	return true
}

// askReady gives s the right to send, or has it wait for that before all who have no
// place yet, or refuses it. It may wait until a time; zero: as readyBy says.
func (h *host) askReady(s *Slot, until time.Time) (*waiter, error) {
	now := s.pacer.now()
	switch {
	case s.over:
		return nil, errReleased
	case s.stage == granted:
		return nil, nil // and not used: net/http has chosen another connection
	case s.stage == preparing:
		h.lead = max(now.Sub(s.admitted), h.lead-h.lead/32) // a warm connection says little of a cold one
		s.lane.dialed(s)
	default:
		h.prepare(s)
	}
	ln := s.lane
	if len(ln.ready) == 0 && s.pause().left(now) == 0 && s.due(now) == 0 {
		h.grant(s, now)
		return nil, nil
	}
	if until.IsZero() {
		until = h.readyBy(s, now)
	}
	ahead, more := ln.readyAhead(s, now)
	if est := h.behind(s, ahead, more, now); est > until.Sub(now) {
		h.unbook(s)
		h.dispatch()
		return nil, h.busy(s, now, est, until.Sub(now))
	}
	w := &waiter{slot: s, rated: true, since: now, until: until, ready: make(chan struct{})}
	h.enqueue(w)
	return w, nil
}

// readyBy is until when s may wait to be Ready.
func (h *host) readyBy(s *Slot, now time.Time) time.Time {
	until := s.deadline
	if !s.sent.IsZero() {
		until = now.Add(s.limits.MaxWait) // a replay waits anew
	}
	if soon := now.Add(h.leadTime()); until.Before(soon) {
		until = soon // it was let go in time, and dialling took the rest
	}
	return until
}

// dispatch gives what can be given now and sets the timer for what time will
// permit. Whatever else frees something, or leaves a queue, calls it.
func (h *host) dispatch() {
	wake := never
	for len(h.expiry) > 0 {
		now := time.Now()
		w, after := h.next(now)
		if w == nil {
			late, any := h.expire(now)
			if any {
				continue
			}
			wake = min(after, late)
			break
		}
		s := w.slot
		h.remove(w, now)
		if w.queue != nil {
			w.queue.taken(s.client)
			h.last = w.queue
			h.admit(s, w.rated, now)
		} else {
			h.grant(s, now)
		}
		w.finish(nil)
	}
	wake = h.lookAgain(wake)
	switch {
	case wake == never && h.timer != nil:
		h.timer.Stop()
	case wake == never:
	case h.timer == nil:
		h.timer = time.AfterFunc(wake, h.tick)
	default:
		h.timer.Reset(wake)
	}
}

// lookAgain gives wake, or a shorter time if transfers are to be looked at before.
func (h *host) lookAgain(wake time.Duration) time.Duration {
	if len(h.expiry) == 0 {
		h.look = time.Time{}
		return wake
	}
	now := time.Now()
	if h.lacking(now) == nil {
		h.look = time.Time{}
		return wake
	}
	if h.look.IsZero() {
		h.look = now.Add(sampleEvery)
	}
	return min(wake, max(minWake, h.look.Sub(now)))
}

func (h *host) tick() {
	h.mu.Lock()
	late := h.relieve(time.Now())
	h.dispatch()
	h.mu.Unlock()
	if late != nil {
		late.End()
	}
}

// next is who may go on now, or after how long it is worth looking again.
func (h *host) next(now time.Time) (*waiter, time.Duration) {
	wake := never
	var right, place *waiter
	h.lanes(func(ln *lane) {
		if w, after := ln.nextReady(now); w != nil && right == nil {
			right = w
		} else {
			wake = min(wake, after)
		}
		w, after := h.front(ln, now)
		if w != nil && (place == nil || w.since.Before(place.since)) {
			place = w
		}
		wake = min(wake, after)
	})
	if right != nil {
		return right, 0
	}
	w, after := h.nextEnter(now)
	switch {
	case w == nil || place != nil && h.last == &h.enters:
	case place == nil || h.last != nil || w.since.Before(place.since):
		place = w // where both want the place, they take turns; at first the one who has waited longer
	}
	return place, min(wake, after)
}

// nextEnter gives a waiter of Enter that may go now, or after how long to look again.
func (h *host) nextEnter(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, ln := range h.enters.lines {
		w, after := ln.front(now)
		if w != nil && h.hasPlace(w.slot, now) {
			return w, never
		}
		wake = min(wake, after)
	}
	return nil, wake
}

// admit lets s go to make its connection ready.
func (h *host) admit(s *Slot, rated bool, now time.Time) {
	s.put(&h.places)
	s.admitted = now
	if rated {
		h.letGo(s)
	}
}

func (h *host) letGo(s *Slot) {
	h.prepare(s)
	s.lane.dialing = append(s.lane.dialing, s)
}

func (h *host) prepare(s *Slot) {
	s.stage = preparing
	s.each(func(r *rates) { r.preparing++ })
}

// grant gives s, which was preparing, the right to send.
func (h *host) grant(s *Slot, now time.Time) {
	h.unbook(s)
	s.stage = granted
	if s.limits.Adapt {
		s.slowed = h.slow.spacing(now)
	}
	t := s.terms(now)
	s.strict = t.limit().Gap > 0
	if b := s.booking(); b != nil {
		b.under = t.alone
	}
	s.each(func(r *rates) {
		r.unsent++
		if s.strict {
			r.strict++
		}
	})
}

// unbook takes back a right that was used or will not be, or the prospect of one.
func (h *host) unbook(s *Slot) {
	switch s.stage {
	case preparing:
		s.lane.dialed(s)
		s.each(func(r *rates) { r.preparing-- })
	case granted:
		s.each(func(r *rates) {
			r.unsent--
			if s.strict {
				r.strict--
			}
		})
	}
	s.stage = idle
}

// release takes back all that s holds. The caller dispatches.
func (h *host) release(s *Slot) {
	s.over = true
	if w := s.waiter; w != nil {
		h.remove(w, time.Now())
		w.finish(errReleased)
	}
	h.unbook(s)
	s.put(nil)
	if h.fleet != nil {
		h.leaveFleet(s)
	}
}

// inUse reports whether a request waits at h, or has a slot of it.
func (h *host) inUse() bool {
	return len(h.places)+len(h.yielded) > 0 || len(h.streams) > 0 || len(h.expiry) > 0 || h.pins.Load() > 0
}

// idle says that forgetting h can shorten nobody's wait.
func (h *host) idle(now time.Time) bool {
	if h.inUse() || !h.pause.get().forgiven(now) || !h.slow.forgotten(now) {
		return false
	}
	rested := true
	h.lanes(func(ln *lane) { rested = rested && ln.rates.rested(now) })
	for _, r := range h.clients {
		rested = rested && r.rested(now)
	}
	return rested
}
