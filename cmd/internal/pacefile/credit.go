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
