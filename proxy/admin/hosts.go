package admin

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A hostState is all that is known of one host now: what was decided for its
// requests, what its pace is at, and what its origins say. The host may be one that
// only one of the three knows: hosts that share a pace show the same, and where none
// of them is known any more it stands under the name that it is byKey under.
type hostState struct {
	Host    string        `json:"host"`
	Allowed int64         `json:"allowed"`
	Blocked int64         `json:"blocked"`
	WaitedS float64       `json:"waited_s"`              // by all requests together
	Last    time.Time     `json:"last_request,omitzero"` // when it came; zero: none is remembered
	Pace    *paceState    `json:"pace,omitempty"`        // nil: none is remembered
	Origins []originState `json:"origins"`               // in the order of their names, once they are read

	entries []*cache.Entry // of its origins
}

// A paceState is what the pace of a host is at.
type paceState struct {
	Queue       int       `json:"queue"`                 // requests that wait
	UnderWay    int       `json:"under_way"`             // requests that have a place
	Streams     int       `json:"streams"`               // that gave theirs back
	Sent        time.Time `json:"last_sent,omitzero"`    // the last request
	GapS        float64   `json:"gap_s"`                 // between two requests, as the last one had it
	NextSlot    time.Time `json:"next_slot,omitzero"`    // when one who asks now might go; zero: at once
	PausedUntil time.Time `json:"paused_until,omitzero"` // nothing is sent before
	SlowedS     float64   `json:"slowed_s,omitempty"`    // the least time between two requests, since the host answers slowly
}

// An originState is what is known of the robots.txt of one origin.
type originState struct {
	Origin  string    `json:"origin"`
	URL     string    `json:"robots_url"`       // what answered, after redirects
	Outcome string    `json:"outcome"`          // a cache.Outcome in words
	Status  int       `json:"status,omitempty"` // that it was answered with; zero: it was not
	Rules   int       `json:"rules"`
	Bytes   int       `json:"bytes"`
	SHA256  string    `json:"sha256,omitempty"`
	Agent   string    `json:"robots_agent,omitempty"` // the User-Agent of the fetch
	Fetched time.Time `json:"fetched,omitzero"`       // zero: nothing is in force
	Expires time.Time `json:"expires,omitzero"`       // it is fetched anew if somebody asks then
	Stale   bool      `json:"stale,omitempty"`        // a copy from before rules, while the origin fails
	Error   string    `json:"error,omitempty"`
	Retry   time.Time `json:"retry,omitzero"` // when an origin that fails is next tried

	origin robots.Origin
	ruling cache.Ruling
}

// hosts gives the state of all hosts that are known, in the order of their names. What
// their origins say is not read yet: it may take long for many.
func (o *Options) sortedHosts() []*hostState {
	return slices.SortedFunc(maps.Values(o.hostsByName()), func(a, b *hostState) int { return cmp.Compare(a.Host, b.Host) })
}

// known gives the hosts that anything is known of: by their requests, their robots.txt
// or their pace.
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
	return all
}

// host gives the state of one, and whether anything is known of it.
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
	h.loadOrigins(o.Dialect())
	return h, known
}

// addPaces says of all hosts what their pace is at.
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
	h.Allowed, h.Blocked, h.WaitedS, h.Last = l.Allowed, l.Blocked, l.Waited.Seconds(), l.Last
}

// read says what the origins of a host say, as a dialect has it.
func (h *hostState) loadOrigins(d robots.Dialect) {
	h.Origins = make([]originState, 0, len(h.entries))
	for _, e := range h.entries {
		h.Origins = append(h.Origins, newOriginState(e, d))
	}
	slices.SortFunc(h.Origins, func(a, b originState) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Agent, b.Agent))
	})
}

func newPaceState(p pace.HostState) *paceState {
	s := &paceState{
		Queue: p.Waiting, UnderWay: p.UnderWay, Streams: p.Streams,
		Sent: p.Sent, GapS: p.Gap.Seconds(), PausedUntil: p.BackOffUntil, SlowedS: p.Slowed.Seconds(),
	}
	if p.NextSlot.After(time.Now()) {
		s.NextSlot = p.NextSlot
	}
	return s
}

func newOriginState(e *cache.Entry, d robots.Dialect) originState {
	r := e.Under(d)
	s := originState{
		Origin: e.Origin().String(), Outcome: r.Outcome.String(), Rules: r.File.Rules(),
		Fetched: r.Fetched(), Expires: e.Expires(), Stale: r.Stale, Retry: r.Retry, origin: e.Origin(), ruling: r,
	}
	if a := r.Result; a != nil {
		s.URL, s.Status, s.Bytes, s.SHA256, s.Agent = a.URL, a.Status, len(a.Body), a.SHA256, a.UserAgent
	}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	return s
}
