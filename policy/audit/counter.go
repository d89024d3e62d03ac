package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy"
)

// maxCounted bounds how many hosts, and how many rules, a Counter counts apart. It counts
// later ones under the name others.
const (
	maxCounted = 10_000
	others     = "(others)"
)

// A Counter counts Records by host, and blocked ones also by rule. The zero Counter is ready
// for use.
type Counter struct {
	mu    sync.Mutex
	total Summary
	hosts map[string]*HostSummary
	rules map[RuleSummary]int64 // keyed with Count zero
}

// A Summary is the result of a Counter.
type Summary struct {
	Allowed, Blocked int64
	ClientLeft       int64 // requests whose client left before a decision or before the request was sent; neither allowed nor blocked
	StoreAway        int64 // requests that were paced without the shared store
	Waited           time.Duration
	Hosts            []HostSummary // by name
	Rules            []RuleSummary // by Count, the highest first
}

// A HostSummary counts the requests to one host.
type HostSummary struct {
	Host             string
	Allowed, Blocked int64
	ClientLeft       int64 // see Summary
	Waited           time.Duration
}

// A RuleSummary counts the requests to one host that a rule blocked or, if Rule is empty, that
// were blocked for a reason.
type RuleSummary struct {
	Host, Reason, Rule string
	Line               int
	Count              int64
}

// Write counts a record. It never fails.
func (c *Counter) Write(r *Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil {
		c.hosts, c.rules = map[string]*HostSummary{}, map[RuleSummary]int64{}
	}
	h := c.host(r.Request.Origin.Host)
	h.Waited += r.Waited
	c.total.Waited += r.Waited
	if r.StoreAway {
		c.total.StoreAway++
	}
	switch {
	case !r.Blocked():
		h.Allowed++
		c.total.Allowed++
		return nil
	case r.Decision.Reason == policy.ReasonClient:
		h.ClientLeft++
		c.total.ClientLeft++
		return nil
	}
	h.Blocked++
	c.total.Blocked++
	k := RuleSummary{Host: h.Host, Reason: string(r.Decision.Reason), Rule: strings.Clone(r.Decision.Rule), Line: r.Decision.Line}
	if _, ok := c.rules[k]; !ok && len(c.rules) >= maxCounted {
		k = RuleSummary{Host: others, Reason: string(r.Decision.Reason)}
	}
	c.rules[k]++
	return nil
}

func (c *Counter) host(name string) *HostSummary {
	if h := c.hosts[name]; h != nil {
		return h
	}
	if len(c.hosts) >= maxCounted {
		name = others
		if h := c.hosts[name]; h != nil {
			return h
		}
	}
	name = strings.Clone(name) // else it would keep the whole request header in memory
	h := &HostSummary{Host: name}
	c.hosts[name] = h
	return h
}

// Counts returns the requests that were allowed and blocked so far. It costs less than Summary.
func (c *Counter) Counts() (allowed, blocked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.Allowed, c.total.Blocked
}

// Summary returns the counts so far.
func (c *Counter) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.total
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		s.Hosts = append(s.Hosts, *c.hosts[name])
	}
	for r, n := range c.rules {
		r.Count = n
		s.Rules = append(s.Rules, r)
	}
	slices.SortFunc(s.Rules, func(a, b RuleSummary) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Reason, b.Reason))
	})
	return s
}
