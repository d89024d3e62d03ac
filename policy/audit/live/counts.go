package live

import (
	"sync"
	"time"

	"robotsproxy/policy"
)

// A Class is what became of a request: one of the four outcomes of package policy, or NotEnforced.
type Class uint8

// The classes.
const (
	Failed     = Class(policy.Failed)
	Allowed    = Class(policy.Allowed)
	Disallowed = Class(policy.Disallowed)
	Deferred   = Class(policy.Deferred)
	// NotEnforced requests were decided against but sent, under mode: monitor.
	NotEnforced = Deferred + 1

	classes = NotEnforced + 1
)

// ClassOf returns the Class of a request. enforced is false under mode: monitor.
func ClassOf(o policy.Outcome, enforced bool) Class {
	if o != policy.Allowed && !enforced {
		return NotEnforced
	}
	return Class(o)
}

// String returns the word of the API: that of the outcome, or "not_enforced".
func (c Class) String() string {
	if c == NotEnforced {
		return "not_enforced"
	}
	return policy.Outcome(c).String()
}

// Counts has the number of requests of each Class.
type Counts [classes]int64

// Add adds other to c.
func (c *Counts) Add(other *Counts) {
	for i, n := range other {
		c[i] += n
	}
}

// Total returns the number of all requests.
func (c *Counts) Total() (n int64) {
	for _, of := range c {
		n += of
	}
	return n
}

// Blocked returns the number of requests that were decided against.
func (c *Counts) Blocked() int64 { return c.Total() - c[Allowed] }

// An Entry identifies an entry of hosts by the pattern and the reason in its records.
type Entry struct{ Match, Reason string }

// A Tallied is what became of the requests of one client, or under one entry.
type Tallied struct {
	Counts Counts

	// Last is when the last request arrived; zero: there was none.
	Last time.Time
}

// maxTallied bounds the keys of a tally. A configuration that is reloaded may name new ones each time.
const maxTallied = 10_000

// byAddress is the key of all clients without a name, so that strangers cannot add keys.
const byAddress = ""

// A tally counts requests by a key of the configuration.
type tally[K comparable] struct {
	// mu guards byKey, which has at most maxTallied keys.
	mu    sync.Mutex
	byKey map[K]*Tallied
}

func (t *tally[K]) count(key K, c Class, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byKey[key]
	if n == nil {
		if len(t.byKey) >= maxTallied {
			t.forgetOldest()
		}
		n = new(Tallied)
		t.byKey[key] = n
	}
	n.Counts[c]++
	if at.After(n.Last) {
		n.Last = at
	}
}

// forgetOldest removes the key whose last request is the oldest. The caller holds mu.
func (t *tally[K]) forgetOldest() {
	var oldest K
	var last time.Time
	for key, n := range t.byKey {
		if last.IsZero() || n.Last.Before(last) {
			oldest, last = key, n.Last
		}
	}
	delete(t.byKey, oldest)
}

func (t *tally[K]) of(key K) Tallied {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byKey[key]; n != nil {
		return *n
	}
	return Tallied{}
}
