package pace

import (
	"sync/atomic"
	"time"
)

const (
	firstPause = time.Minute      // after a 429 or 503 that names no time
	maxPause   = time.Hour        // whatever the origin names
	forgiveIn  = 30 * time.Minute // quiet after a pause, and the next begins at firstPause again
	maxJitter  = 0.25             // of a pause that we chose: not all who were sent away come back at once
)

// A currentPause holds the pause of a host. Any goroutine may read and change it.
type currentPause struct{ held atomic.Pointer[pause] }

func (b *currentPause) get() pause {
	if p := b.held.Load(); p != nil {
		return *p
	}
	return pause{}
}

func (b *currentPause) left(now time.Time) time.Duration {
	p := b.held.Load()
	if p == nil {
		return 0
	}
	return p.left(now)
}

// change replaces the pause by what f makes of it, if f reports a change. It reports the
// same.
func (b *currentPause) change(f func(*pause) bool) bool {
	for {
		before := b.held.Load()
		var p pause
		if before != nil {
			p = *before
		}
		if !f(&p) {
			return false
		}
		if b.held.CompareAndSwap(before, &p) {
			return true
		}
	}
}

// merge takes over what other replicas know of the pause, and reports whether the pause
// ends later by that.
func (b *currentPause) merge(o Backoff, now time.Time) bool {
	return b.change(func(p *pause) bool { return p.merge(o, now) })
}

// pause is a host's back-off. The zero value is none.
type pause struct {
	begun  time.Time     // or lengthened last, in this process; zero: there was none
	until  time.Time     // the end of the last; zero: there was none
	length time.Duration // of the last that we chose, without jitter; zero: forgiven
}

func (p pause) left(now time.Time) time.Duration {
	if p.until.IsZero() {
		return 0
	}
	return max(0, p.until.Sub(now))
}

func (p pause) forgiven(now time.Time) bool {
	return p.until.IsZero() || now.Sub(p.until) >= forgiveIn
}

// backoff is p as others are told of it; zero where it is forgiven.
func (p pause) backoff(now time.Time) Backoff {
	if p.forgiven(now) {
		return Backoff{}
	}
	return Backoff{p.until, p.length}
}

// merge takes over what others know of it, and says whether it ends later by that.
func (p *pause) merge(b Backoff, now time.Time) bool {
	b.Until = own(b.Until, now, now.Add(maxPause))
	if b.Until.IsZero() || now.Sub(b.Until) >= forgiveIn {
		return false
	}
	if p.forgiven(now) {
		p.length = 0
	}
	p.length = max(p.length, min(b.Length, maxPause))
	if !b.Until.After(p.until) {
		return false
	}
	p.begun, p.until = now, b.Until
	return true
}

// begin starts or lengthens a pause and says whether it did. Without an asked time
// it does neither for what was sent before the last pause ended, and takes as much
// of maxJitter as chance, from 0 to 1, says.
func (p *pause) begin(now, sent time.Time, asked time.Duration, chance float64) bool {
	if asked <= 0 {
		if !p.until.IsZero() && !sent.After(p.until) {
			return false
		}
		if p.forgiven(now) {
			p.length = 0
		}
		p.length = min(max(2*p.length, firstPause), maxPause)
		asked = p.length + time.Duration(float64(p.length)*maxJitter*chance)
	}
	until := now.Add(min(asked, maxPause))
	if !until.After(p.until) {
		return false
	}
	p.begun, p.until = now, until
	return true
}
