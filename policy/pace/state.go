package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

// maxShown limits how far after a back-off a NextSlot is.
const maxShown = 30 * 24 * time.Hour

// Stats is a summary of all hosts of a Pacer.
type Stats struct {
	// Hosts is the number of hosts in the table.
	Hosts int

	// Waiting is the number of requests in queues, or waiting for a slot of the Store.
	Waiting int

	// UnderWay is the number of requests that hold a concurrency slot.
	UnderWay int

	// Streams is the number of requests that returned their concurrency slot and continue.
	Streams int

	// BackedOff is the number of hosts in a back-off.
	BackedOff int

	// Slowed is the number of hosts whose rate is lowered by slow responses.
	Slowed int

	// BackOffs is the number of back-offs begun so far.
	BackOffs uint64

	// Missed is the number of slots of the Store so far that ended before they were used.
	Missed uint64
}

// Stats returns the sums over all hosts. It locks one host after the other.
func (p *Pacer) Stats() Stats {
	s := Stats{BackOffs: p.backOffs.Load(), Missed: p.missed.Load()}
	now := time.Now()
	p.hosts.each(func(_ string, h *host) {
		s.Hosts++
		n, _ := h.waiters()
		s.Waiting += n
		s.UnderWay += len(h.active)
		s.Streams += len(h.streams) + len(h.yielded)
		if h.backOff.get().host.left(now) > 0 {
			s.BackedOff++
		}
		if h.latency.spacing(now) > 0 {
			s.Slowed++
		}
	})
	return s
}

// A HostState is the state of one host, for display.
type HostState struct {
	// Key is Limits.Key.
	Key string

	// Waiting is the number of requests in the host's queues, or waiting for a slot of the Store.
	Waiting int

	// Since is when the first of them began to wait; zero if none waits.
	Since time.Time

	// UnderWay is the number of requests that hold a concurrency slot.
	UnderWay int

	// Streams is the number of requests that returned their concurrency slot and continue.
	Streams int

	// Sent is when the last request for a page was sent; zero if none is remembered.
	Sent time.Time

	// Gap is the time between two pages, under the Limits of the last request; zero if there was none.
	Gap time.Duration

	// NextSlot is when a new request for a page could be sent, as far as the rates tell.
	NextSlot time.Time

	// BackOffUntil is the end of the back-off; zero if there is none.
	BackOffUntil time.Time

	// BackOffBy is the cause of the back-off, see BackOff.By.
	BackOffBy string

	// Slowed is the least time between two requests because the host responds slowly; zero if it does not.
	Slowed time.Duration
}

// Hosts returns the state of all hosts in the table, in no order. It locks one host after
// the other, as Stats does.
func (p *Pacer) Hosts() []HostState {
	now := time.Now()
	all := make([]HostState, 0, p.hosts.known.Load())
	p.hosts.each(func(key string, h *host) { all = append(all, h.state(key, now)) })
	return all
}

// Host returns the state of one host, and whether the Pacer knows it. backOffKey has the
// meaning of [Limits.BackOffKey].
func (p *Pacer) Host(key, backOffKey string) (HostState, bool) {
	s, known := p.host(key)
	if backOffKey != "" && backOffKey != key {
		other, any := p.host(backOffKey)
		s.BackedOff(other)
		known = known || any
	}
	return s, known
}

// A ClientBackOff is the back-off of one client at a host, for display.
type ClientBackOff struct {
	// Client is the client's name, as in Wait.
	Client string
	Until  time.Time

	// By is BackOff.By.
	By string
}

// ClientBackOffs returns the clients that have a back-off of their own at a host. key is as
// [Limits.BackOffKey].
func (p *Pacer) ClientBackOffs(key string) (all []ClientBackOff) {
	h := p.hosts.lockKnown(key)
	if h == nil {
		return nil
	}
	defer h.mu.Unlock()
	now := time.Now()
	for _, c := range h.backOff.get().clients {
		if c.left(now) > 0 {
			all = append(all, ClientBackOff{c.client, wallTime(c.Until, now), c.By})
		}
	}
	return all
}

// BackedOff adds to s the back-off and the slowness of o, a host that shares the rate of s.
func (s *HostState) BackedOff(o HostState) {
	if o.BackOffUntil.After(s.BackOffUntil) {
		s.BackOffUntil, s.BackOffBy = o.BackOffUntil, o.BackOffBy
	}
	s.Slowed = max(s.Slowed, o.Slowed)
	s.NextSlot = limiter.Later(s.NextSlot, o.BackOffUntil)
}

func (p *Pacer) host(key string) (HostState, bool) {
	h := p.hosts.lockKnown(key)
	if h == nil {
		return HostState{}, false
	}
	defer h.mu.Unlock()
	return h.state(key, time.Now()), true
}

func (h *host) state(key string, now time.Time) HostState {
	s := HostState{
		Key:      key,
		UnderWay: len(h.active),
		Streams:  len(h.streams) + len(h.yielded),
		Slowed:   h.latency.spacing(now),
	}
	s.Waiting, s.Since = h.waiters()
	b := h.backOff.get().host
	s.NextSlot = now.Add(b.left(now))
	if l := &h.pages.limiter; l.terms != (terms{}) {
		s.Gap = l.terms.interval()
		ahead := l.unsent + l.preparing + h.pages.waiting.size()
		s.NextSlot = s.NextSlot.Add(min(l.wait(ahead+1, s.NextSlot), maxShown))
	}
	if last := h.pages.limiter.last; !last.IsZero() {
		s.Sent = wallTime(last, now)
	}
	if b.left(now) > 0 {
		s.BackOffUntil, s.BackOffBy = wallTime(b.Until, now), b.By
	}
	return s
}
