package pace

import "time"

// How long before its turn a request is let go to make its connection ready, by
// what that has lately taken at the host, is within these.
const (
	minLead = 5 * time.Millisecond
	maxLead = 2 * time.Second
)

// leadTime is how long before its turn a request is let go: a fourth longer than was
// needed.
func (h *host) leadTime() time.Duration { return min(max(h.lead+h.lead/4, minLead), maxLead) }

// terms are those of s now.
func (s *Slot) terms(now time.Time) terms { return s.limits.terms(s.host.slow.spacing(now)) }

// apply puts the terms of s in force on its clocks.
func (s *Slot) apply(now time.Time) {
	s.lane.rates.apply(s.terms(now), now)
	if s.own != nil {
		s.own.apply(s.limits.Client.terms(), now)
	}
}

// due is how long until s may be given the right to send.
func (h *host) due(s *Slot, now time.Time) time.Duration {
	d := s.lane.rates.due(s.terms(now), now)
	if s.own != nil {
		d = max(d, s.own.due(s.limits.Client.terms(), now))
	}
	return d
}

// soon is how long until the turn of s, were it let go now.
func (h *host) soon(s *Slot, now time.Time) time.Duration {
	ahead, _ := s.lane.ahead(now, 2*h.leadTime())
	d := h.forecast(s, ahead, now)
	if s.own != nil {
		d = max(d, s.own.forecast(s.limits.Client.terms(), s.own.preparing, now, now))
	}
	return d
}

// forecast is how long s waits behind so many others of its lane, as far as its
// clock tells.
func (h *host) forecast(s *Slot, ahead int, now time.Time) time.Duration {
	return s.lane.rates.forecast(s.terms(now), ahead, now, h.pause.until)
}

// estimate is how long s would wait that came now, as far as the rates tell: how
// long places stay taken is not known.
func (h *host) estimate(s *Slot, rated bool, now time.Time) time.Duration {
	if !rated {
		return h.pause.left(now)
	}
	ln := s.lane
	ahead := ln.waits.ahead(s.client, now, func(n int) time.Duration { return h.forecast(s, ln.rates.preparing+n, now) })
	d := h.forecast(s, ln.rates.preparing+ahead, now)
	if s.own != nil {
		d = max(d, s.own.forecast(s.limits.Client.terms(), s.own.preparing+ln.waits.of(s.client), now, h.pause.until))
	}
	return d
}

// busy is the refusal of one who would wait so long.
func (h *host) busy(now time.Time, wait time.Duration) error {
	if h.pause.left(now) > 0 {
		return busy(BackedOff, wait)
	}
	return busy(WaitTooLong, wait)
}
