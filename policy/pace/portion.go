package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

// portion gives t as this process is to keep it: as many times slower as it stands
// among those that share the Store.
func (p *Pacer) portion(t terms) terms {
	st := p.store.Standing()
	if st.Alone {
		t.alone = p.absent(st)
	}
	if st.Times > 1 { // NaN is not
		t.perSecond = t.perSecond / st.Times
		t.burst = max(1, int(float64(t.burst)/st.Times))
		t.delay = min(limiter.Nanoseconds(float64(t.delay)*st.Times), maxDelay)
	}
	return t
}

// maxDelay is the longest gap that a share of the pace makes of another.
const maxDelay = never / 4

// places is likewise of so many at once.
func (p *Pacer) places(n int) int {
	if st := p.store.Standing(); st.Times > 1 {
		return max(1, int(float64(n)/st.Times))
	}
	return n
}

// An absence is one of the Store.
type absence struct {
	Standing
	phase float64 // from 0 to 1: this process's place in the round of all
}

// absent gives one pointer for as long as it is the same absence.
func (p *Pacer) absent(st Standing) *absence {
	for {
		known := p.alone.Load()
		if known != nil && known.Standing == st {
			return known
		}
		if a := (&absence{st, p.chance()}); p.alone.CompareAndSwap(known, a) {
			return a
		}
	}
}

// others gives when something counts as sent to the host, by whomever, of a process
// that goes alone by t and has sent nothing since: at before, its own last request,
// which is its place in the round of all; or, where each of the others may have had its
// turn since then, at a time that differs from process to process, so that they do not
// all come at once, and that keeps one whole gap free after the change.
func (r *rates) others(t terms, before time.Time) time.Time {
	if !(t.alone.Times > 1) {
		return before
	}
	round := time.Duration(float64(t.interval()) * (1 - 1/t.alone.Times)) // but for one gap
	if !before.Before(t.alone.Since.Add(-round)) {
		return before
	}
	return t.alone.Since.Add(-time.Duration(t.alone.phase * float64(round)))
}

// Pause takes over a pause that another process has begun. Where the host is not known
// here nothing is kept: it is told with the next turn.
func (p *Pacer) Pause(key string, b Backoff) {
	sh := p.hosts.shard(key)
	sh.mu.Lock()
	h := sh.hosts[key]
	sh.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); !h.gone && h.pause.merge(b, now) {
		h.paused(now)
	}
}

// Recheck is for when Standing has changed: all who wait are looked at anew. Without it
// they find out when their time comes.
func (p *Pacer) Recheck() {
	p.each(func(h *host) {
		h.dispatch()
		h.rouse()
	})
}
