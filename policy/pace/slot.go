package pace

import (
	"context"
	"errors"
	"time"
)

var errReleased = errors.New("pace: the slot was given back")

// A Slot is a request's leave to be under way. Each must be released.
type Slot struct {
	host       *host
	limits     Limits
	maxStreams int

	// Guarded by host.mu.
	waited time.Duration
	replay *waiter // while Again waits
	place  bool    // counted in host.places
	stream bool    // counted in host.streams
	unsent bool    // granted and not yet sent: counted in host.rates
	over   bool    // released
}

// Sent says that the request is being written to a ready connection: the gap to the
// next counts from now. A second call, for a replay, counts again. On a slot already
// released it does nothing.
func (s *Slot) Sent() {
	if s == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over {
		return
	}
	h.rates.sent(time.Now()) // under the lock: the limiters want times in order
	h.unbook(s)
	h.dispatch()
}

// Again waits for the right to send once more, before a request is replayed on
// another connection: ahead of the queue, keeping its place. Where the slot has not
// been sent yet it returns at once. After an error, a *BusyError or the context's
// cause, the slot still holds its place and is to be released.
func (s *Slot) Again(ctx context.Context) error {
	if s == nil {
		return errReleased
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.host.mu.Lock()
	w, err := s.host.askAgain(s)
	s.host.mu.Unlock()
	if err != nil || w == nil {
		return err
	}
	return s.host.await(ctx, w)
}

// Detach gives the place to the next and counts the slot as a stream until it is
// released: for an upgraded connection or an event stream, after the head. Where
// Options.MaxStreams are open it is a *BusyError and the slot keeps its place.
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
	case s.stream:
		return nil
	case h.streams >= s.maxStreams:
		return busy(StreamsFull, unknownRetry)
	}
	s.stream = true
	h.streams++
	h.vacate(s)
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
	h.dispatch()
}

// Waited is how long the slot was waited for, with Again's waits.
func (s *Slot) Waited() time.Duration {
	if s == nil {
		return 0
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	return s.waited
}
