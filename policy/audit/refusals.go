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
	// maxCheapOfAll is the total Weight of the cheap refusals that are recorded in a second for all strangers
	// together (policy.IsStranger), and for all other clients together.
	maxCheapOfAll = 1000
	// maxCheapClients is the number of clients that are counted apart in a second; later strangers
	// count as one. It bounds memory, at about 100 bytes a client.
	maxCheapClients = 4096
	// cheapInterval is how long refusals are counted together.
	cheapInterval = time.Second
)

// IsCheap reports whether a refusal for this reason costs its sender nothing. A client can send any number of such
// requests, and the record of each would fill the segments, so that older ones are removed sooner.
func IsCheap(r policy.Reason) bool { return r.Info().Cheap }

// Weight returns what the record of a refusal takes of a limit for all clients together: 1, and 1 more for each KiB of path
// and query, which can be much longer than the rest. It is at most 9, so that maxCheap refusals of one client fit into
// maxCheapOfAll.
func Weight(r *Record) int { return 1 + min(len(r.Request.PathQuery)>>10, 8) }

// A refusalCounter counts the cheap refusals that are not recorded: those of a client beyond maxCheap, and those
// beyond maxCheapOfAll. Log.mu guards it.
type refusalCounter struct {
	// When the current interval began.
	start time.Time

	// In the interval, by ShareKey.
	byClient map[string]cheapRecords

	// PerSecond and Burst are maxCheapOfAll.
	ofAll FairLimit

	// clients with refusals in the interval that are not recorded.
	clientsOver int

	// The first of these clients; its ShareKey if several addresses have it.
	client  string
	reasons map[policy.Reason]int64
}

// cheapRecords are the cheap refusals of one client in an interval.
type cheapRecords struct {
	// That are recorded.
	n int

	// others are not recorded.
	over bool
}

// add counts a refusal and reports whether it is not to be recorded.
func (c *refusalCounter) add(r *Record) bool {
	if c.byClient == nil {
		c.byClient, c.reasons = map[string]cheapRecords{}, map[policy.Reason]int64{}
		c.ofAll = FairLimit{PerSecond: maxCheapOfAll, Burst: maxCheapOfAll}
	}
	key := policy.ShareKey(r.Request.Client)
	of, known := c.byClient[key]
	switch {
	case !known && len(c.byClient) >= maxCheapClients && policy.IsStranger(r.Request.Client):
		key = others
		of = c.byClient[key]
	case !known:
		// Else it would keep the whole request header in memory.
		key = strings.Clone(key)
	}
	recorded := of.n < maxCheap && c.ofAll.Take(r.Request.Client, Weight(r), time.Now())
	switch {
	case recorded:
		of.n++
	case !of.over:
		of.over = true
		if c.clientsOver++; c.clientsOver == 1 {
			c.client = strings.Clone(r.Request.Client)
		}
	}
	c.byClient[key] = of
	if !recorded {
		c.reasons[r.Decision.Reason]++
		if c.clientsOver == 1 && c.client != r.Request.Client {
			c.client = strings.Clone(key)
		}
	}
	return !recorded
}

// take ends the interval, and returns the event about the refusals that were counted in it.
func (c *refusalCounter) take(now time.Time, o *Options) (e *event, counted bool) {
	c.start = now
	if c.clientsOver == 0 {
		clear(c.byClient)
		return nil, false
	}
	e = &event{Event: trail.EventCounted, Reasons: map[string]int64{}, Clients: c.clientsOver}
	var each []string
	for _, reason := range slices.Sorted(maps.Keys(c.reasons)) {
		n := c.reasons[reason]
		e.Count += n
		e.Reasons[string(reason)] = n
		each = append(each, fmt.Sprintf("%d %s", n, reason))
	}
	clients := humanize.Count(c.clientsOver, "client")
	switch {
	case c.byClient[others].over:
		// others are several, and no client has that name.
		clients = "at least " + clients
	case c.clientsOver == 1:
		e.Client = o.clientName(c.client)
	}
	clear(c.byClient)
	e.Detail = fmt.Sprintf("refusals of %s beyond %d a second each or %d of all, which have no records: %s",
		clients, maxCheap, maxCheapOfAll, strings.Join(each, ", "))
	clear(c.reasons)
	c.clientsOver, c.client = 0, ""
	return e, true
}
