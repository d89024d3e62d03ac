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

// maxTallied bounds how many hosts, and how many rules, a Tally tells apart.
// What comes later is counted under the name others.
const (
	maxTallied = 10_000
	others     = "(others)"
)

// A Tally counts Records by host and, of the blocked ones, by rule. The zero
// Tally is ready for use.
type Counter struct {
	mu    sync.Mutex
	total Summary
	hosts map[string]*HostSummary
	rules map[RuleSummary]int64 // keyed with Count zero
}

// A Summary is what a Tally has counted.
type Summary struct {
	Allowed, Blocked int64
	ClientLeft       int64 // whose client left before there was a decision, or their turn; they are in neither of these
	StoreAway        int64 // that were paced without the store that replicas share
	Waited           time.Duration
	Hosts            []HostSummary // by name
	Rules            []RuleSummary // most often first
}

// A HostSummary counts the requests to one host.
type HostSummary struct {
	Host             string
	Allowed, Blocked int64
	ClientLeft       int64 // see Summary
	Waited           time.Duration
}

// A RuleSummary counts the requests that one rule, or where there is none one
// reason, blocked at one host.
type RuleSummary struct {
	Host, Reason, Rule string
	Line               int
	Count              int64
}

// Write counts a record. It never fails.
func (t *Counter) Write(r *Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts == nil {
		t.hosts, t.rules = map[string]*HostSummary{}, map[RuleSummary]int64{}
	}
	h := t.host(r.Request.Origin.Host)
	h.Waited += r.Waited
	t.total.Waited += r.Waited
	if r.StoreAway {
		t.total.StoreAway++
	}
	switch {
	case !r.Blocked():
		h.Allowed++
		t.total.Allowed++
		return nil
	case r.Decision.Reason == policy.ReasonClient:
		h.ClientLeft++
		t.total.ClientLeft++
		return nil
	}
	h.Blocked++
	t.total.Blocked++
	k := RuleSummary{Host: h.Host, Reason: string(r.Decision.Reason), Rule: strings.Clone(r.Decision.Rule), Line: r.Decision.Line}
	if _, ok := t.rules[k]; !ok && len(t.rules) >= maxTallied {
		k = RuleSummary{Host: others, Reason: string(r.Decision.Reason)}
	}
	t.rules[k]++
	return nil
}

func (t *Counter) host(name string) *HostSummary {
	if h := t.hosts[name]; h != nil {
		return h
	}
	if len(t.hosts) >= maxTallied {
		name = others
		if h := t.hosts[name]; h != nil {
			return h
		}
	}
	name = strings.Clone(name) // or it would keep a whole request's head
	h := &HostSummary{Host: name}
	t.hosts[name] = h
	return h
}

// Counts gives how many have been allowed and blocked so far, which costs less than a Summary.
func (t *Counter) Counts() (allowed, blocked int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total.Allowed, t.total.Blocked
}

// Summary gives what has been counted so far.
func (t *Counter) Summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.total
	for _, name := range slices.Sorted(maps.Keys(t.hosts)) {
		s.Hosts = append(s.Hosts, *t.hosts[name])
	}
	for r, n := range t.rules {
		r.Count = n
		s.Rules = append(s.Rules, r)
	}
	slices.SortFunc(s.Rules, func(a, b RuleSummary) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Reason, b.Reason))
	})
	return s
}
