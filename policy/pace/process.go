package pace

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// maxDelay is the longest gap that results from a share of the rate.
const maxDelay = never / 4

// process is the state that all hosts of a Pacer share. Any goroutine may use it.
type process struct {
	// began is when the process began, see now.
	began time.Time

	// maxStreams is Options.MaxStreams.
	maxStreams int

	// chance returns a random number from 0 to 1.
	chance func() float64

	// store is nil if the process shares nothing.
	store Store

	// seed is the seed of the hashes of paths.
	seed maphash.Seed

	// outage is the last outage of the Store; nil if there was none.
	outage   atomic.Pointer[outage]
	closed   atomic.Bool
	backOffs atomic.Uint64
	missed   atomic.Uint64
}

// now is time.Now at half its cost, which is a quarter of the time that a request takes in
// this package. It reads only the monotonic clock. The wall clock of the result is wrong
// after the clock was set: see wallTime.
func (p *process) now() time.Time { return p.began.Add(time.Since(p.began)) }

// standing returns the Standing of the Store, or the zero Standing if there is no Store.
func (p *process) standing() Standing {
	if p.store == nil {
		return Standing{}
	}
	return p.store.Standing()
}

// share returns t for this process's share of the rate: slower by Standing.Slowdown.
func (p *process) share(t terms) terms {
	st := p.standing()
	t.alone = p.outageOf(st)
	// The comparison is false for NaN.
	if st.Slowdown > 1 {
		t.perSecond /= st.Slowdown
		t.burst = max(1, int(float64(t.burst)/st.Slowdown))
		t.delay = min(limiter.Nanoseconds(float64(t.delay)*st.Slowdown), maxDelay)
	}
	return t
}

// shareOf returns this process's share of a concurrency limit.
func (p *process) shareOf(limit int) int {
	if st := p.standing(); st.Slowdown > 1 {
		return max(1, int(float64(limit)/st.Slowdown))
	}
	return limit
}

// alone returns the outage of the Store that lasts; nil: none does.
func (p *process) alone() *outage { return p.outageOf(p.standing()) }

// outageOf returns the same pointer as long as an outage lasts; nil: st is no outage.
func (p *process) outageOf(st Standing) *outage {
	if !st.StoreAway {
		return nil
	}
	for {
		known := p.outage.Load()
		if known != nil && known.Standing == st {
			return known
		}
		if o := (&outage{st, p.chance()}); p.outage.CompareAndSwap(known, o) {
			return o
		}
	}
}
