package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// How long it is until a Store that had no place, or failed, is asked again: doubled
// each time, and up to a half longer by chance. The first is short: the place that was
// given to the next one here may be on its way back to the Store.
const (
	firstPoll = 2 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
)

// A turn under a gap is good for so much of it at first, within these. A longer one
// costs pace, a shorter one is missed sooner; each that is missed doubles the next.
const (
	widthPart = 64
	minWidth  = time.Millisecond
	maxWidth  = 100 * time.Millisecond
	maxMissed = 4 // that double it
)

// A booking is what a slot has of the Store. Guarded by host.mu.
type booking struct {
	wake   chan struct{} // something has changed for who waits; see host.rouse
	under  *absence      // that the right to send was given under, see terms.alone
	lease  any           // nil: it has no place there
	unsent bool          // its turn is not used yet
	at     time.Time     // the turn's
	until  time.Time     // likewise; zero: no end
	missed int
}

// booking is what s has of the Store; nil: it has asked for nothing.
func (s *Slot) booking() *booking {
	if s.host.fleet == nil {
		return nil
	}
	return s.host.fleet.bookings[s]
}

// past says that the turn may not be used any more.
func (b *booking) past(now time.Time) bool { return !b.until.IsZero() && now.After(b.until) }

// A try is one call of Ready, where there is a Store.
type try struct {
	*Slot
	*booking
	end  time.Time // it may wait until then
	poll time.Duration
}

// book is Ready where there is a Store: this process's own clocks come first, and then
// all others'. Who waits for a turn of the Store keeps its right by the former, so that
// of each clock but one waits there, in the order in which they came.
func (s *Slot) book(ctx context.Context) error {
	h := s.host
	h.mu.Lock()
	t := &try{Slot: s, end: h.readyBy(s, time.Now()), poll: firstPoll}
	h.enlist(t)
	h.mu.Unlock()
	defer t.leave()
	for {
		if err := s.right(ctx, t.end); err != nil {
			return err
		}
		again, err := t.turn(ctx)
		if err != nil || !again {
			return err
		}
	}
}

func (t *try) leave() {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	delete(t.host.fleet.tries, t)
}

// turn is for one that has the right by this process's clocks. It either makes use of
// it, or gives it back; then it is to be asked for again, or there is an error.
func (t *try) turn(ctx context.Context) (again bool, err error) {
	for {
		a, next := t.next()
		switch next {
		case goNow:
			return false, nil
		case startOver:
			return true, nil
		case gone:
			return false, errReleased
		}
		began := time.Now()
		got, err := t.pacer.store.Reserve(ctx, a)
		wait, keep, err := t.got(ctx, began, got, err)
		if err != nil {
			return false, err
		}
		if err := t.sleep(ctx, wait); err != nil || !keep {
			return err == nil, err
		}
	}
}

// What comes next for a try.
type step uint8

const (
	ask step = iota
	goNow
	startOver // the right is given back
	gone      // the slot is released
)

// next says what to do at the moment, and what to ask for.
func (t *try) next() (Ask, step) {
	h := t.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now, b := time.Now(), t.booking
	alone := t.terms(now).alone
	switch {
	case t.over:
		return Ask{}, gone
	case t.stage != granted:
		return Ask{}, startOver
	case t.under != alone, t.pause().left(now) > 0:
		t.giveUp() // it was had under other terms
		return Ask{}, startOver
	case alone != nil:
		h.handBack(t.Slot)
		t.alone, b.until = true, time.Time{}
		return Ask{}, goNow
	case b.unsent && !b.past(now):
		return Ask{}, goNow
	case b.unsent:
		b.missed = min(b.missed+1, maxMissed)
		t.pacer.missed.Add(1)
	}
	return t.ask(now), ask
}

// ask is what the Store is asked for.
func (t *try) ask(now time.Time) Ask {
	h, b := t.host, t.booking
	a := Ask{
		Key: t.limits.Key, BackOffKey: t.limits.BackOffKey, Places: t.maxPlaces(), MaxWait: max(0, t.end.Sub(now)),
		Backoff: t.pause().get().backoff(now), Lease: b.lease, Unsent: b.unsent,
	}
	name := ""
	if t.lane == h.assets {
		name = "assets"
	}
	a.Clocks = append(make([]ClockTerms, 0, 2), t.terms(now).clock(name, t.lane.rates.last))
	if t.own != nil {
		a.Clocks = append(a.Clocks, t.ownTerms().clock("client:"+t.client, t.own.last))
	}
	for _, c := range a.Clocks {
		if w := min(max(c.Gap/widthPart, minWidth), maxWidth); c.Gap > 0 && (a.Width == 0 || w < a.Width) {
			a.Width = w
		}
	}
	a.Width <<= b.missed
	return a
}

// clock is what a Store has to know of t.
func (t terms) clock(name string, sent time.Time) ClockTerms {
	l := t.limit()
	return ClockTerms{Name: name, PerSecond: l.PerSecond, Burst: l.Burst, Gap: l.Gap, Sent: sent}
}

// got takes over what the Store has answered, and says how long to wait for what it has
// given, or to ask again: with the right that the slot has, where keep says so.
func (t *try) got(ctx context.Context, began time.Time, g Turn, failed error) (wait time.Duration, keep bool, err error) {
	h, b := t.host, t.booking
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	t.waited += now.Sub(began)
	if t.over {
		if g.Lease != nil {
			t.pacer.store.Report(Report{Key: t.limits.Key, Lease: g.Lease, Unsent: true})
		}
		return 0, false, errReleased
	}
	if t.pause().merge(g.Backoff, now) {
		h.paused(now)
	}
	b.unsent = false // undone by the Store, or spent, or not known
	left := t.end.Sub(now)
	switch {
	case ctx.Err() != nil:
		if g.Lease != nil {
			b.lease, b.unsent = g.Lease, true
		}
		t.giveUp()
		return 0, false, context.Cause(ctx)
	case failed != nil && left <= 0 && !t.pacer.store.Standing().Alone:
		return 0, false, t.refuse(now, now.Sub(began), left)
	case failed != nil:
		t.giveUp()
		if t.pacer.store.Standing().Alone {
			return 0, false, nil
		}
		return t.later(), false, nil
	case !g.At.IsZero():
		b.lease, b.unsent, b.at, b.until = g.Lease, true, g.At, g.Until
		h.fleet.note(t.interval(now), g.At.Sub(began)-t.pause().left(began), t.lane.rates.unsent, now)
		return g.At.Sub(now), true, nil
	case g.Wait > left, g.Full && left <= 0:
		err := t.refuse(now, g.Wait, left)
		if g.Full && g.Wait <= max(0, left) && err.Reason == WaitTooLong {
			err.Reason = PlacesTaken
		}
		return 0, false, err
	case g.Full:
		return min(max(g.Wait, t.later()), left), true, nil
	}
	t.giveUp()
	return max(g.Wait, minWake), false, nil
}

// later is when to ask again, since nobody says.
func (t *try) later() time.Duration {
	d := t.poll + time.Duration(rand.Float64()*float64(t.poll/2))
	t.poll = min(2*t.poll, lastPoll)
	return d
}

// giveUp gives back the right, and a turn.
func (t *try) giveUp() {
	h := t.host
	h.unbook(t.Slot)
	if t.unsent {
		h.handBack(t.Slot)
	}
	h.dispatch()
}

func (t *try) refuse(now time.Time, wait, left time.Duration) *BusyError {
	e := t.host.busy(t.Slot, now, max(wait, t.pause().left(now)), left)
	t.giveUp()
	return e
}

// sleep waits so long, for a turn where the slot has one. Where that is worth nothing any
// more it returns before, and has given it up.
func (t *try) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	began, timer := time.Now(), time.NewTimer(d)
	defer timer.Stop()
	for {
		var err error
		wake := false
		select {
		case <-timer.C:
		case <-t.wake:
			wake = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if end, err := t.awake(began, wake, err); end || !wake {
			return err
		}
	}
}

// awake says whether there is nothing to wait for any more, and why; left is why the
// caller has left.
func (t *try) awake(began time.Time, early bool, left error) (end bool, err error) {
	h := t.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case t.over:
		return true, errReleased
	case left != nil:
		end, err = true, left
	case early && t.pacer.closed.Load():
		end, err = true, ErrClosed
	case early && t.stage == granted:
		end = t.under != t.terms(now).alone || t.pause().left(now) > 0 && t.at.Before(t.pause().get().until)
	}
	if end {
		t.giveUp()
	}
	if end || !early {
		t.waited += now.Sub(began)
	}
	return end, err
}

// handBack reports that the place at the Store, if there is one, is free, and the turn
// with it where it was not used.
func (h *host) handBack(s *Slot) {
	b := s.booking()
	if b == nil || b.lease == nil {
		return
	}
	s.pacer.store.Report(Report{Key: s.limits.Key, Lease: b.lease, Unsent: b.unsent})
	b.lease, b.unsent = nil, false
}

// Timely says whether the right to send that Ready has given is still good. It is for
// right before the first octet is written; where it says false, Ready waits for another.
func (s *Slot) Timely() bool {
	if s == nil || s.pacer.store == nil {
		return true
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	b, now := s.booking(), time.Now()
	switch {
	case s.over:
		return false
	case s.stage != granted, b == nil:
		return true // nothing is to be waited for
	case b.unsent:
		return !b.past(now)
	}
	return b.under == s.terms(now).alone
}
