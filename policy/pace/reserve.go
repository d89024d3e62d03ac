package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// How long until a Store that had no concurrency slot, or failed, is asked again: doubled
// each time, and up to a half longer by chance. The first is short, because the concurrency
// slot that was given to the next request here may be on its way back to the Store.
const (
	firstPoll = 2 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
)

// A slot under a gap may be used for a part of the gap at first, within these bounds. A
// longer one costs rate, a shorter one is missed sooner; each that is missed doubles the
// next.
const (
	widthPart = 64
	minWidth  = time.Millisecond
	maxWidth  = 100 * time.Millisecond
	maxMissed = 4 // that double it
)

// An attempt is one call of Slot.Ready where there is a Store.
type attempt struct {
	*request
	*reservation
	end  time.Time // it may wait until then
	poll time.Duration
}

// reserve is Slot.Ready where there is a Store: this process's own limiters come first, and
// then those of all processes. A request that waits for a slot of the Store keeps its
// permit by the former, so that one request of each limiter waits there, in the order in
// which they came.
func (r *request) reserve(ctx context.Context) error {
	h := r.host
	h.mu.Lock()
	a := &attempt{request: r, reservation: r.reserving(), end: h.readyBy(r, time.Now()), poll: firstPoll}
	if r.process.closed.Load() {
		a.notify() // Close did not find it
	}
	h.mu.Unlock()
	defer a.leave()
	for {
		if err := h.permit(ctx, r, a.end); err != nil {
			return err
		}
		again, err := a.slot(ctx)
		if err != nil || !again {
			return err
		}
	}
}

func (a *attempt) leave() {
	a.host.mu.Lock()
	defer a.host.mu.Unlock()
	a.readying = false
}

// slot is for a request that has the permit by this process's limiters. It either makes use
// of the permit or gives it back; then it is to be asked for again, or there is an error.
func (a *attempt) slot(ctx context.Context) (again bool, err error) {
	for {
		ask, next := a.next()
		switch next {
		case goNow:
			return false, nil
		case startOver:
			return true, nil
		case gone:
			return false, errReleased
		}
		began := time.Now()
		got, err := a.process.store.Reserve(ctx, ask)
		wait, keep, err := a.got(ctx, began, got, err)
		if err != nil {
			return false, err
		}
		if err := a.sleep(ctx, wait); err != nil || !keep {
			return err == nil, err
		}
	}
}

// A step is what an attempt does next.
type step uint8

const (
	askStore step = iota
	goNow
	startOver // the permit is given back
	gone      // the slot is released
)

// next returns what to do now, and what to ask for.
func (a *attempt) next() (SlotRequest, step) {
	h := a.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now, v := time.Now(), a.reservation
	alone := a.terms(now).alone
	switch {
	case a.released:
		return SlotRequest{}, gone
	case a.stage != granted:
		return SlotRequest{}, startOver
	case v.under != alone, a.backOff().left(now) > 0:
		a.giveUp() // the permit was given under other terms
		return SlotRequest{}, startOver
	case alone != nil:
		a.returnLease()
		a.alone, v.until = true, time.Time{}
		return SlotRequest{}, goNow
	case v.unsent && !v.ended(now):
		return SlotRequest{}, goNow
	case v.unsent:
		v.missed = min(v.missed+1, maxMissed)
		a.process.missed.Add(1)
	}
	return a.ask(now), askStore
}

// ask returns what the Store is asked for.
func (a *attempt) ask(now time.Time) SlotRequest {
	v := a.reservation
	ask := SlotRequest{
		Key: a.limits.Key, BackOffKey: a.limits.BackOffKey, MaxConcurrent: a.maxActive(), MaxWait: max(0, a.end.Sub(now)),
		BackOff: a.backOff().get().report(now), Lease: v.lease, Unused: v.unsent,
	}
	name := ""
	if a.queue == a.host.assets {
		name = "assets"
	}
	ask.Limiters = append(make([]Limiter, 0, 2), Limiter{name, a.terms(now).limit(), a.queue.limiter.last})
	if a.own != nil {
		ask.Limiters = append(ask.Limiters, Limiter{"client:" + a.client, a.ownTerms().limit(), a.own.last})
	}
	for _, c := range ask.Limiters {
		if w := min(max(c.Gap/widthPart, minWidth), maxWidth); c.Gap > 0 && (ask.Window == 0 || w < ask.Window) {
			ask.Window = w
		}
	}
	ask.Window <<= v.missed
	return ask
}

// got takes over what the Store has answered. It returns how long to wait for the slot that
// the Store has given, or to ask again: with the permit that the request has, if keep says
// so.
func (a *attempt) got(ctx context.Context, began time.Time, g Reservation, failed error) (wait time.Duration, keep bool, err error) {
	h, v := a.host, a.reservation
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	a.waited += now.Sub(began)
	if a.released {
		if g.Lease != nil {
			a.process.store.Report(Report{Key: a.limits.Key, Lease: g.Lease, Unused: true})
		}
		return 0, false, errReleased
	}
	if a.backOff().merge(g.BackOff, now) {
		h.backedOff(now)
	}
	v.unsent = false // taken back by the Store, or spent, or not known
	left := a.end.Sub(now)
	switch {
	case ctx.Err() != nil:
		a.giveUpReserved(g)
		return 0, false, context.Cause(ctx)
	case a.isBackedOffTooLong(now):
		err := a.refuse(now, a.backOff().left(now), left)
		a.giveUpReserved(g)
		return 0, false, err
	case failed != nil && left <= 0 && !a.process.standing().Alone:
		return 0, false, a.refuse(now, now.Sub(began), left)
	case failed != nil:
		a.giveUp()
		if a.process.standing().Alone {
			return 0, false, nil
		}
		return a.later(), false, nil
	case !g.At.IsZero():
		v.lease, v.unsent, v.at, v.until = g.Lease, true, g.At, g.Until
		h.sharing.contention.note(a.interval(now), g.At.Sub(began)-a.backOff().left(began), a.queue.limiter.unsent, now)
		return g.At.Sub(now), true, nil
	case g.Wait > left, g.Full && left <= 0:
		err := a.refuse(now, g.Wait, left)
		if g.Full && g.Wait <= max(0, left) && err.Reason == WaitTooLong {
			err.Reason = ConcurrencyFull
		}
		return 0, false, err
	case g.Full:
		return min(max(g.Wait, a.later()), left), true, nil
	}
	a.giveUp()
	return max(g.Wait, minWake), false, nil
}

// later returns when to ask again if nobody says.
func (a *attempt) later() time.Duration {
	d := a.poll + time.Duration(rand.Float64()*float64(a.poll/2))
	a.poll = min(2*a.poll, lastPoll)
	return d
}

// giveUp gives back the permit, and an unused slot.
func (a *attempt) giveUp() {
	a.dropPermit()
	if a.unsent {
		a.returnLease()
	}
	a.host.dispatch()
}

// giveUpReserved gives back the permit, and the slot that the Store has given just now, if any.
func (a *attempt) giveUpReserved(g Reservation) {
	if g.Lease != nil {
		a.lease, a.unsent = g.Lease, true
	}
	a.giveUp()
}

func (a *attempt) refuse(now time.Time, wait, left time.Duration) *BusyError {
	e := a.host.busy(a.request, now, max(wait, a.backOff().left(now)), left)
	a.giveUp()
	return e
}

// sleep waits for d, for a slot of the Store if the request has one. If that becomes worth
// nothing, sleep returns earlier, and has given it up.
func (a *attempt) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	began, timer := time.Now(), time.NewTimer(d)
	defer timer.Stop()
	for {
		var err error
		notified := false
		select {
		case <-timer.C:
		case <-a.wake:
			notified = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if end, err := a.awake(began, notified, err); end || !notified {
			return err
		}
	}
}

// awake reports whether there is nothing to wait for any more, and why. left is why the
// caller has left.
func (a *attempt) awake(began time.Time, notified bool, left error) (end bool, err error) {
	h := a.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case a.released:
		return true, errReleased
	case left != nil:
		end, err = true, left
	case notified && a.process.closed.Load():
		end, err = true, ErrClosed
	case notified && a.stage == granted:
		end = a.under != a.terms(now).alone || a.backOff().left(now) > 0 && a.at.Before(a.backOff().get().until)
	}
	if end {
		a.giveUp()
	}
	if end || !notified {
		a.waited += now.Sub(began)
	}
	return end, err
}
