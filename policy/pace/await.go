package pace

import (
	"container/heap"
	"context"
	"slices"
	"time"
)

// enqueue has w wait: in the queue for a place, or with a connection that is ready.
func (h *host) enqueue(w *waiter) {
	if w.queue != nil {
		w.queue.push(w)
	} else {
		w.slot.waiter = w
		w.slot.lane.ready = append(w.slot.lane.ready, w)
	}
	heap.Push(&h.expiry, w)
	w.slot.paused = max(w.slot.paused, w.slot.pause().left(w.since))
	h.dispatch()
}

// await returns when w is let go or refused, or ctx ends.
func (h *host) await(ctx context.Context, w *waiter) error {
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		h.withdraw(w)
		return context.Cause(ctx)
	}
}

// withdraw gives back what w has: its place in the queue, or its slot.
func (h *host) withdraw(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !w.done:
		h.remove(w, time.Now())
	case w.err == nil && w.queue != nil:
		h.release(w.slot)
	case w.err == nil:
		h.unbook(w.slot)
	}
	h.dispatch()
}

// expire refuses one whose time is over, and says whether there was one; else it says
// how long there will be none.
func (h *host) expire(now time.Time) (wake time.Duration, any bool) {
	if len(h.expiry) == 0 {
		return never, false
	}
	w := h.expiry[0]
	if d := w.until.Sub(now); d > 0 {
		return d, false
	}
	h.remove(w, now)
	e := h.busy(w.slot, now, h.estimate(w.slot, w.rated, now), w.until.Sub(w.since))
	if e.Reason == PlacesTaken {
		e.RetryAfter = max(e.RetryAfter, now.Sub(w.since))
	}
	w.finish(e)
	return 0, true
}

// remove takes w out of where it waits.
func (h *host) remove(w *waiter, now time.Time) {
	w.slot.waited += now.Sub(w.since)
	heap.Remove(&h.expiry, w.index)
	if w.queue != nil {
		w.queue.remove(w)
		return
	}
	s := w.slot
	s.waiter = nil
	i := slices.Index(s.lane.ready, w)
	s.lane.ready = slices.Delete(s.lane.ready, i, i+1)
	h.unbook(s)
}

// refuseLate refuses all who would wait beyond their time, now that a pause began.
func (h *host) refuseLate(now time.Time) {
	late := func(w *waiter, est time.Duration) bool {
		if est <= w.until.Sub(now) {
			w.slot.paused = max(w.slot.paused, w.slot.pause().left(now))
			return false
		}
		h.remove(w, now)
		w.finish(h.busy(w.slot, now, est, w.until.Sub(now)))
		return true
	}
	h.lanes(func(ln *lane) {
		dialling := len(ln.dialing)
		ahead, others := 0, time.Duration(0) // of those who go on waiting, and what they take
		for _, w := range append(slices.Clone(ln.ready), ln.waits.inOrder()...) {
			own := w.slot.interval(now)
			if !late(w, h.behind(w.slot, dialling+ahead, others-time.Duration(ahead)*own, now)) && w.slot.ownDue(now) <= h.leadTime() {
				ahead++
				others += own
			}
		}
	})
	for _, w := range h.enters.inOrder() {
		late(w, w.slot.pause().left(now))
	}
}

// paused is for when a pause has begun, or become longer.
func (h *host) paused(now time.Time) {
	h.refuseLate(now)
	h.dispatch()
	h.rouse()
}

// dismiss refuses all who wait. Those who wait for a turn of a Store look by themselves.
func (h *host) dismiss(err error) {
	for now := time.Now(); len(h.expiry) > 0; {
		w := h.expiry[0]
		h.remove(w, now)
		w.finish(err)
	}
	h.dispatch()
	h.rouse()
}
