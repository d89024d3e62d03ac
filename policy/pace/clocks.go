package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

// maxPresumed is the longest gap that [Options.Since] counts for.
const maxPresumed = time.Minute

// A Clock is what a host's pace has to outlive the process for: all that may still
// hold up its next request. Its times are the wall clock's. A client's own clock
// ([Limits.Client]) is not part of it: it protects no host.
type Clock struct {
	Key        string        `json:"key"`                  // Limits.Key
	Sent       time.Time     `json:"sent,omitzero"`        // the last request; zero: none that counts
	AssetsSent time.Time     `json:"assets_sent,omitzero"` // likewise of those that went by the clock of the host's assets
	Gap        time.Duration `json:"gap_ns,omitzero"`      // how long from then they may hold up others: the longest gap, or until the burst is whole

	PausedUntil time.Time     `json:"paused_until,omitzero"`    // the end of the last pause, see [Slot.BackOff]; zero: there was none, or it is forgiven
	PauseLength time.Duration `json:"pause_length_ns,omitzero"` // the last that we chose ourselves, which the next one doubles; zero: none

	SlowAverage time.Duration `json:"slow_average_ns,omitzero"` // of how long its answers took; zero: not slow
	AnsweredAt  time.Time     `json:"answered_at,omitzero"`     // the last of these
}

// Until gives when c is of no more use: from then on it holds up no request, and nothing
// of it is remembered.
func (c *Clock) Until() time.Time {
	var latest time.Time
	for _, of := range []struct {
		begun time.Time
		lasts time.Duration
	}{{c.Sent, max(c.Gap, minQuiet)}, {c.AssetsSent, max(c.Gap, minQuiet)}, {c.PausedUntil, forgiveIn}, {c.AnsweredAt, slowFor}} {
		if end := of.begun.Add(of.lasts); !of.begun.IsZero() && end.After(latest) {
			latest = end
		}
	}
	return latest
}

// Clocks gives the clocks of all hosts that may hold up a request at now or later
// and have changed at since or after. A zero since gives all of them: what else was
// kept need not be any more. now is the time of the call, and who calls again with it
// for since misses no change. It looks at one host after the other, as Stats does.
func (p *Pacer) Clocks(now, since time.Time) []Clock {
	var all, some []Clock
	for i := range p.hosts.shards {
		some = p.hosts.shards[i].clocks(some[:0], now, since)
		all = append(all, some...) // which may take long: under no lock
	}
	return all
}

func (sh *shard) clocks(to []Clock, now, since time.Time) []Clock {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, h := range sh.hosts {
		h.mu.Lock()
		if h.changedSince(since) {
			if c := h.clock(now); c != (Clock{}) {
				c.Key = key
				to = append(to, c)
			}
		}
		h.mu.Unlock()
	}
	return to
}

// changedSince says whether something was sent, answered or paused at since or after.
func (h *host) changedSince(since time.Time) bool {
	changed := !h.slow.at.Before(since) || !h.pause.get().begun.Before(since)
	h.lanes(func(ln *lane) { changed = changed || !ln.rates.last.Before(since) })
	return changed
}

// clock gives the Clock of h but for its key, or the zero Clock where it holds up
// nobody.
func (h *host) clock(now time.Time) Clock {
	var c Clock
	if r := &h.pages.rates; r.holds(now) {
		c.Sent, c.Gap = wallTime(r.last, now), r.reach()
	}
	if h.assets != nil && h.assets.rates.holds(now) {
		r := &h.assets.rates
		c.AssetsSent, c.Gap = wallTime(r.last, now), max(c.Gap, r.reach())
	}
	if h.slow.spacing(now) > 0 {
		c.SlowAverage, c.AnsweredAt = h.slow.average, wallTime(h.slow.at, now)
	}
	if p := h.pause.get(); !p.forgiven(now) {
		c.PausedUntil, c.PauseLength = wallTime(p.until, now), p.length
	}
	return c
}

// wallTime gives a time of the process's own clock on the wall's as it is now: that may
// have been set since.
func wallTime(t, now time.Time) time.Time { return now.Round(0).Add(t.Sub(now)).UTC() }

// Restore takes over the clocks of a process before this one, and is called before
// the first Wait. The gap to the next request counts from the last one before, under
// the next one's own limits, and the burst as spent then: a restart hands out
// nothing. Where the wall clock was set back meanwhile, what would lie in the future
// counts as now, and a pause ends in an hour at the latest; where it was set forward,
// more time seems to have passed. Of more than Options.MaxHosts clocks, those that would
// hold up requests for longest are left out. A restored host counts against no client
// until a client asks for it.
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
	h.pages.rates.restore(c.Sent, c.Gap, now)
	if !c.AssetsSent.IsZero() {
		h.assetLane().rates.restore(c.AssetsSent, c.Gap, now)
	}
	h.slow = slowness{c.SlowAverage, own(c.AnsweredAt, now, now)}
	h.pause.held.Store(&pause{until: own(c.PausedUntil, now, now.Add(maxPause)), length: min(max(0, c.PauseLength), maxPause)})
}

// restore is for a clock that nothing has been asked of.
func (r *rates) restore(sent time.Time, gap time.Duration, now time.Time) {
	r.last = own(sent, now, now)
	r.state = limiter.State{Last: r.last, Longest: max(0, gap)}
}

// own gives a time of the wall clock on the process's own, which nobody sets; the
// latest it may be is most. A zero time stays one.
func own(t, now, most time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = now.Add(t.Sub(now)); t.After(most) {
		return most
	}
	return t
}
