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

// reserve implements Slot.Ready with a Store. It asks this process's own limiters first,
// then the Store. A request that waits for a slot of the Store keeps its permit of this
// process. Therefore one request of each limiter waits there, in the order of arrival.
func (r *request) reserve(ctx context.Context) error {
	h := r.host
	h.mu.Lock()
	if r.reservation == nil {
		r.reservation = &reservation{request: r}
	}
	v := r.reservation
	v.end, v.poll = h.readyBy(r, time.Now()), firstPoll
	w, err := h.askPermit(r, v.end)
	if err == nil && w == nil && v.takeAhead() {
		h.mu.Unlock()
		return nil
	}
	r.beginReserving()
	// Close may have been called before the request was in host.reserving.
	if r.process.closed.Load() {
		v.wake.Set()
	}
	defer v.leave()
	for {
		if err = h.await(ctx, r, w, err); err != nil {
			return err
		}
		var again bool
		if again, err = v.slot(ctx); err != nil || !again {
			return err
		}
		h.mu.Lock()
		w, err = h.askPermit(r, v.end)
	}
}

// takeAhead reports whether the Store has reserved a slot in advance that the request, which has just got the permit of
// this process, may use now. The caller holds host.mu.
func (r *reservation) takeAhead() bool {
	store, ok := r.process.store.(AheadStore)
	if !ok || r.lease != nil || r.under != nil {
		return false
	}
	ask := r.ask(time.Now())
	g, ok := store.ReserveAhead(&ask)
	if ok {
		r.given(g)
	}
	return ok
}

func (r *reservation) leave() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	delete(r.host.reserving, r.request)
}

// slot reserves a slot for a request that has the permit of this process. If it returns
// again, the permit was given back and must be requested again.
func (r *reservation) slot(ctx context.Context) (again bool, err error) {
	for {
		ask, next := r.next()
		switch next {
		case goNow:
			return false, nil
		case startOver:
			return true, nil
		case gone:
			return false, errReleased
		case awaitTurn:
			if err := r.awaitTurn(ctx); err != nil {
				return false, err
			}
			continue
		}
		began := time.Now()
		got, err := r.process.store.Reserve(ctx, ask)
		wait, keep, err := r.got(ctx, began, got, err)
		if err != nil {
			return false, err
		}
		if err := r.sleep(ctx, wait); err != nil || !keep {
			return err == nil, err
		}
	}
}

// A step is what a call of Slot.Ready does next.
type step uint8

const (
	askStore  step = iota // the Store is asked for a slot
	goNow                 // the request may be sent
	awaitTurn             // the Store is away, and the turn has not come
	startOver             // the permit was given back
	gone                  // the Slot was released
)

// next returns the next step, and the request to the Store.
func (r *reservation) next() (SlotRequest, step) {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	alone := r.process.alone()
	switch {
	case r.released:
		return SlotRequest{}, gone
	case r.stage != granted:
		return SlotRequest{}, startOver
	case r.under != alone, r.backOff().left(now) > 0:
		// The terms are no longer those under which the permit was given.
		r.giveUp()
		return SlotRequest{}, startOver
	case alone != nil:
		r.returnLease()
		if r.at, r.until = r.turn(alone, now); r.at.After(now) {
			return SlotRequest{}, awaitTurn
		}
		r.held.StoreAway = true
		return SlotRequest{}, goNow
	case r.unsent && !r.ended(now):
		return SlotRequest{}, goNow
	case r.unsent:
		r.missed = min(r.missed+1, maxMissed)
		r.process.missed.Add(1)
	}
	return r.ask(now), askStore
}

// awaitTurn waits until r.at, or until the permit is given back because it is of no use any more.
func (r *reservation) awaitTurn(ctx context.Context) error {
	h := r.host
	h.mu.Lock()
	now := time.Now()
	wait, left := r.at.Sub(now), r.end.Sub(now)
	if !r.released && wait > left {
		err := r.refuse(now, wait, left)
		h.mu.Unlock()
		return err
	}
	h.mu.Unlock()
	return r.sleep(ctx, wait)
}

// ask returns the request to the Store.
func (r *reservation) ask(now time.Time) SlotRequest {
	ask := SlotRequest{
		Key: r.limits.Key, BackOffKey: r.limits.BackOffKey, MaxConcurrent: r.maxActive(), MaxWait: max(0, r.end.Sub(now)),
		BackOff: r.origin().backOff.get().host.remembered(now), Lease: r.lease, Unused: r.unsent,
	}
	name := ""
	if r.queue == r.host.assets {
		name = "assets"
	}
	sent := r.queue.limiter.last
	if r.queue.sharesFetch(r.request, now) {
		ask.Follows, sent = r.queue.fetched, r.queue.before
	}
	ask.Limiters = append(r.limiters[:0], Limiter{name, r.terms(now).limit(), sent})
	if r.own != nil {
		ask.Limiters = append(ask.Limiters, Limiter{"client:" + r.client, r.ownTerms().limit(), r.own.last})
	}
	for _, c := range ask.Limiters {
		if w := min(max(c.Gap/widthPart, minWidth), maxWidth); c.Gap > 0 && (ask.Window == 0 || w < ask.Window) {
			ask.Window = w
		}
	}
	ask.Window <<= r.missed
	return ask
}

// got handles the reply of the Store. It returns how long to wait: until the reserved slot
// begins, or until the Store may be asked again. keep reports whether the request still has
// its permit.
func (r *reservation) got(ctx context.Context, began time.Time, g Reservation, failed error) (wait time.Duration, keep bool, err error) {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	r.held.Waited += now.Sub(began)
	if r.released {
		if g.Lease != nil {
			r.process.store.Report(Report{Key: r.limits.Key, Lease: g.Lease, Unused: true})
		}
		return 0, false, errReleased
	}
	if g.BackOff != (BackOff{}) && r.origin().backOff.merge(g.BackOff, now) {
		h.backedOff(now)
	}
	// The Store took the earlier slot back, or it was used, or its state is unknown.
	r.unsent = false
	left := r.end.Sub(now)
	switch {
	case ctx.Err() != nil:
		r.giveUpReserved(g)
		return 0, false, context.Cause(ctx)
	case r.isBackedOffTooLong(now):
		err := r.refuse(now, r.backOff().left(now), left)
		r.giveUpReserved(g)
		return 0, false, err
	case failed != nil && left <= 0 && !r.process.standing().StoreAway:
		return 0, false, r.refuse(now, now.Sub(began), left)
	case failed != nil:
		r.giveUp()
		if r.process.standing().StoreAway {
			return 0, false, nil
		}
		return r.later(), false, nil
	case !g.At.IsZero():
		r.given(g)
		r.noteContention(now)
		return g.At.Sub(now), true, nil
	case g.Wait > left, g.Full && left <= 0:
		err := r.refuse(now, g.Wait, left)
		if g.Full && g.Wait <= max(0, left) && err.Reason == WaitTooLong {
			err.Reason = ConcurrencyFull
		}
		return 0, false, err
	case g.Full:
		return min(max(g.Wait, r.later()), left), true, nil
	}
	r.giveUp()
	return max(g.Wait, minWake), false, nil
}

// noteContention notes what the slot that was just reserved tells about other processes.
func (r *reservation) noteContention(now time.Time) {
	q, t := r.queue, r.limits.terms(0)
	wait := max(0, r.at.Sub(now)-r.backOff().left(now))
	last, before := 1+float64(wait)/float64(r.interval(now))/float64(max(1, q.limiter.unsent)), 1.0
	switch {
	case q.contention.counts(t, now):
		before = q.contention.last
	case q.contention == nil:
		q.contention = new(contention)
	}
	*q.contention = contention{terms: t, slot: r.at, at: now, last: last, before: before}
}

// later returns when to ask again if no notification comes.
func (r *reservation) later() time.Duration {
	d := r.poll + time.Duration(rand.Float64()*float64(r.poll/2))
	r.poll = min(2*r.poll, lastPoll)
	return d
}

// giveUp gives back the permit, and the slot if it was not used.
func (r *reservation) giveUp() {
	r.dropPermit()
	if r.unsent {
		r.returnLease()
	}
	r.host.dispatch()
}

// giveUpReserved gives back the permit, and the slot that the Store has just given, if any.
func (r *reservation) giveUpReserved(g Reservation) {
	if g.Lease != nil {
		r.lease, r.unsent = g.Lease, true
	}
	r.giveUp()
}

func (r *reservation) refuse(now time.Time, wait, left time.Duration) *BusyError {
	e := r.host.busy(r.request, now, max(wait, r.backOff().left(now)), left)
	r.giveUp()
	return e
}

// sleep waits for d. If the slot becomes useless meanwhile, sleep gives it up and returns
// earlier.
func (r *reservation) sleep(ctx context.Context, d time.Duration) error {
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
		case <-r.wake:
			notified = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if end, err := r.awake(began, notified, err); end || !notified {
			return err
		}
	}
}

// awake reports whether the wait is over, and the error that ended it. left is the
// context's error if the caller has left.
func (r *reservation) awake(began time.Time, notified bool, left error) (end bool, err error) {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case r.released:
		return true, errReleased
	case left != nil:
		end, err = true, left
	case notified && r.process.closed.Load():
		end, err = true, ErrClosed
	case notified && r.stage == granted:
		end = r.under != r.process.alone() || r.backOff().left(now) > 0 && r.at.Before(r.backOff().Until)
	}
	if end {
		r.giveUp()
	}
	if end || !notified {
		r.held.Waited += now.Sub(began)
	}
	return end, err
}
