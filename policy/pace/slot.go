package pace

import (
	"context"
	"hash/maphash"
	"time"
)

// A Slot is a request's permission to be in flight. Release each Slot. Any number of
// goroutines may share a Slot, but only one at a time may call Ready.
type Slot struct{ request }

// Ready waits for the permit to send. The connection is ready when it is called, for the
// first time or again before a replay on another connection. The request goes before those
// in the queue. If a permit was given and not used, Ready returns at once. The error is a
// *BusyError or the context's cause. The slot then still holds its concurrency slot and
// must be released.
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
	s.host.mu.Lock()
	w, err := s.host.askPermit(&s.request, time.Time{})
	return s.host.await(ctx, &s.request, w, err)
}

// Timely reports whether the permit that Ready gave is still valid. Call it right before
// the first byte is written. If it returns false, call Ready again.
func (s *Slot) Timely() bool {
	if s == nil || s.process.store == nil {
		return true
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	v, now := s.reservation, time.Now()
	switch {
	case s.released:
		return false
	case s.stage != granted, v == nil:
		// There is nothing to wait for.
		return true
	case v.unsent:
		return !v.ended(now)
	}
	return v.under == s.process.alone() && !v.ended(now)
}

// lock returns the host of the slot, locked, or nil if the slot is nil or released.
func (s *Slot) lock() *host {
	if s == nil {
		return nil
	}
	s.host.mu.Lock()
	if s.released {
		s.host.mu.Unlock()
		return nil
	}
	return s.host
}

// Redial reports that the connection failed and another one is being made. It gives back
// an unused permit, so that nobody waits for it. Without a permit it does nothing.
func (s *Slot) Redial() {
	h := s.lock()
	if h == nil {
		return
	}
	defer h.mu.Unlock()
	if s.stage != granted {
		return
	}
	s.dropPermit()
	s.returnLease()
	s.admitted = time.Now()
	// The wait for the new connection and its permit may take as long as the first one.
	s.deadline = s.admitted.Add(s.limits.MaxWait)
	h.startDial(&s.request)
	h.dispatch()
}

// Sent reports that the request is being written: the gap to the next request counts from
// now. A second call, for a replay, counts again. On a released slot it does nothing.
func (s *Slot) Sent() { s.count(false) }

// Written calls Sent if the permit was given and its use was not reported yet. Both the
// connection and the reader of the response call it, because either may come first.
func (s *Slot) Written() { s.count(true) }

func (s *Slot) count(onlyGranted bool) {
	h := s.lock()
	if h == nil {
		return
	}
	defer h.mu.Unlock()
	if onlyGranted && s.stage != granted {
		return
	}
	if onlyGranted {
		h.contacts.use(s.client)
	}
	// The time is read under the lock, because a limiter needs its times in order.
	s.sent = s.process.now()
	// Other requests may have applied other terms since the permit was given.
	s.apply(s.sent)
	s.queue.countSent(&s.request)
	if h.shared {
		s.origin().latency.take(s.sent)
	}
	// A request without a client is the refresh of a robots.txt.
	if s.client != "" {
		h.owner = s.client
	}
	s.dropPermit()
	if v := s.reservation; v != nil {
		v.unsent = false
	}
	h.dispatch()
}

// Answered reports that the head of the response has arrived, or that waiting for it
// failed. fine says that the response is not an error. The Pacer uses it to measure the
// response time of the host, by the path of its URL.
func (s *Slot) Answered(path string, fine bool) {
	if s == nil || !s.limits.Adapt {
		return
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if now := s.process.now(); !s.sent.IsZero() {
		s.origin().latency.note(uint32(maphash.String(s.process.seed, path)), now.Sub(s.sent), fine, now)
	}
}

// Succeeded reports a response 2xx. It shows that the origin serves the client, see BackOff.
func (s *Slot) Succeeded() {
	if s != nil && !s.limits.fetch() {
		s.origin().backOff.serve(s.client, s.process.now())
	}
}

// BackOff reports a response 429 or 503. For retryAfter, at most one hour, no request to
// the host (see [Limits.BackOffKey]) gets a permit. If another client got a 2xx response of
// the host in the last minute, this applies only to the requests of the slot's client, until
// another client gets a 429 or 503 before the back-off ends, or the same client after that.
//
// If retryAfter is zero, the back-off lasts one minute. It doubles with each further incident,
// up to one hour, plus a random part of up to a quarter, and is forgiven after 30 quiet
// minutes. A response is not a
// further incident if its request was sent before the last back-off ended. BackOff refuses
// the waiting requests that would now wait longer than their MaxWait or MaxBackOff. by names
// the request for those that the back-off delays. BackOff returns the remaining back-off, and
// the name of the request that caused it.
func (s *Slot) BackOff(retryAfter time.Duration, by string) (left time.Duration, causedBy string) {
	if s == nil {
		return 0, ""
	}
	h := s.host
	h.mu.Lock()
	i := incident{at: time.Now(), sent: s.sent, asked: retryAfter, chance: s.process.chance(), by: by}
	client := s.client
	if s.limits.fetch() {
		// A robots.txt is fetched for all clients.
		client = ""
	}
	begun, shared := s.origin().backOff.begin(i, client)
	if begun {
		s.process.backOffs.Add(1)
		h.backedOff(i.at)
	}
	b, own := s.origin().backOff.get(), s.backOff()
	h.mu.Unlock()
	if shared && s.process.store != nil {
		s.process.store.Report(Report{Key: s.limits.backOffKey(), BackOff: b.host.remembered(i.at)})
	}
	return own.left(i.at), own.By
}

// Follow sets t as the source of the progress of the slot's request. While other clients
// wait for a concurrency slot, a transfer returns its slot if it waits for its own client,
// or if its client has all slots. If no more transfers may continue without a slot, the
// slowest transfer of the client with the most is ended. Uploads slower than minUpload are
// ended too. A request without a Transfer keeps its concurrency slot as long as it takes.
func (s *Slot) Follow(t Transfer) {
	if s != nil {
		s.transfer.Store(t)
	}
}

// Detach returns the concurrency slot and counts the request as a stream until it is
// released. It is for an upgraded connection or an event stream, after the head of the
// response. A client gets a stream only while it has fewer streams of the host than are
// free, so one client has at most half of Options.MaxStreams. Otherwise Detach returns a
// *BusyError, and the request keeps its concurrency slot.
func (s *Slot) Detach() error {
	h := s.lock()
	if h == nil {
		return errReleased
	}
	defer h.mu.Unlock()
	switch {
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

// Release returns everything that the slot holds. Further calls do nothing, nor does a
// call on a nil Slot.
func (s *Slot) Release() {
	h := s.lock()
	if h == nil {
		return
	}
	defer h.mu.Unlock()
	h.release(&s.request)
	s.unpin()
	h.dispatch()
}

// Held returns what has delayed the request so far.
func (s *Slot) Held() Held {
	if s == nil {
		return Held{}
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	held := s.held
	if !s.sent.IsZero() {
		held.Sent = wallTime(s.sent, time.Now())
	}
	return held
}

// Contacted reports that a connection to the host was tried, and that the request will not be sent. It takes the turn of
// a request unless it is one of the first that the client has caused.
func (s *Slot) Contacted() {
	if s == nil {
		return
	}
	s.host.mu.Lock()
	free := s.host.contacts.add(s.client, time.Now())
	// No request shares the turn of this one, because this one will not be sent.
	s.limits.Shared = s.limits.Shared && free
	s.host.mu.Unlock()
	if !free {
		s.Sent()
	}
}
