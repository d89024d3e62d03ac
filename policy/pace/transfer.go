package pace

import "time"

const (
	// sampleEvery is how often the transfers of a host are looked at while others wait
	// for a place there. While nobody does, nothing is looked at.
	sampleEvery = 250 * time.Millisecond

	// holdSlow is how long a transfer that waits for its own client keeps its place while
	// others wait; at most a fourth of Limits.MaxWait.
	holdSlow = 5 * time.Second

	// holdAll is how long one client keeps all places of a host while others wait,
	// whatever its transfers wait for; at most half of Limits.MaxWait.
	holdAll = 30 * time.Second

	// minUpload is the least rate of an upload while others wait, in bytes a second. It is
	// twice the default of Apache.
	minUpload = 1 << 10

	// maxYielded is how many transfers of one client go on without a place at one host.
	maxYielded = 1
)

// A Transfer is a request under way, as the holder of its slot sees it. Its methods are
// called only while others wait for a place at the host, from any goroutine. Progress is
// called under a lock, and must not wait.
type Transfer interface {
	// Progress gives how many bytes of both bodies have moved so far, and for whom the
	// transfer waits at the moment.
	Progress() (bytes int64, waits Party)

	// End breaks the transfer off, because it is too slow and others wait. It may be
	// called after the slot was released, and does nothing then.
	End()
}

// A Party is the side for which a Transfer waits.
type Party uint8

const (
	Origin   Party = iota // the origin, or nobody
	Reader                // the client, which does not read what has come for it
	Uploader              // the client, which does not send its body
)

// Follow makes t the source of how the slot's request gets on. While other clients wait
// for a place, a transfer that waits for its own client gives its place back, and so does
// a transfer of a client that has all places. If no more transfers may go on without a
// place, the slowest transfer of the client with the most is ended. Uploads below minUpload
// are ended too. A slot without a Transfer keeps its place however long it takes.
func (s *Slot) Follow(t Transfer) {
	if s != nil {
		s.transfer.Store(t)
	}
}

// told gives the Transfer of s; nil: Follow was not called.
func (s *Slot) told() Transfer {
	t, _ := s.transfer.Load().(Transfer)
	return t
}

// An observation is what was seen of a transfer while others waited.
type observation struct {
	since, last time.Time // the first and last of the samples
	from, bytes int64     // bytes that had moved by since and by last
	samples     int
	slow        int       // samples in which the transfer waited for the client
	uploads     int       // samples in which it waited for the client's body
	ended       time.Time // when the transfer was chosen to be ended; zero: it was not
}

// observe takes a sample of the transfer of s. Samples from before a time in which nobody
// waited do not count; old samples count half.
func (s *Slot) observe(now time.Time, long time.Duration) {
	t := s.told()
	if t == nil {
		return
	}
	bytes, waits := t.Progress()
	o := s.seen
	if o == nil || now.Sub(o.last) > 2*sampleEvery {
		o = &observation{since: now, from: bytes}
		s.seen = o
	}
	o.last, o.bytes = now, bytes
	o.samples++
	if waits != Origin {
		o.slow++
	}
	if waits == Uploader {
		o.uploads++
	}
	if age := now.Sub(o.since); age > 2*long {
		o.since, o.from = o.since.Add(age/2), o.bytes-(o.bytes-o.from)/2
		o.samples, o.slow, o.uploads = o.samples/2, o.slow/2, o.uploads/2
	}
}

// perSecond gives how many bytes moved in a second, on average.
func (o *observation) perSecond() float64 {
	return float64(o.bytes-o.from) / max(sampleEvery, o.last.Sub(o.since)).Seconds()
}

// seenFor reports whether s has been observed for at least d, up to now.
func (s *Slot) seenFor(d time.Duration, now time.Time) bool {
	return s.seen != nil && s.seen.last.Equal(now) && now.Sub(s.seen.since) >= d
}

// held gives how many transfers a client has at the host, with and without a place.
func (h *host) held(client string) int {
	return countOf(client, h.places) + countOf(client, h.yielded)
}

// countOf gives how many of some slots are a client's.
func countOf(client string, slots []*Slot) int {
	n := 0
	for _, s := range slots {
		if s.client == client {
			n++
		}
	}
	return n
}

// hasPlace reports whether there is a place for s. While other clients wait, one client has
// at most all places but one; its transfers that go on without a place count as well.
func (h *host) hasPlace(s *Slot, now time.Time) bool {
	most := s.maxPlaces()
	switch {
	case len(h.places) >= most:
		return false
	case len(h.places)+len(h.yielded) < most-1:
		return true
	}
	n := h.held(s.client)
	return n < most && (n < most-1 || most == 1 || !h.othersWait(s.client, now))
}

// othersWait reports whether a request of another client waits only for a place.
func (h *host) othersWait(client string, now time.Time) bool {
	any := h.enters.others(client, now)
	h.lanes(func(ln *lane) { any = any || ln.waits.others(client, now) })
	return any
}

// others reports whether a request of another client waits that neither its own clock nor
// its host's back-off holds up.
func (t *turns) others(client string, now time.Time) bool {
	for _, ln := range t.lines {
		if w, _ := ln.front(now); w != nil && w.slot.client != client && w.slot.ownDue(now) == 0 {
			return true
		}
	}
	return false
}

// lacking gives a request that waits while all places are taken; nil: there is none.
func (h *host) lacking(now time.Time) (first *waiter) {
	look := func(t *turns) {
		if len(t.lines) == 0 || first != nil {
			return
		}
		if w := t.lines[0].waiters[0]; len(h.places) >= w.slot.maxPlaces() {
			first = w
		}
	}
	look(&h.enters)
	h.lanes(func(ln *lane) { look(&ln.waits) })
	return first
}

// relieve frees a place for the requests that one client's transfers keep waiting. One of
// these transfers goes on without a place; or relieve returns one, which the caller ends
// without the lock.
func (h *host) relieve(now time.Time) Transfer {
	w := h.lacking(now)
	if w == nil || now.Before(h.look) {
		return nil
	}
	h.look = now.Add(sampleEvery)
	slow := min(holdSlow, w.slot.limits.MaxWait/4)
	whole := min(holdAll, w.slot.limits.MaxWait/2)
	var late []*Slot
	for _, list := range [][]*Slot{h.places, h.yielded} {
		for _, s := range list {
			if !h.othersWait(s.client, now) {
				continue
			}
			s.observe(now, whole)
			if s.seen != nil && now.Sub(s.seen.ended) < slow {
				return nil // its place is about to be free
			}
			if h.keepsWaiting(s, slow, whole, now) {
				late = append(late, s)
			}
		}
	}
	for _, s := range late {
		if o := s.seen; o.uploads*2 >= o.samples && o.perSecond() < minUpload {
			return s.end(now)
		}
	}
	for _, s := range late {
		if s.list == &h.places && len(h.yielded) < s.maxPlaces() && countOf(s.client, h.yielded) < maxYielded {
			h.handBack(s)
			s.put(&h.yielded)
			return nil
		}
	}
	if s := h.greediest(late); s != nil {
		return s.end(now)
	}
	return nil
}

// keepsWaiting reports whether s has kept others waiting for too long: s waits for its own
// client, or its client has all places.
func (h *host) keepsWaiting(s *Slot, slow, whole time.Duration, now time.Time) bool {
	if !s.seenFor(min(slow, whole), now) {
		return false
	}
	if s.seenFor(slow, now) && s.seen.slow*2 >= s.seen.samples {
		return true
	}
	if !s.seenFor(whole, now) {
		return false
	}
	for _, o := range h.places {
		if o.client != s.client {
			return false
		}
	}
	return true
}

// greediest gives, of some slots, the slowest slot of the client that has the most
// transfers at the host.
func (h *host) greediest(some []*Slot) (worst *Slot) {
	most := 0
	for _, s := range some {
		n := h.held(s.client)
		if worst == nil || n > most || n == most && s.seen.perSecond() < worst.seen.perSecond() {
			worst, most = s, n
		}
	}
	return worst
}

// end gives the transfer of s, which the caller ends, and notes the time.
func (s *Slot) end(now time.Time) Transfer {
	s.seen.ended = now
	return s.told()
}

// put moves s to a list of its host, out of the list that it was in; nil: to none.
func (s *Slot) put(list *[]*Slot) {
	if was := s.list; was != nil {
		last := len(*was) - 1
		moved := (*was)[last]
		(*was)[s.index], moved.index = moved, s.index
		(*was)[last] = nil
		*was = (*was)[:last]
	}
	if s.list = list; list != nil {
		s.index = int32(len(*list))
		*list = append(*list, s)
	}
}
