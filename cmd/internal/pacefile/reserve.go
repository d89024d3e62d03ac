package pacefile

import (
	"context"
	"errors"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
)

// A slot may be used for a windowPart of what the Pacer asks for, but not for less than minWindow if it asks for more:
// no reply from another machine is waited for.
const (
	windowPart = 3
	minWindow  = time.Millisecond
)

// fullRetry is the time until a request asks again whose host finds no space in its page.
const fullRetry = time.Second

var errLimiters = errors.New("pace file: a slot request must have one or two limiters")

// ReserveAhead implements [pace.AheadStore].
func (t *Table) ReserveAhead(a *pace.SlotRequest) (r pace.Reservation, ok bool) {
	if a.Unused || a.Follows != nil || a.BackOff != (pace.BackOff{}) {
		return r, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c, now := t.credits[a.Key], time.Now()
	if c == nil || !now.Before(c.until) || c.slots == 0 || !c.isFor(a) {
		return r, false
	}
	next := &lease{key: a.Key, concurrency: new(concurrencySlot)}
	if held, _ := a.Lease.(*lease); held != nil && !held.concurrency.returned {
		next.concurrency = held.concurrency
	} else if c.concurrent == 0 {
		return r, false
	} else {
		c.concurrent--
		t.inUse[a.Key]++
	}
	c.slots--
	return pace.Reservation{At: now, Lease: next}, true
}

// Reserve implements [pace.Store].
func (t *Table) Reserve(ctx context.Context, a pace.SlotRequest) (r pace.Reservation, err error) {
	if len(a.Limiters) < 1 || len(a.Limiters) > maxLimiters {
		return r, errLimiters
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if r, ok := t.ReserveAhead(&a); ok {
		return r, nil
	}
	a.Window = max(min(a.Window, minWindow), a.Window/windowPart)
	err = t.use(func(now clock) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Another request may have taken slots in advance meanwhile.
		var ok bool
		if r, ok = t.ReserveAhead(&a); ok {
			return nil
		}
		r, err = t.reserve(&a, now)
		return err
	})
	if err != nil {
		return pace.Reservation{}, err
	}
	return r, nil
}

// reserve reserves a slot. The caller has locked the file.
func (t *Table) reserve(a *pace.SlotRequest, now clock) (pace.Reservation, error) {
	key := t.nameOf(a.Key, nil)
	backOffKey := key
	if a.BackOffKey != "" && a.BackOffKey != a.Key {
		backOffKey = t.nameOf(a.BackOffKey, nil)
	}
	p, backOffPage, err := t.loadBoth(key, backOffKey, now)
	if err != nil {
		return pace.Reservation{}, err
	}
	held, _ := a.Lease.(*lease)
	if held != nil && a.Unused {
		p.undo(held, now)
	}
	next := &lease{key: a.Key, Slot: ledger.Slot[name]{Number: t.slots.Add(1)}}
	known := ledger.Key{BackOff: backOffPage.backOff(backOffKey, now), InUse: p.inUse(key, t.process, now)}
	known.Limiters = t.limiters(p, a, next, now)
	own, kept := t.ownInUse(a.Key, held)
	known.InUse += own
	if kept {
		known.InUse--
		next.concurrency = held.concurrency
	} else {
		// If those that wait did not count, the process that has the slots would always be faster.
		known.InUse += p.waitingBefore(key, t.process, now)
	}
	r := known.Reserve(a, next.Number, now.Time)
	p.setWaiting(key, t.process, r.Full, now)
	space := backOffPage.setBackOff(backOffKey, known.BackOff, now)
	var ahead *credit
	if !r.At.IsZero() {
		if fits(a) && r.BackOff == (pace.BackOff{}) && !r.At.After(now.Time) {
			ahead = takeCredit(a, &known.Limiters[0], a.MaxConcurrent-known.InUse-1, now)
		}
		for i, row := range next.Limiters {
			space = p.setLimiter(row, known.Limiters[i], now) && space
		}
		if !kept {
			own++
		}
		if ahead != nil {
			own += ahead.concurrent
		}
		space = p.setInUse(key, t.process, own, now) && space
	}
	if !space {
		// Neither page is stored, so nothing is reserved.
		return pace.Reservation{Wait: fullRetry, BackOff: r.BackOff}, nil
	}
	if err := t.storeBoth(p, backOffPage, now); err != nil {
		return pace.Reservation{}, err
	}
	if !r.At.IsZero() {
		r.Lease = t.took(next, ahead)
	}
	return r, nil
}

// limiters returns the limiters of a request in its page, from which its slot is computed, and adds them to its next lease.
func (t *Table) limiters(p *page, a *pace.SlotRequest, next *lease, now clock) (all []ledger.Limiter) {
	var fetch *ledger.Slot[name]
	if l, ok := a.Follows.(*lease); ok {
		fetch = &l.Slot
	}
	for _, l := range a.Limiters {
		row := t.nameOf(a.Key, &l.Name)
		all = append(all, next.Add(row, p.limiter(row, now), fetch))
	}
	return all
}

// ownInUse returns how many concurrency slots of the key this process has, and whether held still is one of them. What was
// taken in advance is given up.
func (t *Table) ownInUse(key string, held *lease) (n int, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.credits[key] != nil {
		delete(t.credits, key)
		t.changed[key] = true
		t.wake.Set()
	}
	return t.inUse[key], held != nil && !held.concurrency.returned
}

// took counts the concurrency slot of a lease and what was taken in advance, which are in the file.
func (t *Table) took(l *lease, ahead *credit) *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ahead != nil {
		t.credits[l.key] = ahead
		// The credit ends soon, after which the file must have less again.
		t.changed[l.key] = true
		t.wake.Set()
		// This slot cannot be given back without the later ones.
		l.Limiters = nil
	}
	if l.concurrency == nil {
		l.concurrency = new(concurrencySlot)
		t.inUse[l.key]++
	}
	return l
}
