package egress

import (
	"maps"
	"sync"
	"time"

	"robotsproxy/robots"
)

const (
	recentFor   = 30 * time.Second // a connection made this long ago shows that an origin is there
	plainFor    = 5 * time.Minute  // a peer without TLS is not tried with TLS again
	choiceFor   = 24 * time.Hour   // a peer that chose HTTP/2 is taken to do so again
	maxContacts = 10_000           // origins remembered; about 100 octets each
)

// contacts remembers what the last connections to each origin showed.
type contacts struct {
	mu   sync.Mutex
	open map[robots.Origin]int // connections that stand: as many as there are sockets
	made memory
	bare memory // peers that did not speak TLS
	h2   memory // that chose HTTP/2 in their last handshake

	retry    time.Duration // an origin that could not be reached is left alone for
	failures map[robots.Origin]*RetryError
}

// A RetryError is a failure that is answered with again until a new try is due.
type RetryError struct {
	Err error
	At  time.Time // of the next try
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

func newContacts(retry time.Duration) *contacts {
	return &contacts{
		retry:    retry,
		failures: make(map[robots.Origin]*RetryError),
		open:     make(map[robots.Origin]int),
		made:     newMemory(recentFor, maxContacts),
		bare:     newMemory(plainFor, maxContacts),
		h2:       newMemory(choiceFor, maxContacts),
	}
}

// recent reports whether a connection to o stands or was made a short while
// ago.
func (c *contacts) recent(o robots.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made.holds(o) || c.open[o] > 0
}

// note takes down that o has just been reached.
func (c *contacts) note(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made.note(o)
	delete(c.failures, o)
}

// failed takes down why o could not be reached.
func (c *contacts) failed(o robots.Origin, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) >= maxContacts {
		clear(c.failures) // forgetting costs a try at most
	}
	e := &RetryError{Err: err, At: time.Now().Add(c.retry)}
	c.failures[o] = e
	return e
}

// failure is why o could not be reached a short while ago; nil where it is
// time to try.
func (c *contacts) failure(o robots.Origin) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.failures[o]
	if e == nil {
		return nil
	}
	if time.Until(e.At) <= 0 {
		delete(c.failures, o)
		return nil
	}
	return e
}

// opened takes down that a connection to o stands, TLS included.
func (c *contacts) opened(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[o]++
	c.made.note(o)
	delete(c.failures, o)
}

func (c *contacts) closed(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[o]--; c.open[o] <= 0 {
		delete(c.open, o)
	}
}

func (c *contacts) plain(o robots.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bare.holds(o)
}

func (c *contacts) notTLS(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bare.note(o)
}

func (c *contacts) speaksTLS(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bare.since, o)
}

// chose takes down what o has chosen where it had the choice.
func (c *contacts) chose(o robots.Origin, http2 bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if http2 {
		c.h2.note(o)
	} else {
		delete(c.h2.since, o)
	}
}

func (c *contacts) http2(o robots.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.h2.holds(o)
}

// A memory holds origins for a time, and at most so many.
type memory struct {
	keep  time.Duration
	most  int
	since map[robots.Origin]time.Time
}

func newMemory(keep time.Duration, most int) memory {
	return memory{keep: keep, most: most, since: make(map[robots.Origin]time.Time)}
}

func (m memory) holds(o robots.Origin) bool {
	since, ok := m.since[o]
	return ok && time.Since(since) < m.keep
}

func (m memory) note(o robots.Origin) {
	if _, ok := m.since[o]; !ok && len(m.since) >= m.most {
		maps.DeleteFunc(m.since, func(o robots.Origin, _ time.Time) bool { return !m.holds(o) })
		if len(m.since) >= m.most {
			clear(m.since) // forgetting costs a connection at most
		}
	}
	m.since[o] = time.Now()
}
