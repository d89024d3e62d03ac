package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

const (
	// maxCheap is the number of cheap refusals that are recorded in a second for one client
	// (policy.ShareKey). A client that does not attack causes few.
	maxCheap = 100
	// maxCheapClients is the number of clients that are counted apart in a second; later ones
	// count as one. It bounds memory, at about 100 bytes a client.
	maxCheapClients = 4096
	// cheapInterval is how long refusals are counted together.
	cheapInterval = time.Second
)

// others is the key of all clients that are not counted apart.
const others = "(others)"

// IsCheap reports whether a refusal for this reason costs its sender nothing: the request
// and the configuration alone decide it. A client can send any number of such requests, and
// the record of each would fill the segments, so that older ones are removed sooner.
func IsCheap(r policy.Reason) bool {
	switch r {
	case policy.ReasonMalformed, policy.ReasonAuth, policy.ReasonLimit, policy.ReasonLoop,
		policy.ReasonPort, policy.ReasonAddress, policy.ReasonConfined, policy.ReasonDenied, policy.ReasonIdentity:
		return true
	}
	return false
}

// A refusalCounter counts the cheap refusals beyond maxCheap, which are not recorded. Log.mu
// guards it.
type refusalCounter struct {
	start       time.Time      // when the current interval began
	byClient    map[string]int // refusals in the interval, by ShareKey
	clientsOver int            // clients with more than maxCheap refusals in the interval
	client      string         // the first of these clients
	reasons     map[policy.Reason]int64
}

// add counts a refusal of the client with this ShareKey, and reports whether it is beyond
// maxCheap.
func (c *refusalCounter) add(key string, reason policy.Reason) bool {
	if c.byClient == nil {
		c.byClient, c.reasons = map[string]int{}, map[policy.Reason]int64{}
	}
	n, known := c.byClient[key]
	switch {
	case !known && len(c.byClient) >= maxCheapClients:
		key = others
		n = c.byClient[key]
	case !known:
		key = strings.Clone(key) // else it would keep the whole request header in memory
	}
	c.byClient[key] = n + 1
	if n < maxCheap {
		return false
	}
	if n == maxCheap {
		if c.clientsOver++; c.clientsOver == 1 {
			c.client = key
		}
	}
	c.reasons[reason]++
	return true
}

// take ends the interval, and returns the event about the refusals that were counted in it.
func (c *refusalCounter) take(now time.Time, o *Options) (e event, counted bool) {
	c.start = now
	if c.clientsOver == 0 {
		clear(c.byClient)
		return event{}, false
	}
	e = event{name: trail.EventCounted, reasons: map[string]int64{}, clients: c.clientsOver}
	var each []string
	for _, reason := range slices.Sorted(maps.Keys(c.reasons)) {
		n := c.reasons[reason]
		e.count += n
		e.reasons[string(reason)] = n
		each = append(each, fmt.Sprintf("%d %s", n, reason))
	}
	clients := humanize.Count(c.clientsOver, "client")
	switch {
	case c.byClient[others] > maxCheap:
		clients = "at least " + clients // others are several, and no client has that name
	case c.clientsOver == 1:
		e.client = o.clientName(c.client)
	}
	clear(c.byClient)
	e.detail = fmt.Sprintf("refusals of %s beyond %d a second each, which have no records: %s", clients, maxCheap, strings.Join(each, ", "))
	clear(c.reasons)
	c.clientsOver, c.client = 0, ""
	return e, true
}
