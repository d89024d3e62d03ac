package pace

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

var errReleased = errors.New("pace: the slot was given back")

// A stage is how far a slot is on its way to being sent.
type stage uint8

const (
	idle      stage = iota // on none: only dialling, or sent
	preparing              // may soon ask for the right to send; counted in rates.preparing
	granted                // has the right, and has not sent; counted in rates.unsent
)

// A Slot is a request's leave to be under way. Each must be released.
type Slot struct {
	pacer  *Pacer
	host   *host
	apart  *host // the host whose back-off counts, see Limits.BackOffKey; nil: host
	limits Limits
	client string

	transfer atomic.Value // a Transfer; none: Follow was not called

	// Guarded by host.mu.
	lane     *lane
	own      *rates // the client's clock, if it has one
	waiter   *waiter
	stage    stage
	strict   bool     // granted under a gap
	over     bool     // released
	alone    bool     // see Held
	index    int32    // in list
	list     *[]*Slot // the list of the host that the slot is in; nil: none
	seen     *observation
	deadline time.Time
	admitted time.Time
	sent     time.Time // last; zero: not yet
	waited   time.Duration
	paused   time.Duration // see Held
	slowed   time.Duration // likewise
}

// pause gives the back-off that s follows.
func (s *Slot) pause() *currentPause {
	if s.apart != nil {
		return &s.apart.pause
	}
	return &s.host.pause
}

// unpin permits to forget the host of the back-off; s is not used any more.
func (s *Slot) unpin() {
	if s.apart != nil {
		s.apart.pins.Add(-1)
	}
}

// each calls f for the clocks that s goes by.
func (s *Slot) each(f func(*rates)) {
	f(&s.lane.rates)
	if s.own != nil {
		f(s.own)
	}
}

// Ready waits, on a connection that is ready, for the right to send: for the first
// time, or once more before a request is replayed on another connection. It comes
// before those in the queue. Where the right was given and not used it returns at
// once. After an error, a *BusyError or the context's cause, the slot still holds
// its place and is to be released. A slot is in one call of Ready at a time.
func (s *Slot) Ready(ctx context.Context) error {
	if s == nil {
		return errReleased
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.pacer.store != nil {
		return s.book(ctx)
	}
	return s.right(ctx, time.Time{})
}

// right is Ready as far as this process is concerned.
func (s *Slot) right(ctx context.Context, until time.Time) error {
	h := s.host
	h.mu.Lock()
	w, err := h.askReady(s, until)
	if w != nil && s.pacer.closed.Load() {
		h.dismiss(ErrClosed)
	}
	h.mu.Unlock()
	if err != nil || w == nil {
		return err
	}
	return h.await(ctx, w)
}

// Redial says that another connection is being made, since the one that the slot was
// ready on was no good: a right to send that was not used is given back, so that nobody
// waits for it in vain. Else it does nothing.
func (s *Slot) Redial() {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over || s.stage != granted {
		return
	}
	h.unbook(s)
	h.handBack(s)
	s.admitted = time.Now()
	s.deadline = s.admitted.Add(s.limits.MaxWait) // it has done its waiting, and waits anew
	h.letGo(s)
	h.dispatch()
}

// Sent says that the request is being written: the gap to the next counts from now.
// A second call, for a replay, counts again. On a slot already released it does
// nothing.
func (s *Slot) Sent() { s.count(false) }

// Written is Sent where the right to send was given and nobody has said yet that it
// was used, and else does nothing. It is for all who learn that the request was
// written: the connection, and whoever has the answer, which may come first.
func (s *Slot) Written() { s.count(true) }

func (s *Slot) count(onlyGranted bool) {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over || onlyGranted && s.stage != granted {
		return
	}
	s.sent = s.pacer.now() // under the lock: the limiters want times in order
	s.apply(s.sent)        // by which it was granted
	s.countSent()
	if s.client != "" { // without a client it is the refresh of a robots.txt
		h.owner = s.client
	}
	h.unbook(s)
	if b := s.booking(); b != nil {
		b.unsent = false
	}
	h.dispatch()
}

// countSent counts the sent request in the clocks of s. A request that shares the slot of a
// fetch is counted together with the fetch, and the next gap begins with the request.
func (s *Slot) countSent() {
	ln := s.lane
	before := ln.rates.last
	if ln.shared && s.limits.follows() && s.sent.Sub(before) < ln.rates.terms.interval() {
		ln.rates.followed(s.sent)
	} else {
		ln.rates.sent(s.sent)
	}
	if s.own != nil {
		s.own.sent(s.sent)
	}
	ln.shared, ln.before = s.limits.Shared && s.pacer.store == nil, before
}

// Answered says that the head of the answer has come, or that it has been waited
// for in vain; fine, that it is no error. It is how slow answers are noticed.
func (s *Slot) Answered(fine bool) {
	if s == nil || !s.limits.Adapt {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := s.pacer.now(); !s.sent.IsZero() {
		h.slow.note(now.Sub(s.sent), fine, now)
	}
}

// BackOff says that the answer was 429 or 503: nothing more is granted for the host (see
// [Limits.BackOffKey]) until retryAfter is over, one hour at most. Zero means that the
// origin named no time: then it is a minute, doubled up to an hour with each further incident, up
// to a fourth longer by chance, and forgiven after 30 quiet minutes. An answer is
// no further incident where its request was sent before the last pause ended. Who
// would now wait longer than its MaxWait is refused. It gives how long the pause
// still is.
func (s *Slot) BackOff(retryAfter time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	h := s.host
	h.mu.Lock()
	now, chance := time.Now(), s.pacer.chance()
	begun := s.pause().change(func(p *pause) bool { return p.begin(now, s.sent, retryAfter, chance) })
	if begun {
		s.pacer.backOffs.Add(1)
		h.paused(now)
	}
	p := s.pause().get()
	h.mu.Unlock()
	if begun && s.pacer.store != nil {
		s.pacer.store.Report(Report{Key: s.limits.backOffKey(), Backoff: p.backoff(now)})
	}
	return p.left(now)
}

// Detach gives the place to the next and counts the slot as a stream until it is
// released: for an upgraded connection or an event stream, after the head. A client gets a
// stream only while it has fewer streams of the host than are free, so that one client has at
// most half of Options.MaxStreams. Else Detach gives a *BusyError, and the slot keeps its
// place.
func (s *Slot) Detach() error {
	if s == nil {
		return errReleased
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case s.over:
		return errReleased
	case s.list == &h.streams:
		return nil
	case countOf(s.client, h.streams) >= s.pacer.maxStreams-len(h.streams):
		return busy(StreamsFull, unknownRetry)
	}
	s.put(&h.streams)
	h.handBack(s)
	h.dispatch()
	return nil
}

// Release gives back all that the slot holds. Only the first call counts; a nil Slot
// has nothing to give.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over {
		return
	}
	h.release(s)
	s.unpin()
	h.dispatch()
}

// Held says what held a slot up.
type Held struct {
	Waited time.Duration // in all, with Ready's waits
	Paused time.Duration // of the longest pause of the host that it came upon, what was left; zero: none
	Slowed time.Duration // the least time between two requests that the host's slow answers permitted; zero: they were not slow
	Alone  bool          // it was given the right to send while the Store was away
}

// Held says what has held the slot up until now.
func (s *Slot) Held() Held {
	if s == nil {
		return Held{}
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	return Held{s.waited, s.paused, s.slowed, s.alone}
}
