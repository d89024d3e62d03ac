package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// The time until the Store is asked again after it failed or had no concurrency slot. It
// doubles each time, and a random part of up to a half is added. The first one is short,
// because the concurrency slot that was given to the next request of this process may be on
// its way back to the Store.
const (
	firstPoll = 2 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
)

// A slot under a gap may at first be used for a part of the gap, within these bounds. A
// longer window lowers the rate, and a shorter one is missed more often. Each missed slot
// doubles the next window.
const (
	widthPart = 64
	minWidth  = time.Millisecond
	maxWidth  = 100 * time.Millisecond
	// maxMissed is how many misses double the window.
	maxMissed = 4
)

// An attempt is one call of Slot.Ready with a Store.
type attempt struct {
	*request
	*reservation

	// end is until when the request may wait.
	end time.Time

	// poll is the time until the Store is asked again, see firstPoll.
	poll time.Duration

	// limiters is the memory of SlotRequest.Limiters.
	limiters [2]Limiter
}

// reserve implements Slot.Ready with a Store. It asks this process's own limiters first,
// then the Store. A request that waits for a slot of the Store keeps its permit of this
// process. Therefore one request of each limiter waits there, in the order of arrival.
func (r *request) reserve(ctx context.Context) error {
	h := r.host
	h.mu.Lock()
	if r.reservation == nil {
		r.reservation = new(reservation)
	}
	a := &attempt{request: r, reservation: r.reservation, end: h.readyBy(r, time.Now()), poll: firstPoll}
	w, err := h.askPermit(r, a.end)
	if err == nil && w == nil && a.takeAhead() {
		h.mu.Unlock()
		return nil
	}
	r.beginReserving()
	// Close may have been called before the attempt was in host.reserving.
	if r.process.closed.Load() {
		a.wake.Set()
	}
	defer a.leave()
	for {
		if err = h.await(ctx, r, w, err); err != nil {
			return err
		}
		var again bool
		if again, err = a.slot(ctx); err != nil || !again {
			return err
		}
		h.mu.Lock()
		w, err = h.askPermit(r, a.end)
	}
}

// takeAhead reports whether the Store has reserved a slot in advance that the request, which has just got the permit of
// this process, may use now. The caller holds host.mu.
func (a *attempt) takeAhead() bool {
	store, ok := a.process.store.(AheadStore)
	if !ok || a.lease != nil || a.under != nil {
		return false
	}
	ask := a.ask(time.Now())
	g, ok := store.ReserveAhead(&ask)
	if ok {
		a.given(g)
	}
	return ok
}

func (a *attempt) leave() {
	a.host.mu.Lock()
	defer a.host.mu.Unlock()
	delete(a.host.reserving, a.request)
}

// slot reserves a slot for a request that has the permit of this process. If it returns
// again, the permit was given back and must be requested again.
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
	askStore  step = iota // the Store is asked for a slot
	goNow                 // the request may be sent
	startOver             // the permit was given back
	gone                  // the Slot was released
)

// next returns the next step, and the request to the Store.
func (a *attempt) next() (SlotRequest, step) {
	h := a.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now, v := time.Now(), a.reservation
	alone := a.process.alone()
	switch {
	case a.released:
		return SlotRequest{}, gone
	case a.stage != granted:
		return SlotRequest{}, startOver
	case v.under != alone, a.backOff().left(now) > 0:
		// The terms are no longer those under which the permit was given.
		a.giveUp()
		return SlotRequest{}, startOver
	case alone != nil:
		a.returnLease()
		a.held.Alone, v.until = true, time.Time{}
		return SlotRequest{}, goNow
	case v.unsent && !v.ended(now):
		return SlotRequest{}, goNow
	case v.unsent:
		v.missed = min(v.missed+1, maxMissed)
		a.process.missed.Add(1)
	}
	return a.ask(now), askStore
}

// ask returns the request to the Store.
func (a *attempt) ask(now time.Time) SlotRequest {
	v := a.reservation
	ask := SlotRequest{
		Key: a.limits.Key, BackOffKey: a.limits.BackOffKey, MaxConcurrent: a.maxActive(), MaxWait: max(0, a.end.Sub(now)),
		BackOff: a.origin().backOff.get().host.remembered(now), Lease: v.lease, Unused: v.unsent,
	}
	name := ""
	if a.queue == a.host.assets {
		name = "assets"
	}
	sent := a.queue.limiter.last
	if a.queue.sharesFetch(a.request, now) {
		ask.Follows, sent = a.queue.fetched, a.queue.before
	}
	ask.Limiters = append(a.limiters[:0], Limiter{name, a.terms(now).limit(), sent})
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

// got handles the reply of the Store. It returns how long to wait: until the reserved slot
// begins, or until the Store may be asked again. keep reports whether the request still has
// its permit.
func (a *attempt) got(ctx context.Context, began time.Time, g Reservation, failed error) (wait time.Duration, keep bool, err error) {
	h, v := a.host, a.reservation
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	a.held.Waited += now.Sub(began)
	if a.released {
		if g.Lease != nil {
			a.process.store.Report(Report{Key: a.limits.Key, Lease: g.Lease, Unused: true})
		}
		return 0, false, errReleased
	}
	if g.BackOff != (BackOff{}) && a.origin().backOff.merge(g.BackOff, now) {
		h.backedOff(now)
	}
	// The Store took the earlier slot back, or it was used, or its state is unknown.
	v.unsent = false
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
		a.given(g)
		a.noteContention(now)
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

// noteContention notes what the slot that was just reserved tells about other processes.
func (a *attempt) noteContention(now time.Time) {
	q, t := a.queue, a.limits.terms(0)
	wait := max(0, a.at.Sub(now)-a.backOff().left(now))
	last, before := 1+float64(wait)/float64(a.interval(now))/float64(max(1, q.limiter.unsent)), 1.0
	switch {
	case q.contention.counts(t, now):
		before = q.contention.last
	case q.contention == nil:
		q.contention = new(contention)
	}
	*q.contention = contention{terms: t, slot: a.at, at: now, last: last, before: before}
}

// later returns when to ask again if no notification comes.
func (a *attempt) later() time.Duration {
	d := a.poll + time.Duration(rand.Float64()*float64(a.poll/2))
	a.poll = min(2*a.poll, lastPoll)
	return d
}

// giveUp gives back the permit, and the slot if it was not used.
func (a *attempt) giveUp() {
	a.dropPermit()
	if a.unsent {
		a.returnLease()
	}
	a.host.dispatch()
}

// giveUpReserved gives back the permit, and the slot that the Store has just given, if any.
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

// sleep waits for d. If the slot becomes useless meanwhile, sleep gives it up and returns
// earlier.
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

// awake reports whether the wait is over, and the error that ended it. left is the
// context's error if the caller has left.
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
		end = a.under != a.process.alone() || a.backOff().left(now) > 0 && a.at.Before(a.backOff().Until)
	}
	if end {
		a.giveUp()
	}
	if end || !notified {
		a.held.Waited += now.Sub(began)
	}
	return end, err
}
