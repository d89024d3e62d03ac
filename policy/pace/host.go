package pace

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A host is the record of one key: what was sent, who is under way, who waits.
type host struct {
	mu   sync.Mutex // guards all below; no other lock is taken under it
	gone bool       // forgotten: to be looked up anew

	rates   rates
	pause   pause
	places  int
	streams int

	replays []*waiter // Again: before everyone
	waits   turns     // Wait
	enters  turns     // Enter: not held up by a rate
	timer   *time.Timer
}

func (h *host) queued() int { return len(h.replays) + h.waits.n + h.enters.n }

// ask grants s at once, or enqueues it (the waiter is to be awaited), or refuses it.
func (h *host) ask(s *Slot, client string, rated bool) (*waiter, error) {
	now, l := time.Now(), &s.limits
	queue := &h.enters
	if rated {
		queue = &h.waits
	}
	held := queue.n > 0 || h.places >= l.MaxConcurrent || h.pause.left(now) > 0
	if !rated {
		h.rates.apply(l, now) // so that there are limiters to count what is sent
	}
	if rated && !held {
		held = len(h.replays) > 0 || h.rates.due(l, now) > 0
	}
	if !held {
		h.grant(s, rated, true)
		return nil, nil
	}
	est := h.estimate(l, client, rated, now)
	if est > l.MaxWait || l.MaxWait <= 0 {
		return nil, busy(WaitTooLong, est)
	}
	if h.waits.n+h.enters.n >= l.MaxQueue {
		return nil, busy(QueueFull, est)
	}
	w := newWaiter(s, now)
	w.client, w.queue, w.rated, w.placed = client, queue, rated, true
	queue.push(w)
	h.dispatch()
	return w, nil
}

// askAgain is ask for a slot that has its place.
func (h *host) askAgain(s *Slot) (*waiter, error) {
	now, l := time.Now(), &s.limits
	switch {
	case s.over:
		return nil, errReleased
	case s.unsent:
		return nil, nil
	case len(h.replays) == 0 && h.pause.left(now) == 0 && h.rates.due(l, now) == 0:
		h.grant(s, true, false)
		return nil, nil
	}
	est := h.rates.forecast(l, len(h.replays), now, h.pause.until)
	if est > l.MaxWait || l.MaxWait <= 0 {
		return nil, busy(WaitTooLong, est)
	}
	w := newWaiter(s, now)
	w.rated = true
	s.replay = w
	h.replays = append(h.replays, w)
	h.dispatch()
	return w, nil
}

func newWaiter(s *Slot, now time.Time) *waiter {
	return &waiter{slot: s, since: now, deadline: now.Add(s.limits.MaxWait), ready: make(chan struct{})}
}

// estimate is how long one of client's would wait who came now, as far as the rates
// tell: how long places stay taken is not known.
func (h *host) estimate(l *Limits, client string, rated bool, now time.Time) time.Duration {
	if !rated {
		return h.pause.left(now)
	}
	return h.rates.forecast(l, len(h.replays)+h.waits.ahead(client), now, h.pause.until)
}

// await returns when w is granted or refused, its time is over, or ctx ends.
func (h *host) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(w.deadline.Sub(w.since))
	defer timer.Stop()
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		h.withdraw(w)
		return context.Cause(ctx)
	case <-timer.C:
		return h.expire(w)
	}
}

// withdraw gives back what w has: its place in the queue, or its slot.
func (h *host) withdraw(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !w.done:
		h.remove(w)
	case w.err == nil && w.placed:
		h.release(w.slot)
	case w.err == nil:
		h.unbook(w.slot)
	}
	h.dispatch()
}

// expire refuses w, unless its turn comes at this very moment.
func (h *host) expire(w *waiter) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dispatch()
	if w.done {
		return w.err
	}
	h.remove(w)
	h.dispatch()
	return busy(WaitTooLong, h.estimate(&w.slot.limits, w.client, w.rated, time.Now()))
}

// remove takes w out of the queue it stands in.
func (h *host) remove(w *waiter) {
	if w.queue != nil {
		w.queue.remove(w)
		return
	}
	w.slot.replay = nil
	i := slices.Index(h.replays, w)
	h.replays = slices.Delete(h.replays, i, i+1)
}

// dispatch grants what can be granted now and sets the timer for what time will
// permit. Whatever else frees something, or leaves the queue, calls it.
func (h *host) dispatch() {
	wake := never
	for h.queued() > 0 {
		now := time.Now()
		w, after := h.next(now)
		if w == nil {
			wake = after
			break
		}
		if w.queue != nil {
			w.queue.pop()
		} else {
			h.remove(w)
		}
		h.grant(w.slot, w.rated, w.placed)
		w.slot.waited += now.Sub(w.since)
		w.finish(nil)
	}
	switch {
	case wake == never && h.timer != nil:
		h.timer.Stop()
	case wake == never:
	case h.timer == nil:
		h.timer = time.AfterFunc(wake, h.tick)
	default:
		h.timer.Reset(wake)
	}
}

func (h *host) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dispatch()
}

// next is who may go now, or after how long it is worth looking again.
func (h *host) next(now time.Time) (*waiter, time.Duration) {
	if d := h.pause.left(now); d > 0 {
		return nil, d
	}
	wake := never
	rated := h.waits.front()
	if rated != nil && h.places >= rated.slot.limits.MaxConcurrent {
		rated = nil
	}
	if len(h.replays) > 0 {
		rated = h.replays[0]
	}
	if rated != nil {
		if d := h.rates.due(&rated.slot.limits, now); d > 0 {
			rated, wake = nil, d
		}
	}
	enter := h.enters.front()
	if enter != nil && h.places >= enter.slot.limits.MaxConcurrent {
		enter = nil
	}
	if rated == nil || enter != nil && enter.since.Before(rated.since) {
		rated = enter // both want the place: the one who has waited longer
	}
	return rated, wake
}

func (h *host) grant(s *Slot, rated, placed bool) {
	if placed {
		s.place = true
		h.places++
	}
	if rated && !s.unsent {
		s.unsent = true
		h.rates.unsent++
		if s.limits.spacing() > 0 {
			h.rates.strict++
		}
	}
}

// unbook takes back a right that was used or will not be.
func (h *host) unbook(s *Slot) {
	if !s.unsent {
		return
	}
	s.unsent = false
	h.rates.unsent--
	if s.limits.spacing() > 0 {
		h.rates.strict--
	}
}

func (h *host) vacate(s *Slot) {
	if s.place {
		s.place = false
		h.places--
	}
}

// release takes back all that s holds. The caller dispatches.
func (h *host) release(s *Slot) {
	s.over = true
	h.unbook(s)
	h.vacate(s)
	if s.stream {
		s.stream = false
		h.streams--
	}
	if w := s.replay; w != nil {
		h.remove(w)
		w.finish(errReleased)
	}
}

// refuseLate refuses all who would wait beyond their time, now that a pause began.
func (h *host) refuseLate(now time.Time) {
	ahead := 0
	late := func(w *waiter, est time.Duration) bool {
		if est <= w.deadline.Sub(now) {
			return false
		}
		h.remove(w)
		w.finish(busy(WaitTooLong, est))
		return true
	}
	for _, w := range append(slices.Clone(h.replays), h.waits.inOrder()...) {
		if !late(w, h.rates.forecast(&w.slot.limits, ahead, now, h.pause.until)) {
			ahead++
		}
	}
	for _, w := range h.enters.inOrder() {
		late(w, h.pause.left(now))
	}
}

// dismiss refuses all who wait.
func (h *host) dismiss(err error) {
	for _, w := range slices.Concat(h.replays, h.waits.inOrder(), h.enters.inOrder()) {
		h.remove(w)
		w.finish(err)
	}
	h.dispatch()
}

// idle says that forgetting h can shorten nobody's wait.
func (h *host) idle(now time.Time) bool {
	return h.places == 0 && h.streams == 0 && h.queued() == 0 && h.pause.forgiven(now) && h.rates.rested(now)
}
