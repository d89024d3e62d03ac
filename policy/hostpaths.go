package policy

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"

	"robotsproxy/policy/hours"
	"robotsproxy/robots"
)

// An appliedEntry is the entry of Options.Hosts that applies to a request.
type appliedEntry struct {
	// Host is &noEntry if no entry applies.
	*Host

	// name names the entry: its pattern, and the pattern of Paths that matched.
	name string

	// at is its position.
	at int

	// budgets are the entries whose budgets apply besides that of Host.
	budgets []*Host

	// tooComplex says that the search would take too long, and that the request must be refused.
	tooComplex bool
}

// of returns the first entry that applies to a request. Entries with Paths are for no CONNECT, and not for /robots.txt.
//
// A server may take the path of a request for another one, see Form. So an entry that permits more than others applies only if
// it does to all forms of the path, and one that forbids or slows applies if it does to any.
func (h *hosts) of(r *Request) appliedEntry {
	first := h.next(r.Origin.Host, 0)
	switch {
	case first < 0:
		return appliedEntry{Host: &noEntry}
	case h.paths[first] == nil:
		return appliedEntry{Host: &h.entries[first], name: h.entries[first].Match}
	case r.Method == http.MethodConnect || robots.IsRobotsTxt(r.PathQuery):
		e := h.find(r.Origin.Host)
		return appliedEntry{Host: e, name: e.Match}
	}
	return h.ofForms(r.Origin.Host, r.MatchPath(), r.changes(allChanges), first)
}

// ofForms is of for a path and the changes that a server may make to it, if the entry at the position first has Paths. It is a function
// of its own because its loop takes variables to the heap.
func (h *hosts) ofForms(host, path string, changes Form, first int) appliedEntry {
	var spent robots.Effort
	var found []appliedEntry
	add := func(path string) {
		e := h.firstFor(host, path, first, &spent)
		if i, known := slices.BinarySearchFunc(found, e, byPosition); !known {
			found = slices.Insert(found, i, e)
		}
	}
	add(path)
	if changes != 0 {
		for form := range forms(path, changes, &spent) {
			add(form)
		}
	}
	switch {
	case spent > robots.MaxEffort:
		return appliedEntry{Host: &noEntry, tooComplex: true}
	case len(found) == 1:
		return found[0]
	}
	return h.strictest(host, found)
}

func byPosition(a, b appliedEntry) int { return cmp.Compare(a.at, b.at) }

// firstFor returns the first entry, at or after the position first, that is for a host and a form of a path.
func (h *hosts) firstFor(host, path string, first int, spent *robots.Effort) appliedEntry {
	for i := first; i >= 0; i = h.next(host, i+1) {
		e := &h.entries[i]
		if h.paths[i] == nil {
			return appliedEntry{Host: e, name: e.Match, at: i}
		}
		if n, _ := h.paths[i].First(path, spent); n >= 0 {
			return appliedEntry{Host: e, name: e.Match + e.Paths[n], at: i}
		}
	}
	return appliedEntry{Host: &noEntry, at: len(h.entries)}
}

// strictest returns an entry that permits no more than any of several, in their order. It has the name of the first of them
// that denies or, if none does, that permits no more either, else that of the last. All their budgets apply. If they have different
// parents, it has that of the host's entry without Paths: the way must not depend on how a client spells a path.
func (h *hosts) strictest(host string, all []appliedEntry) appliedEntry {
	s := h.withDefaults(all[0].Host)
	for _, e := range all {
		if e.Robots == Deny {
			return e
		}
		s.tighten(h.withDefaults(e.Host))
	}
	named := all[len(all)-1]
	for _, e := range slices.Backward(all) {
		was := h.withDefaults(e.Host)
		is := was
		if is.tighten(s); reflect.DeepEqual(is, was) {
			named = e
		}
	}
	s.Reason, s.Parent = named.Reason, named.Parent
	if slices.ContainsFunc(all, func(e appliedEntry) bool { return e.Parent != s.Parent }) {
		s.Parent = h.find(host).Parent
	}
	applied := appliedEntry{Host: &s, name: named.name}
	s.Budget = Budget{}
	for _, e := range all {
		if e.Budget.IsSet() {
			applied.budgets = append(applied.budgets, e.Host)
		}
	}
	applied.tooComplex = len(applied.budgets) > maxBudgetsOfRequest
	return applied
}

// withDefaults returns an entry with the limits that apply where it has none.
func (h *hosts) withDefaults(e *Host) Host {
	d := *e
	d.CoolDown = cmp.Or(d.CoolDown, h.coolDown)
	d.Pace.PerSecond = cmp.Or(d.Pace.PerSecond, h.pace.PerSecond)
	d.Pace.Burst = cmp.Or(d.Pace.Burst, h.pace.Burst)
	d.Pace.MaxConcurrent = cmp.Or(d.Pace.MaxConcurrent, h.pace.MaxConcurrent)
	return d
}

// tighten makes of each setting what permits less, that of h or of e. Neither denies.
func (h *Host) tighten(e Host) {
	if e.Robots == Enforce {
		h.Robots = Enforce
	}
	h.IgnoreUsage = h.IgnoreUsage && e.IgnoreUsage
	if e.Forbidden == RefuseForbidden || h.Forbidden == AllowForbidden {
		h.Forbidden = e.Forbidden
	}
	if e.Readings == AllReadings || h.Readings == LiteralReadings {
		h.Readings = e.Readings
	}
	h.Hours, h.RobotsHours = union(h.Hours, e.Hours), h.RobotsHours || e.RobotsHours
	h.CoolDown = new(h.CoolDown.tighten(*e.CoolDown))
	h.Pace.PerSecond = min(h.Pace.PerSecond, e.Pace.PerSecond)
	h.Pace.Burst = min(h.Pace.Burst, e.Pace.Burst)
	h.Pace.MaxConcurrent = min(h.Pace.MaxConcurrent, e.Pace.MaxConcurrent)
}

// union returns what is in a or b.
func union(a, b []*hours.Schedule) []*hours.Schedule {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
