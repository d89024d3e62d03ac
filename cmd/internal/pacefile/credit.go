package pacefile

import (
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
	"robotsproxy/policy/pace/limiter"
)

// advance is for how long a process takes slots in advance where many requests a second are permitted, so that not each
// of them uses the file. Slots that it does not use are lost.
const advance = 10 * time.Millisecond

// A credit is what the file has counted in advance for this process at one key. It is for requests under one limiter
// without a gap, while there is no back-off.
type credit struct {
	// limiter is the name of the limiter.
	limiter string
	limit   limiter.Limit

	// maxConcurrent is SlotRequest.MaxConcurrent.
	maxConcurrent int

	// slots is how many slots are left, and concurrent how many concurrency slots.
	slots, concurrent int

	// until is when the credit expires.
	until time.Time
}

// isFor reports whether the credit is for requests like a.
func (c *credit) isFor(a *pace.SlotRequest) bool {
	return fits(a) && a.Limiters[0].Limit == c.limit && a.Limiters[0].Name == c.limiter && a.MaxConcurrent == c.maxConcurrent
}

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

// fits reports whether a credit can be for requests like a.
func fits(a *pace.SlotRequest) bool {
	return len(a.Limiters) == 1 && a.Limiters[0].Gap == 0 && a.Window == 0 && (a.BackOffKey == "" || a.BackOffKey == a.Key)
}

// takeCredit takes slots of l in advance, whose last one was given to a at once. free is how many concurrency slots are
// left. It returns nil, and changes nothing, if few requests a second are permitted.
func takeCredit(a *pace.SlotRequest, l *ledger.Limiter, free int, now clock) *credit {
	slots := int(min(l.PerSecond*advance.Seconds(), l.TokensAt(now.Time), 1<<20))
	if slots < 2 || free < 2 {
		return nil
	}
	until := now.Add(advance)
	// The gap of another process counts from the last of the slots.
	l.Tokens, l.Stamp, l.Last = l.TokensAt(now.Time)-float64(slots), now.Time, until
	return &credit{
		limiter: a.Limiters[0].Name, limit: a.Limiters[0].Limit, maxConcurrent: a.MaxConcurrent,
		slots: slots, concurrent: min(slots, free/2), until: until,
	}
}

// spare returns how many concurrency slots of a key are taken in advance. The caller holds t.mu.
func (t *Table) spare(key string, now time.Time) int {
	c := t.credits[key]
	if c == nil {
		return 0
	}
	if !now.Before(c.until) {
		delete(t.credits, key)
		return 0
	}
	return c.concurrent
}
