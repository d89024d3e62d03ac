package pace

import (
	"sync/atomic"
	"time"
)

const (
	firstBackOff  = time.Minute      // after a 429 or 503 that names no time
	maxBackOff    = time.Hour        // whatever the origin names
	backOffMemory = 30 * time.Minute // without a further one, and the next begins at firstBackOff again
	maxJitter     = 0.25             // of a back-off that the proxy chose, so that not all requests come back at once
)

// backOff is a host's back-off. The zero value is none.
type backOff struct {
	begun  time.Time     // when it began or became longer last, in this process; zero: never
	until  time.Time     // the end of the last; zero: there was none
	length time.Duration // of the last that the proxy chose, without jitter; zero: forgiven
}

// left returns the rest of the back-off.
func (b backOff) left(now time.Time) time.Duration {
	if b.until.IsZero() {
		return 0
	}
	return max(0, b.until.Sub(now))
}

func (b backOff) forgiven(now time.Time) bool {
	return b.until.IsZero() || now.Sub(b.until) >= backOffMemory
}

// report returns what other processes are to know of b; zero if it is forgiven.
func (b backOff) report(now time.Time) BackOff {
	if b.forgiven(now) {
		return BackOff{}
	}
	return BackOff{b.until, b.length}
}

// merge takes over what other processes know of the back-off, and reports whether it ends
// later by that.
func (b *backOff) merge(o BackOff, now time.Time) bool {
	o.Until = localTime(o.Until, now, now.Add(maxBackOff))
	if o.Until.IsZero() || now.Sub(o.Until) >= backOffMemory {
		return false
	}
	if b.forgiven(now) {
		b.length = 0
	}
	b.length = max(b.length, min(o.Length, maxBackOff))
	if !o.Until.After(b.until) {
		return false
	}
	b.begun, b.until = now, o.Until
	return true
}

// begin starts or lengthens the back-off and reports whether it did. If the origin asked
// for no time, begin ignores the answer to a request that was sent before the last
// back-off ended; else it adds as much of maxJitter as chance says, from 0 to 1.
func (b *backOff) begin(now, sent time.Time, asked time.Duration, chance float64) bool {
	if asked <= 0 {
		if !b.until.IsZero() && !sent.After(b.until) {
			return false
		}
		if b.forgiven(now) {
			b.length = 0
		}
		b.length = min(max(2*b.length, firstBackOff), maxBackOff)
		asked = b.length + time.Duration(float64(b.length)*maxJitter*chance)
	}
	until := now.Add(min(asked, maxBackOff))
	if !until.After(b.until) {
		return false
	}
	b.begun, b.until = now, until
	return true
}

// A hostBackOff holds the back-off of a host. Any goroutine may read and change it.
type hostBackOff struct{ held atomic.Pointer[backOff] }

func (h *hostBackOff) get() backOff {
	if b := h.held.Load(); b != nil {
		return *b
	}
	return backOff{}
}

func (h *hostBackOff) left(now time.Time) time.Duration { return h.get().left(now) }

// change replaces the back-off by what f makes of it, if f reports a change, and reports
// the same.
func (h *hostBackOff) change(f func(*backOff) bool) bool {
	for {
		before := h.held.Load()
		var b backOff
		if before != nil {
			b = *before
		}
		if !f(&b) {
			return false
		}
		if h.held.CompareAndSwap(before, &b) {
			return true
		}
	}
}

// merge is backOff.merge.
func (h *hostBackOff) merge(o BackOff, now time.Time) bool {
	return h.change(func(b *backOff) bool { return b.merge(o, now) })
}

const (
	slowAnswer = time.Second      // answers that take longer on average slow a host down
	maxSpacing = 30 * time.Second // however long answers take
	slowFor    = 10 * time.Minute // without an answer, and the host counts as quick again
	slowWeight = 4                // one answer moves the average by a fourth of the difference
)

// latency is how long a host takes to answer, as a moving average. The zero value knows of
// no answer.
type latency struct {
	average time.Duration
	at      time.Time // the last answer; zero: none
}

// note counts an answer. An error may come quickly because the host is in trouble: it
// never lowers the average.
func (l *latency) note(took time.Duration, fine bool, now time.Time) {
	switch {
	case l.forgotten(now):
		l.average = took
	case fine || took > l.average:
		l.average += (took - l.average) / slowWeight
	}
	l.at = now
}

// spacing returns the least time between two requests that keeps one at a time under way
// on average; zero: the answers are not slow.
func (l *latency) spacing(now time.Time) time.Duration {
	if l.average < slowAnswer || l.forgotten(now) {
		return 0
	}
	return min(l.average, maxSpacing)
}

func (l *latency) forgotten(now time.Time) bool { return l.at.IsZero() || now.Sub(l.at) >= slowFor }

// wallTime converts a time of the process's monotonic clock to the present wall clock,
// which may have been set since.
func wallTime(t, now time.Time) time.Time { return now.Round(0).Add(t.Sub(now)).UTC() }

// localTime converts a time of the wall clock to the process's monotonic clock, at the
// latest most. A zero time stays zero.
func localTime(t, now, most time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = now.Add(t.Sub(now)); t.After(most) {
		return most
	}
	return t
}
