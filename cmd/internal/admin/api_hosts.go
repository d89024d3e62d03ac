package admin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

const (
	maxHosts     = 1000    // in a response
	maxOrigins   = 50      // of a host, in a response
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

// activity ranks the states of paceBadge: back-off, slowed, queue, in flight, idle.
func (h *hostState) activity() int {
	switch p := h.paceOrZero(); {
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

// hostJSON is a host in the API.
type hostJSON struct {
	hostState
	Origins []originJSON `json:"origins"`

	// More is the number of origins that are left out.
	More int `json:"origins_more,omitempty"`
}

// originJSON is an origin in the API. Headers and Text are set only in responses about a
// single host.
type originJSON struct {
	originState

	// Age is that of the file that applies.
	Age     float64        `json:"age_s"`
	Headers *fetch.Headers `json:"headers,omitempty"`

	// Text is that of the file that applies; bytes that are not UTF-8 become U+FFFD.
	Text *string `json:"text,omitempty"`
}

func newHostJSON(h hostState, now time.Time) *hostJSON {
	s := &hostJSON{hostState: h, Origins: []originJSON{}}
	toUTC(&s.Last)
	if s.Pace != nil {
		// Hosts with the same pace key share the state, so this one gets a copy.
		s.Pace = new(*s.Pace)
		toUTC(&s.Pace.Sent, &s.Pace.NextSlot, &s.Pace.PausedUntil)
	}
	for i := range h.Origins {
		if i == maxOrigins {
			s.More = len(h.Origins) - i
			break
		}
		s.Origins = append(s.Origins, newOriginJSON(h.Origins[i], now))
	}
	return s
}

func newOriginJSON(o originState, now time.Time) originJSON {
	s := originJSON{originState: o}
	toUTC(&s.Fetched, &s.Expires, &s.Retry)
	if !o.Fetched.IsZero() {
		s.Age = max(0, now.Sub(o.Fetched).Round(time.Millisecond).Seconds())
	}
	return s
}

// toUTC converts times to UTC, as the audit trail has them.
func toUTC(times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
	}
}

// addFile sets Headers and Text. Text takes at most budget bytes. addFile returns the rest of
// the budget.
func (o *originJSON) addFile(budget int) (left int) {
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
		Hosts []*hostJSON `json:"hosts"`
		Total int         `json:"total"`

		// Next is the parameter after of the next page; "": this is the last page.
		Next string `json:"next,omitempty"`
	}{Hosts: []*hostJSON{}, Total: len(all)}
	if after != "" {
		i := slices.IndexFunc(all, func(h *hostState) bool { return h.Host == after })
		if i < 0 {
			return nil, errors.New("The host in after is no longer in the list. Start again without after.")
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		all = all[:limit]
		page.Next = all[limit-1].Host
	}
	now, ruling := time.Now(), s.opts.rulings()
	for _, h := range all {
		h.loadOrigins(ruling)
		page.Hosts = append(page.Hosts, newHostJSON(*h, now))
	}
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
	host := newHostJSON(h, time.Now())
	budget := maxTextBytes
	for i := range host.Origins {
		budget = host.Origins[i].addFile(budget)
	}
	return struct {
		*hostJSON
		Clients []clientBackOff `json:"client_back_offs,omitempty"`
		Causes  []cause         `json:"causes"`
	}{host, s.opts.clientBackOffs(name), newCauses(s.opts.Live.Causes(name))}, nil
}

// hostOf returns the host in the path of a request.
func hostOf(r *http.Request) (string, error) {
	host, err := robots.ParseHost(r.PathValue("host"))
	if err != nil {
		return "", newProblem(http.StatusBadRequest, "The host is invalid.", err.Error())
	}
	return host, nil
}
