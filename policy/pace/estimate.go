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
func (s *Slot) terms(now time.Time) terms {
	var spacing time.Duration
	if s.limits.Adapt {
		spacing = s.host.slow.spacing(now)
	}
	t := s.limits.terms(spacing)
	if s.pacer.store == nil {
		return t
	}
	return s.pacer.portion(t)
}

// ownTerms are those of its client's own clock.
func (s *Slot) ownTerms() terms {
	if s.pacer.store != nil {
		return s.pacer.portion(s.limits.Client.terms())
	}
	return s.limits.Client.terms()
}

// maxPlaces is how many may be under way at once, by the limits of s.
func (s *Slot) maxPlaces() int {
	if s.pacer.store != nil {
		return s.pacer.places(s.limits.MaxConcurrent)
	}
	return s.limits.MaxConcurrent
}

// interval is how long s keeps the next one waiting where many do.
func (s *Slot) interval(now time.Time) time.Duration { return s.terms(now).interval() }

// apply puts the terms of s in force on its clocks.
func (s *Slot) apply(now time.Time) {
	s.lane.rates.apply(s.terms(now), now)
	if s.own != nil {
		s.own.apply(s.ownTerms(), now)
	}
}

// due is how long until s may be given the right to send.
func (s *Slot) due(now time.Time) time.Duration {
	d := s.lane.rates.due(s.terms(now), now)
	if wait, ok := s.lane.follows(s, 0, now); ok {
		d = min(d, wait)
	}
	return max(d, s.ownDue(now))
}

// ownDue gives how long s is held up by what does not hold up the requests that wait with
// it: its client's own clock, and the back-off of its host if others do not share that.
func (s *Slot) ownDue(now time.Time) time.Duration {
	var d time.Duration
	if s.apart != nil {
		d = s.apart.pause.left(now)
	}
	if s.own != nil {
		d = max(d, s.own.due(s.ownTerms(), now))
	}
	return d
}

// soon is how long until the turn of s, were it let go now.
func (h *host) soon(s *Slot, now time.Time) time.Duration {
	ahead, _ := s.lane.ahead(now, h.leadTime())
	d := h.forecast(s, ahead, now)
	if s.own != nil {
		d = max(d, s.own.forecast(s.ownTerms(), s.own.preparing, now, now))
	}
	return d
}

// forecast is how long s waits behind so many others of its lane, as far as its
// clock tells.
func (h *host) forecast(s *Slot, ahead int, now time.Time) time.Duration {
	start := s.pause().get().until
	d := s.lane.rates.forecast(s.terms(now), ahead, now, start)
	if wait, ok := s.lane.follows(s, ahead, now); ok {
		d = min(d, max(wait, start.Sub(now)))
	}
	return d
}

// behind is forecast where the others take so much more time than as many like s, or
// less, and those of other processes as much as they did lately.
func (h *host) behind(s *Slot, ahead int, more time.Duration, now time.Time) time.Duration {
	d := h.forecast(s, ahead, now)
	if d > never-max(0, more) {
		return never
	}
	d = max(d+more, h.forecast(s, 0, now))
	if h.fleet != nil && !s.pacer.store.Standing().Alone {
		d = h.fleet.crowded(d, s.pause().left(now), now)
	}
	return d
}

// estimate is how long s would wait that came now, as far as the rates tell: how
// long places stay taken is not known.
func (h *host) estimate(s *Slot, rated bool, now time.Time) time.Duration {
	if !rated {
		return s.pause().left(now)
	}
	ln := s.lane
	ahead, more := ln.readyAhead(s, now)
	for _, o := range ln.dialing {
		ahead++
		more += o.interval(now) - s.interval(now)
	}
	ahead, more = ln.waits.ahead(s, ahead, more, now)
	d := h.behind(s, ahead, more, now)
	if s.own != nil {
		d = max(d, s.own.forecast(s.ownTerms(), s.own.preparing+ln.waits.of(s.client), now, s.pause().get().until))
	}
	return d
}

// busy is the refusal of one who may wait for most, and would have to for wait. Where
// it is the places that are not given back, all that can be known is how long that has
// gone on.
func (h *host) busy(s *Slot, now time.Time, wait, most time.Duration) *BusyError {
	e := &BusyError{RetryAfter: wait, Pause: s.pause().left(now)}
	if s.limits.Adapt {
		e.Slowed = h.slow.spacing(now)
	}
	if s.pacer.store != nil {
		e.Alone = s.pacer.store.Standing().Alone
	}
	switch {
	case e.Pause > 0 && e.Pause >= most:
		e.Reason = BackedOff
	case wait > most || s.list != nil || h.hasPlace(s, now):
		e.Reason = WaitTooLong
	default:
		e.Reason = PlacesTaken
	}
	if s.list == nil && !h.hasPlace(s, now) && len(h.expiry) > 0 {
		e.RetryAfter = max(e.RetryAfter, now.Sub(h.expiry[0].since))
	}
	e.RetryAfter = max(e.RetryAfter, minRetry)
	return e
}
