package pace

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstBackOff  = time.Minute      // if a 429 or 503 has no Retry-After
	maxBackOff    = time.Hour        // upper bound, whatever the origin asks for
	backOffMemory = 30 * time.Minute // after this time without a new back-off, the next one begins at firstBackOff again
	maxJitter     = 0.25             // random part added to a back-off that the proxy chose, so that requests do not all return at once
)

// backOff is the back-off of one host. The zero value means that there was none.
type backOff struct {
	begun  time.Time     // when this process last stored a change of it; zero: never
	until  time.Time     // end of the last back-off; zero: there was none
	length time.Duration // length of the last back-off that the proxy chose, without jitter; zero: forgiven
	by     string        // see BackOff.By
}

// left returns the time until the back-off ends.
func (b backOff) left(now time.Time) time.Duration {
	if b.until.IsZero() {
		return 0
	}
	return max(0, b.until.Sub(now))
}

func (b backOff) forgiven(now time.Time) bool {
	return b.until.IsZero() || now.Sub(b.until) >= backOffMemory
}

// report returns the back-off for other processes. It returns the zero value if b is
// forgiven.
func (b backOff) report(now time.Time) BackOff {
	if b.forgiven(now) {
		return BackOff{}
	}
	return BackOff{b.until, b.length, b.by}
}

// merge takes over a back-off that another process reported. It reports whether the end
// moved later.
func (b *backOff) merge(o BackOff, now time.Time) bool {
	o.Until = localTime(o.Until, now, now.Add(maxBackOff))
	if o.Until.IsZero() || now.Sub(o.Until) >= backOffMemory {
		return false
	}
	if b.forgiven(now) {
		b.length = 0
	}
	b.length = max(b.length, min(o.Length, maxBackOff))
	later := o.Until.After(b.until)
	if b.by == "" || later && (o.By != "" || b.left(now) == 0) {
		b.by = o.By
	}
	if later {
		b.until = o.Until
	}
	return later
}

// begin starts or lengthens the back-off and reports whether it did. asked is the time
// that the origin asked for. If asked is zero, begin ignores the response to a request
// that was sent before the last back-off ended. Otherwise it doubles the length and adds
// the part chance (0 to 1) of maxJitter. by is as in BackOff.By.
func (b *backOff) begin(now, sent time.Time, asked time.Duration, chance float64, by string) bool {
	if b.forgiven(now) {
		b.length = 0
	}
	if asked <= 0 {
		if !b.until.IsZero() && !sent.After(b.until) {
			return false
		}
		b.length = min(max(2*b.length, firstBackOff), maxBackOff)
		asked = b.length + time.Duration(float64(b.length)*maxJitter*chance)
	}
	until := now.Add(min(asked, maxBackOff))
	if !until.After(b.until) {
		return false
	}
	b.until, b.by = until, by
	return true
}

// A metBackOff is a back-off that delayed a request.
type metBackOff struct {
	left time.Duration // when the request met it
	by   string        // see BackOff.By
}

// A hostBackOff holds the back-off of a host. Any goroutine may read and change it.
type hostBackOff struct {
	mu   sync.Mutex // held during a change; no other lock is taken under it
	held atomic.Pointer[backOff]
}

func (h *hostBackOff) get() backOff {
	if b := h.held.Load(); b != nil {
		return *b
	}
	return backOff{}
}

func (h *hostBackOff) left(now time.Time) time.Duration { return h.get().left(now) }

// change applies f to the back-off, stores the result, and returns what f returned.
func (h *hostBackOff) change(f func(*backOff) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.get()
	b := was
	changed := f(&b)
	if b != was {
		b.begun = time.Now() // under the lock: see changedSince
		h.held.Store(&b)
	}
	return changed
}

// changedSince reports whether the back-off has changed at since or later. A change that it does
// not see yet gets a time after the call.
func (h *hostBackOff) changedSince(since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.get().begun.Before(since)
}

// merge calls backOff.merge.
func (h *hostBackOff) merge(o BackOff, now time.Time) bool {
	return h.change(func(b *backOff) bool { return b.merge(o, now) })
}

const (
	slowAnswer = time.Second      // a longer average response time slows the host down
	maxSpacing = 30 * time.Second // maximum gap, however long responses take
	slowFor    = 10 * time.Minute // after this time without a response, the host counts as fast again
	slowWeight = 4                // one response moves the average by a quarter of the difference
)

// latency is the moving average of a host's response time. The zero value has no response.
type latency struct {
	average time.Duration
	at      time.Time // time of the last response; zero: none
}

// note counts a response. An error response may come quickly because the host is in
// trouble, so it never lowers the average.
func (l *latency) note(took time.Duration, fine bool, now time.Time) {
	switch {
	case l.forgotten(now):
		l.average = took
	case fine || took > l.average:
		l.average += (took - l.average) / slowWeight
	}
	l.at = now
}

// spacing returns the minimum gap between requests at which one request is in flight on
// average. It returns zero if the host responds quickly.
func (l *latency) spacing(now time.Time) time.Duration {
	if l.average < slowAnswer || l.forgotten(now) {
		return 0
	}
	return min(l.average, maxSpacing)
}

func (l *latency) forgotten(now time.Time) bool { return l.at.IsZero() || now.Sub(l.at) >= slowFor }

// wallTime converts a monotonic time of this process to the current wall clock. The wall
// clock may have been set in the meantime.
func wallTime(t, now time.Time) time.Time { return now.Round(0).Add(t.Sub(now)).UTC() }

// localTime converts a wall-clock time to this process's monotonic clock and limits it to
// latest. A zero time stays zero.
func localTime(t, now, most time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = now.Add(t.Sub(now)); t.After(most) {
		return most
	}
	return t
}
