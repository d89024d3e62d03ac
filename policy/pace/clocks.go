package pace

import (
	"time"

	"robotsproxy/policy/pace/limiter"
)

// A Clock is the state of a host that the next process needs: everything that may still
// delay the host's next request. Its times are wall-clock times. It does not contain the
// limiter of a client's own rate ([Limits.Client]), because that limiter does not protect
// the host.
type Clock struct {
	// Key is Limits.Key.
	Key string `json:"key"`

	// Sent is when the last request was sent; zero if none counts any more.
	Sent time.Time `json:"sent,omitzero"`

	// AssetsSent is Sent for the limiter of the host's assets.
	AssetsSent time.Time `json:"assets_sent,omitzero"`

	// Gap is how long after Sent or AssetsSent other requests may be delayed: the longest gap, or the time until the burst
	// is available again.
	Gap time.Duration `json:"gap_ns,omitzero"`

	// BackOffUntil is the end of the last back-off, see [Slot.BackOff]. It is zero if there was none, or if it is forgiven.
	BackOffUntil time.Time `json:"paused_until,omitzero"`

	// BackOffLength is the length of the last back-off that the proxy chose, which the next one doubles; zero if it chose
	// none.
	BackOffLength time.Duration `json:"pause_length_ns,omitzero"`

	// BackOffBy is BackOff.By.
	BackOffBy string `json:"paused_by,omitzero"`

	// Clients are the clients with back-offs of their own.
	Clients []ClientClock `json:"clients,omitempty"`

	// SlowAverage is the host's response time; zero if the host is not slow.
	SlowAverage time.Duration `json:"slow_average_ns,omitzero"`

	// AnsweredAt is the time of the last response that counts for SlowAverage.
	AnsweredAt time.Time `json:"answered_at,omitzero"`
}

// A ClientClock is the back-off of one client at a host.
type ClientClock struct {
	Client        string        `json:"client"`
	BackOffUntil  time.Time     `json:"paused_until"`
	BackOffLength time.Duration `json:"pause_length_ns,omitzero"`
	BackOffBy     string        `json:"paused_by,omitzero"`
}

// Until returns the time from which c delays no request and can be dropped.
func (c *Clock) Until() time.Time {
	var latest time.Time
	note := func(begun time.Time, lasts time.Duration) {
		if !begun.IsZero() {
			latest = limiter.Later(latest, begun.Add(lasts))
		}
	}
	note(c.Sent, max(c.Gap, minQuiet))
	note(c.AssetsSent, max(c.Gap, minQuiet))
	note(c.BackOffUntil, BackOffMemory)
	note(c.AnsweredAt, slowFor)
	for _, own := range c.Clients {
		note(own.BackOffUntil, BackOffMemory)
	}
	return latest
}

// Clocks returns the clocks of all hosts that may still delay a request at now and that
// have changed at since or later. If since is zero, it returns the clocks of all such
// hosts, and other stored clocks can be deleted. now is the time of the call. A caller
// that passes this time as since in its next call misses no change. Clocks locks one host
// after the other, as Stats does.
func (p *Pacer) Clocks(now, since time.Time) []Clock {
	var all, some []Clock
	for i := range p.hosts.shards {
		some = some[:0]
		p.hosts.shards[i].each(func(key string, h *host) {
			if !h.changedSince(since) {
				return
			}
			if c := h.clock(now); !c.Until().IsZero() {
				c.Key = key
				some = append(some, c)
			}
		})
		// Growing all may take long, so no lock is held.
		all = append(all, some...)
	}
	return all
}

// changedSince reports whether a request was sent or answered, or a back-off began, at since
// or later.
func (h *host) changedSince(since time.Time) bool {
	_, answered := h.latency.get(since)
	changed := !answered.Before(since) || h.backOff.changedSince(since)
	h.queues(func(q *queue) { changed = changed || !q.limiter.last.Before(since) })
	return changed
}

// clock returns the Clock of h without its key. It returns the zero Clock if h delays no
// request.
func (h *host) clock(now time.Time) Clock {
	var c Clock
	if l := &h.pages.limiter; l.holds(now) {
		c.Sent, c.Gap = wallTime(l.last, now), l.reach()
	}
	if h.assets != nil && h.assets.limiter.holds(now) {
		l := &h.assets.limiter
		c.AssetsSent, c.Gap = wallTime(l.last, now), max(c.Gap, l.reach())
	}
	if slow, at := h.latency.get(now); slow > 0 {
		c.SlowAverage, c.AnsweredAt = slow, wallTime(at, now)
	}
	held := h.backOff.get()
	if b := held.host; !b.forgiven(now) {
		c.BackOffUntil, c.BackOffLength, c.BackOffBy = wallTime(b.Until, now), b.Length, b.By
	}
	for _, own := range held.clients {
		if !own.forgiven(now) {
			c.Clients = append(c.Clients, ClientClock{own.client, wallTime(own.Until, now), own.Length, own.By})
		}
	}
	return c
}

// Restore takes over the clocks of an earlier process. Call it before the first Wait. A
// restart lets no additional request out: the gap to the next request counts from the last
// request of the earlier process, under the limits of the next request, and the burst
// counts as spent at that time. If the wall clock was set back, a time in the future
// counts as now, and a back-off ends after one hour at most. If the wall clock was set
// forward, more time seems to have passed. If there are more than Options.MaxHosts clocks,
// Restore leaves out those that would delay requests longest. A restored host counts
// against no client until a client requests it.
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
	h.latency.restore(c.SlowAverage, c.AnsweredAt, now)
	held := &backOffs{host: BackOff{Until: c.BackOffUntil, Length: c.BackOffLength, By: c.BackOffBy}.local(now)}
	for _, own := range c.Clients[:min(len(c.Clients), maxApart)] {
		b := BackOff{Until: own.BackOffUntil, Length: own.BackOffLength, By: own.BackOffBy}.local(now)
		held.clients = append(held.clients, clientBackOff{own.Client, b})
	}
	h.backOff.held.Store(held)
}
