package pace

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// BackOffMemory is how long a back-off is remembered after its end. If there is no new one in that time, the next one begins
// at firstBackOff again.
const BackOffMemory = 30 * time.Minute

const (
	// firstBackOff is the length of the first back-off if the 429 or 503 has no Retry-After.
	firstBackOff = time.Minute

	// maxBackOff is the upper bound, whatever the origin asks for.
	maxBackOff = time.Hour

	// endedFor is how long reports may still be under way of a process that does not know of the end of a back-off.
	endedFor = 30 * time.Second

	// sameEnd is how far apart the ends of a back-off may be that two processes report.
	sameEnd = 250 * time.Millisecond

	// maxJitter bounds the random part that is added to a back-off that the proxy chose, so that requests do not all return
	// at once.
	maxJitter = 0.25
)

// left returns the time until the back-off ends.
func (b BackOff) left(now time.Time) time.Duration {
	if b.Until.IsZero() {
		return 0
	}
	return max(0, b.Until.Sub(now))
}

func (b BackOff) forgiven(now time.Time) bool {
	return b.Until.IsZero() || now.Sub(b.Until) >= BackOffMemory
}

// remembered returns b, or the zero BackOff if b is forgiven.
func (b BackOff) remembered(now time.Time) BackOff {
	if b.forgiven(now) {
		return BackOff{}
	}
	return b
}

// local returns a back-off of another process, or of an earlier one, within the bounds of this one's.
func (b BackOff) local(now time.Time) BackOff {
	b.Until = localTime(b.Until, now, now.Add(maxBackOff))
	b.Length = min(max(0, b.Length), maxBackOff)
	return b
}

// merge takes over a back-off that another process reported. It reports whether the end
// moved later.
func (b *BackOff) merge(o BackOff, now time.Time) bool {
	o = o.local(now)
	if o.Until.IsZero() || now.Sub(o.Until) >= BackOffMemory {
		return false
	}
	if b.forgiven(now) {
		b.Length = 0
	}
	b.Length = max(b.Length, o.Length)
	later := o.Until.After(b.Until)
	if b.By == "" || later && (o.By != "" || b.left(now) == 0) {
		b.By = o.By
	}
	if later {
		b.Until = o.Until
	}
	return later
}

// An incident is a response 429 or 503.
type incident struct {
	// at is when the response came, and sent is when its request was sent.
	at, sent time.Time

	// asked is the time that the origin asked for; zero if it asked for none.
	asked time.Duration

	// chance is the part of maxJitter that is added, from 0 to 1.
	chance float64

	// by is BackOff.By.
	by string
}

// begin starts or lengthens the back-off and reports whether it did. If the origin asked for
// no time, begin ignores the response to a request that was sent before the last back-off
// ended. Otherwise it doubles the length.
func (b *BackOff) begin(i incident) bool {
	if b.forgiven(i.at) {
		b.Length = 0
	}
	if i.asked <= 0 {
		if !b.Until.IsZero() && !i.sent.After(b.Until) {
			return false
		}
		b.Length = min(max(2*b.Length, firstBackOff), maxBackOff)
		i.asked = b.Length + time.Duration(float64(b.Length)*maxJitter*i.chance)
	}
	until := i.at.Add(min(i.asked, maxBackOff))
	if !until.After(b.Until) {
		return false
	}
	b.Until, b.By = until, i.by
	return true
}

// end ends the back-off now. It is still remembered as one that has ended.
func (b *BackOff) end(now time.Time) {
	if b.left(now) > 0 {
		b.Until = now
	}
}

const (
	// servedFor is how long a 2xx response to one client shows that the origin serves others
	// than the client to which it answers 429.
	servedFor = time.Minute

	// maxApart is how many clients of a host have back-offs of their own that are remembered.
	// The response to one more client begins a back-off of the host.
	maxApart = 4
)

// A clientBackOff is a back-off that applies to the requests of one client.
type clientBackOff struct {
	client string
	BackOff
}

// backOffs are the back-offs of one host. A stored value never changes.
type backOffs struct {
	// begun is when this process last stored a change; zero if it never did.
	begun time.Time

	// ended is when the last of the back-offs would have ended that an operator has ended at endedAt; zero if there was none.
	ended, endedAt time.Time

	// host applies to all requests, and each of clients to those of one client.
	host    BackOff
	clients []clientBackOff
}

// of returns the back-off that delays a client's requests: that of the host or that of the
// client, whichever ends later.
func (b *backOffs) of(client string) BackOff {
	if own := b.apart(client); own != nil && own.Until.After(b.host.Until) {
		return own.BackOff
	}
	return b.host
}

// apart returns the client's own back-off, or nil.
func (b *backOffs) apart(client string) *clientBackOff {
	for i := range b.clients {
		if b.clients[i].client == client {
			return &b.clients[i]
		}
	}
	return nil
}

// begin handles a response to a client. The back-off is the client's own if the origin has
// served other clients lately. It becomes one of the host if another client gets such a
// response before it has ended, or the same client after that. begin reports whether a
// back-off began or became longer.
func (b *backOffs) begin(i incident, client string, othersServed bool) bool {
	if b.host.left(i.at) == 0 {
		b.clients = slices.DeleteFunc(slices.Clone(b.clients), func(c clientBackOff) bool { return c.forgiven(i.at) })
		own := b.apart(client)
		if own != nil && !i.sent.After(own.Until) {
			return own.begin(i)
		}
		mayBegin := othersServed && own == nil && len(b.clients) < maxApart
		if mayBegin && !slices.ContainsFunc(b.clients, func(c clientBackOff) bool { return c.left(i.at) > 0 }) {
			b.clients = append(b.clients, clientBackOff{client: client})
			return b.clients[len(b.clients)-1].begin(i)
		}
	}
	begun := false
	for _, c := range b.clients {
		begun = b.host.merge(c.remembered(i.at), i.at) || begun
	}
	b.clients = nil
	return b.host.begin(i) || begun
}

// end ends all back-offs now, and reports whether there was one.
func (b *backOffs) end(now time.Time) bool {
	left := b.longest(now)
	if left == 0 {
		return false
	}
	b.ended, b.endedAt = now.Add(left), now
	b.host.end(now)
	b.clients = slices.Clone(b.clients)
	for i := range b.clients {
		b.clients[i].end(now)
	}
	return true
}

// merge takes over a back-off of the host that another process reported, and reports whether its end moved later. A process
// that does not know yet that an operator has ended a back-off may still report it: merge ignores that.
func (b *backOffs) merge(o BackOff, now time.Time) bool {
	if now.Sub(b.endedAt) < endedFor && o.Until.Sub(b.ended).Abs() < sameEnd {
		return false
	}
	return b.host.merge(o, now)
}

// longest returns the time until the last of the back-offs ends.
func (b *backOffs) longest(now time.Time) time.Duration {
	d := b.host.left(now)
	for _, c := range b.clients {
		d = max(d, c.left(now))
	}
	return d
}

func (b *backOffs) forgiven(now time.Time) bool {
	return b.host.forgiven(now) && !slices.ContainsFunc(b.clients, func(c clientBackOff) bool { return !c.forgiven(now) })
}

// A hostBackOff holds the back-offs of a host. Any goroutine may read and change it.
type hostBackOff struct {
	// mu guards served and is held during a change of held. No other lock is taken under it.
	mu   sync.Mutex
	held atomic.Pointer[backOffs]

	// served are the clients with the latest 2xx responses, the latest first; nil if there was none.
	served *[2]served
}

// served is the latest 2xx response to one client.
type served struct {
	client string

	// at is zero if there was no such response.
	at time.Time
}

var noBackOffs backOffs

// get returns the back-offs, which the caller must not change.
func (h *hostBackOff) get() *backOffs {
	if b := h.held.Load(); b != nil {
		return b
	}
	return &noBackOffs
}

// change applies f to the back-offs, stores the result, and returns what f returned. f must
// replace the slice of clients to change it.
func (h *hostBackOff) change(f func(*backOffs) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.get()
	b := *was
	changed := f(&b)
	if b.host != was.host || !slices.Equal(b.clients, was.clients) {
		// The lock is held: see changedSince.
		b.begun = time.Now()
		h.held.Store(&b)
	}
	return changed
}

// changedSince reports whether a back-off has changed at since or later. A change that it does
// not see yet gets a time after the call.
func (h *hostBackOff) changedSince(since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.get().begun.Before(since)
}

// merge calls backOffs.merge.
func (h *hostBackOff) merge(o BackOff, now time.Time) bool {
	return h.change(func(b *backOffs) bool { return b.merge(o, now) })
}

// begin calls backOffs.begin. An incident of no client ("") concerns the host. shared reports
// whether the back-off of the host has changed.
func (h *hostBackOff) begin(i incident, client string) (begun, shared bool) {
	begun = h.change(func(b *backOffs) bool {
		before := b.host
		others := func(s served) bool { return !s.at.IsZero() && s.client != client && i.at.Sub(s.at) < servedFor }
		any := b.begin(i, client, client != "" && h.served != nil && slices.ContainsFunc(h.served[:], others))
		shared = b.host != before
		return any
	})
	return begun, shared
}

// serve notes a 2xx response to a client.
func (h *hostBackOff) serve(client string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.served == nil {
		h.served = new([2]served)
	}
	if h.served[0].client != client {
		h.served[1] = h.served[0]
	}
	h.served[0] = served{client, now}
}

// idle reports whether the host can be forgotten without an effect on a back-off.
func (h *hostBackOff) idle(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.get().forgiven(now) && (h.served == nil || now.Sub(h.served[0].at) >= servedFor)
}
