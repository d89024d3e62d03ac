package pace

import "time"

// A HostState is what the pace of one host is at, to be shown.
type HostState struct {
	Key         string        // Limits.Key
	Waiting     int           // requests in its queues, or for a turn of the Store
	UnderWay    int           // requests that have a place
	Streams     int           // that gave theirs back
	Sent        time.Time     // the last page asked for; zero: none is remembered
	Gap         time.Duration // between two pages, by the limits that were brought last; zero: none were
	NextSlot    time.Time     // when one who asks for a page now might go, as far as the rates tell
	PausedUntil time.Time     // nothing is sent before; zero: no pause
	Slowed      time.Duration // the least time between two requests, since the host answers slowly; zero: it does not
}

// Hosts gives the state of all hosts that are remembered, in no order. It looks at one
// after the other, as Stats does.
func (p *Pacer) Hosts() []HostState {
	now := time.Now()
	all := make([]HostState, 0, p.hosts.known.Load())
	for i := range p.hosts.shards {
		all = p.hosts.shards[i].states(all, now)
	}
	return all
}

func (sh *shard) states(to []HostState, now time.Time) []HostState {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, h := range sh.hosts {
		h.mu.Lock()
		to = append(to, h.state(key, now))
		h.mu.Unlock()
	}
	return to
}

// Host gives the state of one host, and whether the Pacer remembers it. backOffKey is as
// in [Limits].
func (p *Pacer) Host(key, backOffKey string) (HostState, bool) {
	s, known := p.host(key)
	if backOffKey != "" && backOffKey != key {
		apart, any := p.host(backOffKey)
		s.BackedOff(apart)
		known = known || any
	}
	return s, known
}

// BackedOff adds to s the back-off of o, a host that shares the pace of s.
func (s *HostState) BackedOff(o HostState) {
	if o.PausedUntil.After(s.PausedUntil) {
		s.PausedUntil = o.PausedUntil
	}
	if o.PausedUntil.After(s.NextSlot) {
		s.NextSlot = o.PausedUntil
	}
}

func (p *Pacer) host(key string) (HostState, bool) {
	sh := p.hosts.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.hosts[key]
	if h == nil {
		return HostState{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state(key, time.Now()), true
}

func (h *host) state(key string, now time.Time) HostState {
	s := HostState{
		Key:      key,
		Waiting:  h.waits(),
		UnderWay: len(h.places),
		Streams:  len(h.streams) + len(h.yielded),
		Slowed:   h.slow.spacing(now),
	}
	pause := h.pause.get()
	s.NextSlot = now.Add(pause.left(now))
	if r := &h.pages.rates; r.terms != (terms{}) {
		s.Gap = r.terms.interval()
		ahead := r.unsent + r.preparing + h.pages.waits.n
		s.NextSlot = s.NextSlot.Add(min(r.owed(ahead+1, s.NextSlot), maxShown))
	}
	if last := h.pages.rates.last; !last.IsZero() {
		s.Sent = wallTime(last, now)
	}
	if pause.left(now) > 0 {
		s.PausedUntil = wallTime(pause.until, now)
	}
	return s
}

// maxShown bounds how far behind a pause a NextSlot is.
const maxShown = 30 * 24 * time.Hour
