package admin

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A hostState is all that is known of one host now: the decisions on its requests, its pace, its pause
// and its robots.txt files. A host is listed if any of the four knows it. Hosts that share a
// pace key show the same pace. A pace key whose hosts are all unknown is listed as a host of
// its own.
type hostState struct {
	Host    string `json:"host"`
	Allowed int64  `json:"allowed"`

	// Blocked counts all that are not allowed.
	Blocked int64 `json:"blocked"`
	hostOutcomes

	// WaitedS is the time that all requests together waited.
	WaitedS float64 `json:"waited_s"`

	// Last is the time of the last request; zero: unknown.
	Last time.Time `json:"last_request,omitzero"`

	// Pace is nil if it is unknown.
	Pace *paceState `json:"pace,omitempty"`

	// Pause is that of the host, or of all hosts; nil: the host is not paused.
	Pause *pauseState `json:"pause,omitempty"`

	// Held says why nothing is sent to the host now, besides a pause; nil: requests are sent.
	Held *heldState `json:"held,omitempty"`

	// Origins are sorted by origin. loadOrigins sets them.
	Origins []originState `json:"origins"`

	// More is the number of origins that clipOrigins has left out.
	More int `json:"origins_more,omitempty"`

	// counts, asked and paced are those of live.Host.
	counts       live.Counts
	asked, paced time.Duration

	// entries are the cache entries of its origins.
	entries []*cache.Entry
}

// A heldState says why nothing is sent to a host now.
type heldState struct {
	Reason policy.Reason `json:"reason"`

	// Until is zero if it is not known.
	Until time.Time `json:"until,omitzero"`
}

// heldOf returns why nothing is sent to a host now, by the entry of hosts for all its paths, besides a pause; nil: requests are sent.
func (o *Options) heldOf(host string) *heldState {
	robotsTxt := robots.Target{Origin: robots.Origin{Host: host}, PathQuery: "/robots.txt"}
	held, ok := errors.AsType[*policy.HoldError](o.Engine().MayFetch(robotsTxt))
	if !ok || held.Reason == policy.ReasonPaused {
		return nil
	}
	return &heldState{held.Reason, held.Until.UTC()}
}

// A coolDown is a time in which a client, or all, get nothing from a host that has refused requests.
type coolDown struct {
	// Client is "" if all are stopped.
	Client   string    `json:"client,omitempty"`
	Until    time.Time `json:"until"`
	Statuses []int     `json:"statuses"`
}

// coolDowns returns the cool-downs of a host, that of all clients first.
func (o *Options) coolDowns(host string) (all []coolDown) {
	for _, s := range o.Stops.All() {
		if s.Kind == stops.CoolDown && s.Host == host {
			all = append(all, coolDown{s.Client, s.Until.UTC(), s.Statuses})
		}
	}
	return all
}

// hostOutcomes has the numbers of requests that add up to hostState.Blocked.
type hostOutcomes struct {
	Disallowed int64 `json:"disallowed"`
	Deferred   int64 `json:"deferred"`
	Failed     int64 `json:"failed"`

	// NotEnforced counts those that would have been disallowed, but were sent (mode: monitor).
	NotEnforced int64 `json:"not_enforced"`
}

// A paceState is the state of the pace of one host.
type paceState struct {
	// Queue counts waiting requests.
	Queue int `json:"queue"`

	// UnderWay counts requests that hold a slot.
	UnderWay int `json:"under_way"`

	// Streams counts requests that stream a response after they released their slot.
	Streams int `json:"streams"`

	// Sent is the time of the last request.
	Sent time.Time `json:"last_sent,omitzero"`

	// GapS is the time between two requests, as for the last one.
	GapS float64 `json:"gap_s"`

	// NextSlot is the earliest time for a new request; zero: now.
	NextSlot time.Time `json:"next_slot,omitzero"`

	// PausedUntil is the end of the back-off; zero: there is none.
	PausedUntil time.Time `json:"paused_until,omitzero"`

	// BackOffBy is the ID of the request whose response began the back-off, or the URL of a robots.txt.
	BackOffBy string `json:"back_off_by,omitempty"`

	// SlowedS is the minimum time between two requests because the host answers slowly; zero: it does not.
	SlowedS float64 `json:"slowed_s,omitempty"`
}

// A clientBackOff is the back-off of one client at a host.
type clientBackOff struct {
	Client      string    `json:"client"`
	PausedUntil time.Time `json:"paused_until"`

	// BackOffBy is as in paceState.
	BackOffBy string `json:"back_off_by"`
}

func (o *Options) clientBackOffs(host string) (all []clientBackOff) {
	for _, c := range o.Pacer.ClientBackOffs(host) {
		all = append(all, clientBackOff{c.Client, c.Until, c.By})
	}
	return all
}

// An originState is what is known of the robots.txt of one origin.
type originState struct {
	Origin string `json:"origin"`

	// URL is the final URL, after redirects.
	URL string `json:"robots_url"`

	// Outcome is a cache.Outcome in words.
	Outcome string `json:"outcome"`

	// Status is the HTTP status of the fetch; zero: there was no response.
	Status int    `json:"status,omitempty"`
	Rules  int    `json:"rules"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`

	// Agent is the User-Agent of the fetch.
	Agent string `json:"robots_agent,omitempty"`

	// Fetched is zero if no file applies.
	Fetched time.Time `json:"fetched,omitzero"`

	// Expires is the time after which the next request fetches the file again.
	Expires time.Time `json:"expires,omitzero"`

	// Stale is set if an old copy is used because the origin fails.
	Stale bool   `json:"stale,omitempty"`
	Error string `json:"error,omitempty"`

	// Retry is when a failing origin is tried next.
	Retry time.Time `json:"retry,omitzero"`

	// Age is that of the file that applies, in seconds.
	Age float64 `json:"age_s"`

	// Headers and Text are those of the file that applies. Only responses about a single host have them. Bytes of
	// Text that are not UTF-8 become U+FFFD.
	Headers *fetch.Headers `json:"headers,omitempty"`
	Text    *string        `json:"text,omitempty"`

	origin robots.Origin

	// token is the product token whose requests the file decides; "": all tokens without a file of their own.
	token  string
	ruling cache.Ruling
}

// sortedHosts returns all known hosts, sorted by name. Their Origins are not set, because that
// can take long for many hosts.
func (o *Options) sortedHosts() []*hostState {
	return slices.SortedFunc(maps.Values(o.hostsByName()), func(a, b *hostState) int { return cmp.Compare(a.Host, b.Host) })
}

// hostsByName returns all hosts that are known by their requests, their robots.txt, their
// pace or their pause.
func (o *Options) hostsByName() map[string]*hostState {
	all := make(map[string]*hostState)
	get := func(name string) *hostState {
		h := all[name]
		if h == nil {
			h = &hostState{Host: name}
			all[name] = h
		}
		return h
	}
	for _, l := range o.Live.Hosts() {
		get(l.Host).setCounts(l)
	}
	for e := range o.Cache.All() {
		h := get(e.Origin().Host)
		h.entries = append(h.entries, e)
	}
	o.addPaceStates(all, get)
	for _, p := range o.pauses() {
		if p.Host != "" {
			get(p.Host)
		}
	}
	for name, h := range all {
		h.Pause, h.Held = o.pauseOf(name), o.heldOf(name)
	}
	return all
}

// host returns the state of one host, and whether anything is known of it.
func (o *Options) host(name string) (hostState, bool) {
	h := hostState{Host: name}
	l, known := o.Live.Host(name)
	if known {
		h.setCounts(l)
	}
	if p, found := o.Pacer.Host(o.PaceKey(name), name); found {
		h.Pace, known = newPaceState(p), true
	}
	for e := range o.Cache.All() {
		if e.Origin().Host == name {
			h.entries, known = append(h.entries, e), true
		}
	}
	h.Pause, h.Held = o.pauseOf(name), o.heldOf(name)
	if _, paused := o.ownPause(name); paused {
		known = true
	}
	h.loadOrigins(o.rulings())
	return h, known
}

// addPaceStates sets the Pace of all hosts, and adds the pace keys that no host uses.
func (o *Options) addPaceStates(all map[string]*hostState, get func(string) *hostState) {
	byKey := make(map[string]pace.HostState)
	for _, p := range o.Pacer.Hosts() {
		byKey[p.Key] = p
	}
	used := make(map[string]bool)
	for name, h := range all {
		key := o.PaceKey(name)
		p, known := byKey[key]
		if backOff, backedOff := byKey[name]; backedOff && name != key {
			p.BackedOff(backOff)
			known = true
		}
		if used[key], used[name] = true, true; known {
			h.Pace = newPaceState(p)
		}
	}
	for key, p := range byKey {
		if !used[key] {
			get(key).Pace = newPaceState(p)
		}
	}
}

func (h *hostState) setCounts(l live.Host) {
	h.counts, h.asked, h.paced = l.Counts, l.Asked, l.Paced
	h.Allowed, h.Blocked, h.WaitedS, h.Last = l.Counts[live.Allowed], l.Counts.Blocked(), l.Waited.Seconds(), l.Last.UTC()
	h.hostOutcomes = hostOutcomes{l.Counts[live.Disallowed], l.Counts[live.Deferred], l.Counts[live.Failed], l.Counts[live.NotEnforced]}
}

// rulings returns a function that says what an entry of the cache means now.
func (o *Options) rulings() func(*cache.Entry) cache.Ruling {
	engine, dialect := o.Engine(), o.Dialect()
	return func(e *cache.Entry) cache.Ruling { return engine.RulingOf(e, dialect) }
}

// loadOrigins sets Origins from the cache entries, whose meaning ruling says.
func (h *hostState) loadOrigins(ruling func(*cache.Entry) cache.Ruling) {
	h.Origins = make([]originState, 0, len(h.entries))
	for _, e := range h.entries {
		h.Origins = append(h.Origins, newOriginState(e, ruling(e)))
	}
	slices.SortFunc(h.Origins, func(a, b originState) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Agent, b.Agent))
	})
}

// maxOrigins bounds the origins of a host in a response.
const maxOrigins = 50

// clipOrigins leaves out origins that a response has no room for.
func (h *hostState) clipOrigins() {
	if more := len(h.Origins) - maxOrigins; more > 0 {
		h.Origins, h.More = h.Origins[:maxOrigins], more
	}
}

func newPaceState(p pace.HostState) *paceState {
	s := &paceState{
		Queue: p.Waiting, UnderWay: p.UnderWay, Streams: p.Streams,
		Sent: p.Sent.UTC(), GapS: p.Gap.Seconds(), PausedUntil: p.BackOffUntil.UTC(), BackOffBy: p.BackOffBy,
		SlowedS: p.Slowed.Seconds(),
	}
	if p.NextSlot.After(time.Now()) {
		s.NextSlot = p.NextSlot.UTC()
	}
	return s
}

func newOriginState(e *cache.Entry, r cache.Ruling) originState {
	s := originState{
		Origin: e.Origin().String(), Outcome: r.Meaning.String(), Rules: r.File.Rules(),
		Fetched: r.Fetched().UTC(), Expires: e.Expires().UTC(), Stale: r.Stale, Retry: r.Retry.UTC(),
		origin: e.Origin(), token: e.Token(), ruling: r,
	}
	if a := r.Result; a != nil {
		s.URL, s.Status, s.Bytes, s.SHA256, s.Agent = a.URL, a.Status, len(a.Body), a.SHA256, a.UserAgent
	}
	if !s.Fetched.IsZero() {
		s.Age = max(0, time.Since(s.Fetched).Round(time.Millisecond).Seconds())
	}
	if r.Err != nil {
		s.Error = humanize.Error(r.Err)
	}
	return s
}
