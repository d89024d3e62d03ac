package admin

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	maxHosts     = 1000    // in a response
	maxTextBytes = 4 << 20 // of robots.txt files in a response
)

// hostOrders are the orders in which hosts can be sorted. Equal hosts are sorted by name.
var hostOrders = map[string]func(a, b *hostState) int{
	"last":    func(a, b *hostState) int { return b.Last.Compare(a.Last) },
	"host":    func(a, b *hostState) int { return 0 },
	"allowed": func(a, b *hostState) int { return cmp.Compare(b.Allowed, a.Allowed) },
	"blocked": func(a, b *hostState) int { return cmp.Compare(b.Blocked, a.Blocked) },
	"waited":  func(a, b *hostState) int { return cmp.Compare(b.WaitedS, a.WaitedS) },
	"queue":   func(a, b *hostState) int { return cmp.Compare(b.paceOrZero().Queue, a.paceOrZero().Queue) },
	"paused": func(a, b *hostState) int {
		return cmp.Or(cmp.Compare(b.activity(), a.activity()), b.paceOrZero().PausedUntil.Compare(a.paceOrZero().PausedUntil))
	},

	"disallowed":   func(a, b *hostState) int { return cmp.Compare(b.Disallowed, a.Disallowed) },
	"deferred":     func(a, b *hostState) int { return cmp.Compare(b.Deferred, a.Deferred) },
	"failed":       func(a, b *hostState) int { return cmp.Compare(b.Failed, a.Failed) },
	"not_enforced": func(a, b *hostState) int { return cmp.Compare(b.NotEnforced, a.NotEnforced) },
	"under_way":    func(a, b *hostState) int { return cmp.Compare(b.paceOrZero().UnderWay, a.paceOrZero().UnderWay) },
	"delay":        func(a, b *hostState) int { return cmp.Compare(b.paceOrZero().GapS, a.paceOrZero().GapS) },
	"next":         func(a, b *hostState) int { return b.paceOrZero().NextSlot.Compare(a.paceOrZero().NextSlot) },
}

// activity ranks the states of stateBadge: paused, held back, back-off, slowed, queue, in flight, idle.
func (h *hostState) activity() int {
	switch p := h.paceOrZero(); {
	case h.Pause != nil:
		return 6
	case h.Held != nil:
		return 5
	case p.PausedUntil.After(time.Now()):
		return 4
	case p.SlowedS > 0:
		return 3
	case p.Queue > 0:
		return 2
	case p.UnderWay > 0:
		return 1
	}
	return 0
}

func (h *hostState) paceOrZero() paceState {
	if h.Pace == nil {
		return paceState{}
	}
	return *h.Pace
}

// addFile sets Headers and Text. Text takes at most budget bytes. addFile returns the rest of
// the budget.
func (o *originState) addFile(budget int) (left int) {
	a := o.ruling.Result
	if a == nil {
		return budget
	}
	o.Headers = a.Headers
	if o.SHA256 == "" || len(a.Body) > budget {
		return budget
	}
	o.Text = new(strings.ToValidUTF8(string(a.Body), "\uFFFD"))
	return budget - len(a.Body)
}

// listHosts answers with a page of the hosts.
func (s *Server) listHosts(_ http.ResponseWriter, _ *http.Request, params *queryParams) (any, error) {
	order := params.oneOf("sort", append([]string{"last"}, slices.Sorted(maps.Keys(hostOrders))...)...)
	q, limit, after := strings.ToLower(params.get("q")), params.intUpTo("limit", 100, maxHosts), params.get("after")
	if params.err != nil {
		return nil, params.err
	}
	all := slices.DeleteFunc(s.opts.sortedHosts(), func(h *hostState) bool { return !strings.Contains(h.Host, q) })
	slices.SortStableFunc(all, hostOrders[order])
	page := struct {
		Hosts []*hostState `json:"hosts"`
		Total int          `json:"total"`

		// Next is the parameter after of the next page; "": this is the last page.
		Next string `json:"next,omitempty"`
	}{Total: len(all)}
	if after != "" {
		i := slices.IndexFunc(all, func(h *hostState) bool { return h.Host == after })
		if i < 0 {
			return nil, newProblem(http.StatusBadRequest, "The host in after is no longer in the list. Start again without after.")
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		all = all[:limit]
		page.Next = all[limit-1].Host
	}
	ruling := s.opts.rulings()
	for _, h := range all {
		h.loadOrigins(ruling)
		h.clipOrigins()
	}
	page.Hosts = append([]*hostState{}, all...)
	return page, nil
}

// getHost answers with all that is known of one host: what decided its requests, and the
// robots.txt files of its origins, or of the requested origin.
func (s *Server) getHost(_ http.ResponseWriter, r *http.Request, params *queryParams) (any, error) {
	name, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	h, known := s.opts.host(name)
	if !known {
		return nil, newProblem(http.StatusNotFound, fmt.Sprintf("The proxy has no data about %s.", name))
	}
	if origin := params.get("origin"); origin != "" {
		o, err := parseOrigin(origin)
		if err != nil {
			return nil, err
		}
		h.Origins = slices.DeleteFunc(h.Origins, func(s originState) bool { return s.origin != o })
		if len(h.Origins) == 0 {
			return nil, newProblem(http.StatusNotFound, fmt.Sprintf("The proxy has no robots.txt of %s among the origins of %s.", o, name))
		}
	}
	h.clipOrigins()
	budget := maxTextBytes
	for i := range h.Origins {
		budget = h.Origins[i].addFile(budget)
	}
	return struct {
		*hostState
		Clients   []clientBackOff `json:"client_back_offs,omitempty"`
		CoolDowns []coolDown      `json:"cool_downs,omitempty"`
		Budgets   []budgetState   `json:"budgets,omitempty"`
		Causes    []cause         `json:"causes"`
	}{&h, s.opts.clientBackOffs(name), s.opts.coolDowns(name), s.budgetStates(name), newCauses(s.opts.Live.Causes(name))}, nil
}
