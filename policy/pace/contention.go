package pace

import "time"

const (
	// holdSlow is how long a transfer that waits for its own client keeps its concurrency
	// slot while others wait. It is at most a quarter of Limits.MaxWait.
	holdSlow = 5 * time.Second

	// holdAll is how long one client may keep all concurrency slots of a host while
	// others wait, whatever its transfers wait for. It is at most half of Limits.MaxWait.
	holdAll = 30 * time.Second

	// minUpload is the minimum rate of an upload while others wait, in bytes per second.
	// It is twice the default of Apache.
	minUpload = 1 << 10

	// maxYielded is how many transfers of one client may continue at one host without a
	// concurrency slot.
	maxYielded = 1
)

// held returns the number of a client's transfers at the host, with and without a
// concurrency slot.
func (h *host) held(client string) int {
	return countOf(client, h.active) + countOf(client, h.yielded)
}

// countOf returns how many of the requests belong to the client.
func countOf(client string, some []*request) int {
	n := 0
	for _, r := range some {
		if r.client == client {
			n++
		}
	}
	return n
}

// mayStart reports whether r can have a concurrency slot. While other clients wait, one
// client gets at most all slots but one. Its transfers that continue without a slot count
// as well.
func (h *host) mayStart(r *request, now time.Time) bool {
	most := r.maxActive()
	switch {
	case len(h.active) >= most:
		return false
	case len(h.active)+len(h.yielded) < most-1:
		return true
	}
	n := h.held(r.client)
	return n < most && (n < most-1 || most == 1 || !h.othersWait(r.client, now))
}

// othersWait reports whether a request of another client waits for a concurrency slot and
// for nothing else.
func (h *host) othersWait(client string, now time.Time) bool {
	any := h.connects.others(client, now)
	h.queues(func(q *queue) { any = any || q.waiting.others(client, now) })
	return any
}

// blocked returns a request that waits because all concurrency slots are taken, or nil.
func (h *host) blocked() (first *waiter) {
	look := func(q *fairQueue) {
		if len(q.lines) == 0 || first != nil {
			return
		}
		if w := q.lines[0].waiters[0]; len(h.active) >= w.maxActive() {
			first = w
		}
	}
	look(&h.connects)
	h.queues(func(q *queue) { look(&q.waiting) })
	return first
}

// relieve frees a concurrency slot if the transfers of one client keep others waiting. It
// lets one of these transfers continue without a slot. If that is not possible, it returns
// a transfer, which the caller must end without holding the lock.
func (h *host) relieve(now time.Time) Transfer {
	w := h.blocked()
	if w == nil || now.Before(h.sampleAt) {
		return nil
	}
	h.sampleAt = now.Add(sampleEvery)
	slow := min(holdSlow, w.limits.MaxWait/4)
	whole := min(holdAll, w.limits.MaxWait/2)
	var late []*request
	for _, list := range [][]*request{h.active, h.yielded} {
		for _, r := range list {
			if !h.othersWait(r.client, now) {
				continue
			}
			if t, ok := r.transfer.Load().(Transfer); ok {
				r.seen = r.seen.sample(t, now, whole)
			}
			// The concurrency slot of a transfer that is being ended will be free soon.
			if r.seen != nil && now.Sub(r.seen.ended) < slow {
				return nil
			}
			if h.keepsWaiting(r, slow, whole, now) {
				late = append(late, r)
			}
		}
	}
	for _, r := range late {
		if o := r.seen; o.uploads*2 >= o.samples && o.perSecond() < minUpload {
			return r.end(now)
		}
	}
	for _, r := range late {
		if r.list == &h.active && len(h.yielded) < r.maxActive() && countOf(r.client, h.yielded) < maxYielded {
			r.returnLease()
			r.moveTo(&h.yielded)
			return nil
		}
	}
	if r := h.slowestOfLargest(late); r != nil {
		return r.end(now)
	}
	return nil
}

// keepsWaiting reports whether r has kept others waiting for too long: r waits for its own
// client, or its client has all concurrency slots.
func (h *host) keepsWaiting(r *request, slow, whole time.Duration, now time.Time) bool {
	switch {
	case !r.seen.covers(min(slow, whole), now):
		return false
	case r.seen.covers(slow, now) && r.seen.slow*2 >= r.seen.samples:
		return true
	}
	return r.seen.covers(whole, now) && countOf(r.client, h.active) == len(h.active)
}

// slowestOfLargest finds the client with the most transfers at the host and returns the
// slowest of its requests.
func (h *host) slowestOfLargest(some []*request) (worst *request) {
	most := 0
	for _, r := range some {
		n := h.held(r.client)
		if worst == nil || n > most || n == most && r.seen.perSecond() < worst.seen.perSecond() {
			worst, most = r, n
		}
	}
	return worst
}

// end returns the transfer of r, which the caller must end, and notes the time.
func (r *request) end(now time.Time) Transfer {
	r.seen.ended = now
	t, _ := r.transfer.Load().(Transfer)
	return t
}
