package pace

import "time"

// A Clock is what the next process has to know of a host: all that may still hold up the
// host's next request. Its times are the wall clock's. The limiter of a client's own rate
// ([Limits.Client]) is not part of it, because it protects no host.
type Clock struct {
	Key        string        `json:"key"`                  // Limits.Key
	Sent       time.Time     `json:"sent,omitzero"`        // the last request; zero: none that counts
	AssetsSent time.Time     `json:"assets_sent,omitzero"` // the last request by the limiter of the host's assets; zero: none that counts
	Gap        time.Duration `json:"gap_ns,omitzero"`      // how long from then they may hold up others: the longest gap, or until the burst is whole

	BackOffUntil  time.Time     `json:"paused_until,omitzero"`    // the end of the last back-off, see [Slot.BackOff]; zero: there was none, or it is forgiven
	BackOffLength time.Duration `json:"pause_length_ns,omitzero"` // the last back-off that the proxy chose itself, which the next one doubles; zero: none

	SlowAverage time.Duration `json:"slow_average_ns,omitzero"` // of how long the host's answers took; zero: not slow
	AnsweredAt  time.Time     `json:"answered_at,omitzero"`     // the last of these
}

// Until returns when c is of no more use: from then on it holds up no request, and nothing
// of it is remembered.
func (c *Clock) Until() time.Time {
	var latest time.Time
	for _, of := range []struct {
		begun time.Time
		lasts time.Duration
	}{{c.Sent, max(c.Gap, minQuiet)}, {c.AssetsSent, max(c.Gap, minQuiet)}, {c.BackOffUntil, backOffMemory}, {c.AnsweredAt, slowFor}} {
		if end := of.begun.Add(of.lasts); !of.begun.IsZero() && end.After(latest) {
			latest = end
		}
	}
	return latest
}

// Clocks returns the clocks of all hosts that may hold up a request at now or later and
// have changed at since or after. A zero since returns all of them: other clocks that were
// stored need not be kept. now is the time of the call. A caller that calls again with it
// for since misses no change. Clocks looks at one host after the other, as Stats does.
func (p *Pacer) Clocks(now, since time.Time) []Clock {
	var all, some []Clock
	for i := range p.hosts.shards {
		some = some[:0]
		p.hosts.shards[i].each(func(key string, h *host) {
			if !h.changedSince(since) {
				return
			}
			if c := h.clock(now); c != (Clock{}) {
				c.Key = key
				some = append(some, c)
			}
		})
		all = append(all, some...) // which may take long: under no lock
	}
	return all
}

// changedSince reports whether a request was sent or answered, or a back-off began, at since
// or after.
func (h *host) changedSince(since time.Time) bool {
	changed := !h.latency.at.Before(since) || !h.backOff.get().begun.Before(since)
	h.queues(func(q *queue) { changed = changed || !q.limiter.last.Before(since) })
	return changed
}

// clock returns the Clock of h but for its key, or the zero Clock if it holds up nobody.
func (h *host) clock(now time.Time) Clock {
	var c Clock
	if l := &h.pages.limiter; l.holds(now) {
		c.Sent, c.Gap = wallTime(l.last, now), l.reach()
	}
	if h.assets != nil && h.assets.limiter.holds(now) {
		l := &h.assets.limiter
		c.AssetsSent, c.Gap = wallTime(l.last, now), max(c.Gap, l.reach())
	}
	if h.latency.spacing(now) > 0 {
		c.SlowAverage, c.AnsweredAt = h.latency.average, wallTime(h.latency.at, now)
	}
	if b := h.backOff.get(); !b.forgiven(now) {
		c.BackOffUntil, c.BackOffLength = wallTime(b.until, now), b.length
	}
	return c
}

// Restore takes over the clocks of a process before this one, and is called before the
// first Wait. The gap to the next request counts from the last one before, under the next
// one's own limits, and the burst as spent then: a restart lets no additional request out.
// If the wall clock was set back meanwhile, a time in the future counts as now, and a
// back-off ends in an hour at the latest; if it was set forward, more time seems to have
// passed. Of more than Options.MaxHosts clocks, those that would hold up requests for
// longest are left out. A restored host counts against no client until a client asks for
// it.
func (p *Pacer) Restore(clocks []Clock) {
	now := time.Now()
	for i := range clocks {
		if h := p.hosts.lock(clocks[i].Key); h != nil {
			h.restore(&clocks[i], now)
			h.mu.Unlock()
		}
	}
}

func (h *host) restore(c *Clock, now time.Time) {
	h.pages.limiter.restore(c.Sent, c.Gap, now)
	if !c.AssetsSent.IsZero() {
		h.assetQueue().limiter.restore(c.AssetsSent, c.Gap, now)
	}
	h.latency = latency{c.SlowAverage, localTime(c.AnsweredAt, now, now)}
	h.backOff.held.Store(&backOff{until: localTime(c.BackOffUntil, now, now.Add(maxBackOff)), length: min(max(0, c.BackOffLength), maxBackOff)})
}
