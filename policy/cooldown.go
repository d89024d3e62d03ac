package policy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/stops"
	"robotsproxy/robots"
)

// A CoolDown says when a client is stopped at a host that refuses its requests, and for how long. The zero CoolDown stops nobody.
type CoolDown struct {
	// After is how many responses with one of the Statuses a client must get in a row before it is stopped at the host, at most 100;
	// zero: it is never stopped. A response 2xx or 3xx ends the row, and any other response does not count.
	After int

	// Within is the longest time from the first to the last response of the row; required with After.
	Within time.Duration

	// Statuses are the HTTP statuses by which a host refuses; required with After.
	Statuses []int

	// Pause is how long the client is stopped, at most a day; required with After. It doubles with each stop, up to a day, until the
	// host serves the client again.
	Pause time.Duration
}

func (c *CoolDown) check() error {
	switch {
	case c.After < 0 || c.After > maxAfter:
		return fmt.Errorf("a cool-down after %d responses, which must be at most %d", c.After, maxAfter)
	case c.After > 0 && (c.Within <= 0 || c.Pause <= 0 || c.Pause > stops.MaxCoolDown || len(c.Statuses) == 0):
		return fmt.Errorf("a cool-down needs a time, a pause of at most %v and statuses", stops.MaxCoolDown)
	}
	return nil
}

// tighten makes c stop a client if c or o does.
func (c CoolDown) tighten(o CoolDown) CoolDown {
	if c.After == 0 || o.After == 0 {
		if c.After == 0 {
			return o
		}
		return c
	}
	c.After, c.Within, c.Pause = min(c.After, o.After), max(c.Within, o.Within), max(c.Pause, o.Pause)
	c.Statuses = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.Statuses, o.Statuses))))
	return c
}

const (
	// maxAfter bounds CoolDown.After.
	maxAfter = 100

	// maxRows is the maximum number of rows, each of about 500 bytes with the default options. If there is one more, the client that has
	// the most rows loses one.
	maxRows = 20_000

	// probeTime is how long a request may probe a host before the next one may, and probeRetry when a client may try again whose host is
	// being probed.
	probeTime  = time.Minute
	probeRetry = 5 * time.Second
)

// coolDowns counts the refusals that may stop clients, and knows which requests probe a host afterwards. The Engines before and after
// a Renew share it.
type coolDowns struct {
	table *stops.Table

	// cooledDown is Options.CooledDown.
	cooledDown func(stops.Stop)

	// rows is the number of all rows, which is also read without mu.
	rows atomic.Int64

	// mu guards the fields below.
	mu sync.Mutex

	// clients has the rows by client and host. The client of the proxy's own fetches is "".
	clients map[string]map[string]row

	// probes are the stops that are over and that a request probes, with the time of its begin.
	probes map[stops.Key]time.Time

	// watched are the hosts at which this process has stopped a client, and whether another one was served there since.
	watched map[string]bool
}

// A row is the latest responses by which a host has refused a client, without a 2xx or 3xx between them, the oldest first.
type row []refusedAt

type refusedAt struct {
	at     time.Time
	status int
}

// statuses returns the statuses in ascending order, each once.
func (r row) statuses() (all []int) {
	for _, one := range r {
		all = append(all, one.status)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func newCoolDowns(table *stops.Table, cooledDown func(stops.Stop)) *coolDowns {
	return &coolDowns{
		table: table, cooledDown: cooledDown,
		clients: map[string]map[string]row{}, probes: map[stops.Key]time.Time{}, watched: map[string]bool{},
	}
}

// An Attempt follows a request from before its slot until its response, which counts for the CoolDown. The zero Attempt does
// nothing. An Attempt belongs to one goroutine.
type Attempt struct {
	of           *coolDowns
	host, client string
	cool         CoolDown
	began        time.Time

	// probes are the stops that are over and that the request probes.
	probes []stops.Key
}

// Attempt begins an Attempt, which the caller must end. It returns a *HoldError if a cool-down stops r, or if another request probes the
// host after one. d is what Decide has returned for r.
func (e *Engine) Attempt(r *Request, d *Decision) (Attempt, error) {
	cool := e.coolDown(d.terms)
	if cool.After == 0 || r.Method == http.MethodConnect {
		// What the host answers in a tunnel, the proxy does not know.
		return Attempt{}, nil
	}
	a := Attempt{of: e.coolDowns, host: r.Origin.Host, client: ShareKey(r.Client), cool: cool, began: time.Now()}
	if a.of.table.IsEmpty() {
		return a, nil
	}
	for _, client := range [...]string{"", a.client} {
		if held := a.enter(stops.Key{Kind: stops.CoolDown, Host: a.host, Client: client}); held != nil {
			a.End()
			return Attempt{}, held
		}
	}
	return a, nil
}

// enter returns an error if the stop with a key holds, or if it is over and another request probes it. If no other request does, a
// becomes its probe.
func (a *Attempt) enter(k stops.Key) *HoldError {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	s, known := a.of.table.Get(k)
	switch {
	case !known || s.Ended || a.began.After(s.KeptUntil()):
		return nil
	case s.Holds(a.began):
		return coolDownError(&s)
	case a.began.Sub(a.of.probes[k]) < probeTime:
		s.Until = a.began.Add(probeRetry)
		return coolDownError(&s)
	}
	a.of.probes[k] = a.began
	a.probes = append(a.probes, k)
	return nil
}

// Answered counts the status of the host's final response, and ends the Attempt.
func (a *Attempt) Answered(status int) {
	switch {
	case a.of == nil:
	case status/100 == 2, status/100 == 3, status == http.StatusSwitchingProtocols:
		a.of.served(a)
	case slices.Contains(a.cool.Statuses, status):
		a.of.refused(a, status)
	default:
		a.of.endProbed(a)
	}
	a.End()
}

// End ends the Attempt without a response. It may be called again.
func (a *Attempt) End() {
	if len(a.probes) == 0 {
		return
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	for _, k := range a.probes {
		// Another request may probe the host by now.
		if a.of.probes[k].Equal(a.began) {
			delete(a.of.probes, k)
		}
	}
	a.probes = nil
}

// FetchAnswered counts the status of an origin's response to the proxy's own fetch of its robots.txt. If a client is stopped at the
// host, or the fetches get a row of refusals, all clients are stopped there. It is not for a GET that another host's robots.txt has
// redirected there: whoever makes redirects would decide for others.
func (e *Engine) FetchAnswered(o robots.Origin, status int) {
	cool := e.coolDown(e.hosts.find(o.Host))
	if cool.After == 0 {
		return
	}
	a := Attempt{of: e.coolDowns, host: o.Host, cool: cool, began: time.Now()}
	a.Answered(status)
}

// endProbed ends the stops that a has probed.
func (c *coolDowns) endProbed(a *Attempt) {
	for _, k := range a.probes {
		c.table.End(k, "")
	}
}

// served ends the row of a, and the stops that a has probed.
func (c *coolDowns) served(a *Attempt) {
	c.endProbed(a)
	if c.rows.Load() == 0 && c.table.IsEmpty() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(a.client, a.host)
	// What a host serves to others, it serves to the proxy.
	c.drop("", a.host)
	// A host that refuses all clients may still serve its robots.txt.
	if _, watched := c.watched[a.host]; watched && a.client != "" {
		c.watched[a.host] = true
	}
}

// refused counts a response, and stops the client or, after that of another one, all clients.
func (c *coolDowns) refused(a *Attempt, status int) {
	for _, k := range a.probes {
		c.stop(k, []int{status}, a.cool.Pause)
	}
	own := stops.Key{Kind: stops.CoolDown, Host: a.host, Client: a.client}
	// Several requests may have been under way when a stop began.
	if s, known := c.table.Get(own); len(a.probes) > 0 || known && s.Since.After(a.began) {
		return
	}
	statuses := c.count(a, status)
	switch {
	case statuses != nil:
		c.stop(own, statuses, a.cool.Pause)
	case a.client == "":
		// If a client is stopped, one refusal of the proxy's own fetch is enough.
		statuses = []int{status}
	default:
		return
	}
	other, any := c.table.Other(stops.CoolDown, a.host, a.client)
	if (any || a.client != "") && !c.watch(own.Host, any) {
		own.Client = ""
		c.stop(own, append(statuses, other.Statuses...), a.cool.Pause)
	}
}

// watch notes that a client is stopped at a host. It reports false if another one is too, and the host has served nobody since.
func (c *coolDowns) watch(host string, again bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	served, watched := c.watched[host]
	if again && !(watched && served) {
		return false
	}
	if len(c.watched) >= stops.MaxCoolDowns {
		// A host that is forgotten stops for all when one more client is stopped, also if it has served others.
		clear(c.watched)
	}
	if !again || !watched {
		c.watched[strings.Clone(host)] = false
	}
	return true
}

// count adds a refusal to the row of a. If the row is complete, it ends, and count returns its statuses.
func (c *coolDowns) count(a *Attempt, status int) (statuses []int) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	w, known := c.clients[a.client][a.host]
	if w = append(w, refusedAt{now, status}); len(w) > a.cool.After {
		w = w[len(w)-a.cool.After:]
	}
	if len(w) == a.cool.After && now.Sub(w[0].at) <= a.cool.Within {
		c.drop(a.client, a.host)
		return w.statuses()
	}
	if !known {
		c.makeRoom()
		c.rows.Add(1)
	}
	// A substring of a request's head would keep the whole head in memory.
	host, client := strings.Clone(a.host), strings.Clone(a.client)
	if c.clients[client] == nil {
		c.clients[client] = map[string]row{}
	}
	c.clients[client][host] = w
	return nil
}

// makeRoom drops a row of the client that has the most, if there are too many. c.mu is held.
func (c *coolDowns) makeRoom() {
	if c.rows.Load() < maxRows {
		return
	}
	most := ""
	for client, all := range c.clients {
		if len(all) > len(c.clients[most]) {
			most = client
		}
	}
	for host := range c.clients[most] {
		c.drop(most, host)
		return
	}
}

// drop ends a row, if there is one. c.mu is held.
func (c *coolDowns) drop(client, host string) {
	all := c.clients[client]
	if _, known := all[host]; !known {
		return
	}
	c.rows.Add(-1)
	if delete(all, host); len(all) == 0 {
		delete(c.clients, client)
	}
}

// stop begins a stop, of twice the length of the one before it if the host has not served the client since.
func (c *coolDowns) stop(k stops.Key, statuses []int, pause time.Duration) {
	slices.Sort(statuses)
	statuses = slices.Compact(statuses)
	// A substring of a request's head would keep the whole head in memory.
	s := stops.Stop{Kind: k.Kind, Host: strings.Clone(k.Host), Client: strings.Clone(k.Client), Length: pause}
	s.Statuses = statuses[:min(len(statuses), stops.MaxStatuses)]
	now := time.Now()
	was, known := c.table.Get(k)
	switch {
	case !known || was.Ended:
	case was.Holds(now):
		return
	default:
		s.Length = min(max(pause, 2*was.Length), stops.MaxCoolDown)
	}
	s.Since, s.Until = now, now.Add(s.Length)
	s, err := c.table.Put(s)
	if err == nil && c.cooledDown != nil {
		c.cooledDown(s)
	}
}

// coolDown returns the CoolDown under an entry of Options.Hosts, which may be nil.
func (e *Engine) coolDown(h *Host) CoolDown {
	if h == nil || h.CoolDown == nil {
		return e.o.CoolDown
	}
	return *h.CoolDown
}

// coolingDown returns the error of a request that a cool-down stops, if its entry h has cool-downs; nil: none does.
func (e *Engine) coolingDown(r *Request, h *Host) *HoldError {
	if !e.o.Stops.Any() || e.coolDown(h).After == 0 {
		return nil
	}
	if s, ok := e.o.Stops.Of(stops.CoolDown, r.Origin.Host, ShareKey(r.Client)); ok {
		return coolDownError(&s)
	}
	return nil
}

func coolDownError(s *stops.Stop) *HoldError {
	refused := "The host refused this client's requests"
	if s.Client == "" {
		refused = "The host refused the requests of several clients, or of the proxy itself,"
	}
	refused += " in a row (" + s.StatusText() + "), so the proxy sends it none for a time"
	return &HoldError{ReasonCoolDown, s.Until, refused}
}
