package pace

import (
	"context"
	"time"
)

// A Slot is a request's right to be under way. Each must be released. Any number of
// goroutines may share a Slot, but only one at a time is in Ready.
type Slot struct{ request }

// Ready waits, on a connection that is ready, for the permit to send: for the first time,
// or once more before a request is replayed on another connection. The request goes before
// those in the queue. If the permit was given and not used, Ready returns at once. After
// an error, a *BusyError or the context's cause, the slot still holds its concurrency slot
// and is to be released.
func (s *Slot) Ready(ctx context.Context) error {
	if s == nil {
		return errReleased
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.process.store != nil {
		return s.reserve(ctx)
	}
	return s.host.permit(ctx, &s.request, time.Time{})
}

// Timely reports whether the permit to send that Ready has given is still good. It is for
// right before the first byte is written; if it returns false, Ready waits for another.
func (s *Slot) Timely() bool {
	if s == nil || s.process.store == nil {
		return true
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	v, now := s.reservation(), time.Now()
	switch {
	case s.released:
		return false
	case s.stage != granted, v == nil:
		return true // nothing is to be waited for
	case v.unsent:
		return !v.ended(now)
	}
	return v.under == s.terms(now).alone
}

// Redial says that another connection is being made, since the one before was no good. A
// permit that was not used is given back, so that nobody waits for it in vain. Without one
// Redial does nothing.
func (s *Slot) Redial() {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.released || s.stage != granted {
		return
	}
	s.dropPermit()
	s.returnLease()
	s.admitted = time.Now()
	s.deadline = s.admitted.Add(s.limits.MaxWait) // it has done its waiting, and waits anew
	h.startDial(&s.request)
	h.dispatch()
}

// Sent says that the request is being written: the gap to the next request counts from
// now. A second call, for a replay, counts again. On a released slot it does nothing.
func (s *Slot) Sent() { s.count(false) }

// Written is Sent if the permit was given and nobody has said yet that it was used;
// otherwise it does nothing. It is for all that learn that the request was written: the
// connection, and whoever has the response, which may come first.
func (s *Slot) Written() { s.count(true) }

func (s *Slot) count(onlyGranted bool) {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.released || onlyGranted && s.stage != granted {
		return
	}
	s.sent = s.process.now() // under the lock: a limiter wants its times in order
	s.apply(s.sent)          // the permit was given by these terms
	s.queue.countSent(&s.request)
	if s.client != "" { // without a client it is the refresh of a robots.txt
		h.owner = s.client
	}
	s.dropPermit()
	if v := s.reservation(); v != nil {
		v.unsent = false
	}
	h.dispatch()
}

// Answered says that the head of the response has come, or that it has been waited for in
// vain; fine says that the response is no error. The Pacer learns by it how slowly the
// host answers.
func (s *Slot) Answered(fine bool) {
	if s == nil || !s.limits.Adapt {
		return
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if now := s.process.now(); !s.sent.IsZero() {
		s.host.latency.note(now.Sub(s.sent), fine, now)
	}
}

// BackOff says that the response was 429 or 503: no request to the host (see
// [Limits.BackOffKey]) gets a permit for retryAfter, one hour at most. Zero means
// that the origin named no time. Then the back-off takes a minute, doubled up to an hour
// with each further incident, up to a fourth longer by chance, and forgiven after 30 quiet
// minutes. A response is no further incident if its request was sent before the last
// back-off ended. A request that would now wait longer than its MaxWait or MaxBackOff
// permits is refused. BackOff returns the rest of the back-off.
func (s *Slot) BackOff(retryAfter time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	h := s.host
	h.mu.Lock()
	now, chance := time.Now(), s.process.chance()
	begun := s.backOff().change(func(b *backOff) bool { return b.begin(now, s.sent, retryAfter, chance) })
	if begun {
		s.process.backOffs.Add(1)
		h.backedOff(now)
	}
	b := s.backOff().get()
	h.mu.Unlock()
	if begun && s.process.store != nil {
		s.process.store.Report(Report{Key: s.limits.backOffKey(), BackOff: b.report(now)})
	}
	return b.left(now)
}

// Follow makes t the source of how the slot's request gets on. While other clients wait for
// a concurrency slot, a transfer that waits for its own client gives its slot back, and so
// does a transfer of a client that has all slots. If no more transfers may go on without
// one, the slowest transfer of the client with the most is ended. Uploads below minUpload
// are ended too. A request without a Transfer keeps its concurrency slot however long it
// takes.
func (s *Slot) Follow(t Transfer) {
	if s != nil {
		s.transfer.Store(t)
	}
}

// Detach gives the concurrency slot back and counts the request as a stream until it is
// released: for an upgraded connection or an event stream, after the head. A client gets a
// stream only while it has fewer streams of the host than are free, so that one client has
// at most half of Options.MaxStreams. Otherwise Detach returns a *BusyError, and the
// request keeps its concurrency slot.
func (s *Slot) Detach() error {
	if s == nil {
		return errReleased
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case s.released:
		return errReleased
	case s.list == &h.streams:
		return nil
	case countOf(s.client, h.streams) >= s.process.maxStreams-len(h.streams):
		return busy(StreamsFull, unknownRetry)
	}
	s.moveTo(&h.streams)
	s.returnLease()
	h.dispatch()
	return nil
}

// Release gives back all that the slot holds. Only the first call counts; a nil Slot has
// nothing to give back.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.released {
		return
	}
	h.release(&s.request)
	s.unpin()
	h.dispatch()
}

// Held says what held a request up.
type Held struct {
	Waited  time.Duration // in all, with the waits in Ready
	BackOff time.Duration // the longest rest of a back-off that the request met; zero: none
	Slowed  time.Duration // least time between two requests because of the host's slow answers; zero: they were not slow
	Alone   bool          // it got the permit to send while the Store was away
}

// Held returns what has held the request up until now.
func (s *Slot) Held() Held {
	if s == nil {
		return Held{}
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	return Held{s.waited, s.longestBackOff, s.slowed, s.alone}
}
