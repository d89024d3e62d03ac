package egress

import (
	"maps"
	"sync"
	"time"

	"robotsproxy/robots"
)

const (
	recentFor  = 30 * time.Second // a connection made within this time shows that an origin can be reached
	traitFor   = 24 * time.Hour   // how long it is remembered that a peer requires HTTP/1.1, or legacy cipher suites
	maxHistory = 10_000           // origins; about 100 bytes each
)

// A trait is what an origin was seen to need.
type trait uint8

const (
	needsHTTP1     trait = iota
	needsLegacyTLS       // it accepts only legacy cipher suites
)

// A history remembers what the last connections to each origin showed.
type history struct {
	mu sync.Mutex

	// open counts the open connections. Its origins, and those of reached, have no scheme.
	open    map[robots.Origin]int
	reached expiringSet
	traits  [2]expiringSet

	// retry is how long a failure is returned again.
	retry    time.Duration
	failures map[robots.Origin]*RetryError
}

func newHistory(retry time.Duration) *history {
	return &history{
		retry:    retry,
		failures: make(map[robots.Origin]*RetryError),
		open:     make(map[robots.Origin]int),
		reached:  newExpiringSet(recentFor, maxHistory),
		traits:   [2]expiringSet{newExpiringSet(traitFor, maxHistory), newExpiringSet(traitFor, maxHistory)},
	}
}

// wasReached reports whether a connection to o is open or was made within recentFor.
func (h *history) wasReached(o robots.Origin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Scheme = ""
	return h.reached.has(o) || h.open[o] > 0
}

// reach notes that o has just been reached, TLS included, and counts more open connections to it.
func (h *history) reach(o robots.Origin, more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failures, o)
	o.Scheme = ""
	h.reached.add(o)
	if more > 0 {
		h.open[o] += more
	}
}

// fail stores why an attempt that began at some time could not reach o. It returns the error to
// return until the next attempt. If o was reached after that time, it stores nothing and returns
// err.
func (h *history) fail(o robots.Origin, began time.Time, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := o
	at.Scheme = ""
	if h.reached.added[at].After(began) {
		return err
	}
	if len(h.failures) >= maxHistory {
		// Each failure that is lost costs one more attempt.
		clear(h.failures)
	}
	e := &RetryError{Err: err, At: time.Now().Add(h.retry)}
	h.failures[o] = e
	return e
}

// failure returns why o could not be reached, or nil if an attempt may be made.
func (h *history) failure(o robots.Origin) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.failures[o]
	if e == nil {
		return nil
	}
	if time.Until(e.At) <= 0 {
		delete(h.failures, o)
		return nil
	}
	return &RetryError{e.Err, e.At, true}
}

// closed ends the count of a connection to o.
func (h *history) closed(o robots.Origin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Scheme = ""
	if h.open[o]--; h.open[o] <= 0 {
		delete(h.open, o)
	}
}

// has reports whether o was seen to have a trait.
func (h *history) has(t trait, o robots.Origin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.traits[t].has(o)
}

// note notes that o has a trait.
func (h *history) note(t trait, o robots.Origin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.traits[t].add(o)
}

// An expiringSet holds up to limit origins, each for the time keep.
type expiringSet struct {
	keep  time.Duration
	limit int
	added map[robots.Origin]time.Time
}

func newExpiringSet(keep time.Duration, limit int) expiringSet {
	return expiringSet{keep: keep, limit: limit, added: make(map[robots.Origin]time.Time)}
}

func (s expiringSet) has(o robots.Origin) bool {
	added, ok := s.added[o]
	return ok && time.Since(added) < s.keep
}

func (s expiringSet) add(o robots.Origin) {
	if _, ok := s.added[o]; !ok && len(s.added) >= s.limit {
		maps.DeleteFunc(s.added, func(o robots.Origin, _ time.Time) bool { return !s.has(o) })
		if len(s.added) >= s.limit {
			// Each origin that is lost costs one more connection.
			clear(s.added)
		}
	}
	s.added[o] = time.Now()
}
