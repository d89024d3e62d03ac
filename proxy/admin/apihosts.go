package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

const (
	maxHosts   = 1000    // in an answer
	maxOrigins = 50      // of a host, in an answer
	maxTexts   = 4 << 20 // octets of robots.txt files in an answer
)

// orders are how hosts may be sorted; those that are equal stand by their names.
var orders = map[string]func(a, b *hostState) int{
	"last":    func(a, b *hostState) int { return b.Last.Compare(a.Last) },
	"host":    func(a, b *hostState) int { return 0 },
	"allowed": func(a, b *hostState) int { return cmp.Compare(b.Allowed, a.Allowed) },
	"blocked": func(a, b *hostState) int { return cmp.Compare(b.Blocked, a.Blocked) },
	"waited":  func(a, b *hostState) int { return cmp.Compare(b.WaitedS, a.WaitedS) },
	"queue":   func(a, b *hostState) int { return cmp.Compare(b.pace().Queue, a.pace().Queue) },
	"paused":  func(a, b *hostState) int { return b.pace().PausedUntil.Compare(a.pace().PausedUntil) },
}

func (h *hostState) pace() paceState {
	if h.Pace == nil {
		return paceState{}
	}
	return *h.Pace
}

// A shownHost is what the API tells of a host in a list.
type shownHost struct {
	hostState
	Origins []shownOrigin `json:"origins"`
	More    int           `json:"origins_more,omitempty"` // beyond the bound
}

// A shownOrigin is what it tells of an origin; only where one host is asked for is
// there more than its state.
type shownOrigin struct {
	originState
	Age     float64        `json:"age_s"` // of what is in force
	Headers *fetch.Headers `json:"headers,omitempty"`
	Text    *string        `json:"text,omitempty"` // of what is in force, with U+FFFD where it is not UTF-8
}

func shownOf(h hostState, now time.Time) *shownHost {
	s := &shownHost{hostState: h, Origins: []shownOrigin{}}
	inUTC(&s.Last)
	if s.Pace != nil {
		s.Pace = new(*s.Pace) // which may be of several
		inUTC(&s.Pace.Sent, &s.Pace.NextSlot, &s.Pace.PausedUntil)
	}
	for i := range h.Origins {
		if i == maxOrigins {
			s.More = len(h.Origins) - i
			break
		}
		s.Origins = append(s.Origins, shownOriginOf(h.Origins[i], now))
	}
	return s
}

func shownOriginOf(o originState, now time.Time) shownOrigin {
	s := shownOrigin{originState: o}
	inUTC(&s.Fetched, &s.Expires, &s.Retry)
	if !o.Fetched.IsZero() {
		s.Age = max(0, now.Sub(o.Fetched).Round(time.Millisecond).Seconds())
	}
	return s
}

// inUTC has times be written as the audit has them.
func inUTC(times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
	}
}

// readText adds what only one host's page has; room is what the text may take.
func (o *shownOrigin) readText(room int) (left int) {
	a := o.ruling.Result
	if a == nil {
		return room
	}
	o.Headers = a.Headers
	if o.SHA256 == "" || len(a.Body) > room {
		return room
	}
	o.Text = new(strings.ToValidUTF8(string(a.Body), "\uFFFD"))
	return room - len(a.Body)
}

// listHosts answers with a part of the hosts.
func (s *server) listHosts(w http.ResponseWriter, r *http.Request) {
	g, ok := parameters(w, r, "q", "sort", "limit", "after")
	if !ok {
		return
	}
	by := g.oneOf("sort", "last", "host", "allowed", "blocked", "waited", "queue", "paused")
	q, limit, after := strings.ToLower(g.text("q")), g.number("limit", 100, maxHosts), g.text("after")
	if g.bad(w) {
		return
	}
	all := slices.DeleteFunc(s.o.hosts(), func(h *hostState) bool { return !strings.Contains(h.Host, q) })
	slices.SortStableFunc(all, orders[by])
	part := struct {
		Hosts []*shownHost `json:"hosts"`
		Total int          `json:"total"`
		Next  string       `json:"next,omitempty"` // what after is to be for those that follow
	}{Hosts: []*shownHost{}, Total: len(all)}
	if after != "" {
		i := slices.IndexFunc(all, func(h *hostState) bool { return h.Host == after })
		if i < 0 {
			problem(w, http.StatusBadRequest, "The host named by after is not in the list any more: begin anew.")
			return
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		all = all[:limit]
		part.Next = all[limit-1].Host
	}
	now, dialect := time.Now(), s.o.Dialect()
	for _, h := range all {
		h.read(dialect)
		part.Hosts = append(part.Hosts, shownOf(*h, now))
	}
	writeJSON(w, http.StatusOK, part)
}

// oneHost answers with all that there is of one: what decided its requests, and the
// texts of its origins, or of the one that is asked for.
func (s *server) oneHost(w http.ResponseWriter, r *http.Request) {
	g, ok := parameters(w, r, "origin")
	if !ok {
		return
	}
	name, err := robots.ParseHost(r.PathValue("host"))
	if err != nil {
		problem(w, http.StatusBadRequest, "That is no host.", err.Error())
		return
	}
	h, known := s.o.host(name)
	if !known {
		problem(w, http.StatusNotFound, fmt.Sprintf("Nothing is known of %s.", name))
		return
	}
	if only := g.text("origin"); only != "" {
		o, ok := named(w, only)
		if !ok {
			return
		}
		h.Origins = slices.DeleteFunc(h.Origins, func(s originState) bool { return s.of != o })
		if len(h.Origins) == 0 {
			problem(w, http.StatusNotFound, fmt.Sprintf("Nothing is known of the robots.txt of %s, as an origin of %s.", o, name))
			return
		}
	}
	shown := shownOf(h, time.Now())
	room := maxTexts
	for i := range shown.Origins {
		room = shown.Origins[i].readText(room)
	}
	writeJSON(w, http.StatusOK, struct {
		*shownHost
		Causes []cause `json:"causes"`
	}{shown, causesOf(s.o.Live.Causes(name))})
}
