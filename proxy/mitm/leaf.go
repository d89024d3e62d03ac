package mitm

import (
	"container/list"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/robots"
)

const (
	// renewFraction is the divisor of a leaf's lifetime for the time before its end at which it
	// is replaced.
	renewFraction = 4

	// Bytes of a client's name in an error message.
	maxShown = 100
)

var errBadName = errors.New("not a host name or an IP address")

// hostName returns the one spelling of a name under which certificates are made and cached. A
// wildcard is not a host name.
func hostName(name string) (string, error) {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.WithZone("").Unmap().String(), nil
	}
	if strings.ContainsAny(name, ":[]") {
		return "", fmt.Errorf("%q: %w", name[:min(len(name), maxShown)], errBadName)
	}
	o, err := robots.ParseOrigin("https", name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errBadName, err)
	}
	return o.Host, nil
}

// A leafCache holds the most recently used leaves, at most max of them. Concurrent requests for one
// name sign one certificate.
type leafCache struct {
	max int

	// Leaves, so far; see Authority.Follow.
	signed *atomic.Uint64

	mu sync.Mutex

	// Of *cachedLeaf; the most recently used in front.
	byUse *list.List
	names map[string]*list.Element
}

type cachedLeaf struct {
	name string

	// Not under the cache's lock: an RSA signature takes milliseconds.
	sign sync.Once
	cert *tls.Certificate
	err  error

	// When it is replaced; guarded by the cache's mu, zero while it is being signed.
	renew time.Time
}

func newLeafCache(most int) *leafCache {
	return &leafCache{max: most, signed: new(atomic.Uint64), byUse: list.New(), names: make(map[string]*list.Element)}
}

func (c *leafCache) get(name string, now time.Time, sign func(string, time.Time) (*tls.Certificate, error)) (*tls.Certificate, error) {
	leaf := c.entry(name, now)
	leaf.sign.Do(func() {
		leaf.cert, leaf.err = sign(name, now)
		c.finish(leaf, now)
	})
	return leaf.cert, leaf.err
}

// entry returns the entry of name, a new one if there is none or the old one is due for renewal.
func (c *leafCache) entry(name string, now time.Time) *cachedLeaf {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.names[name]; ok {
		s := e.Value.(*cachedLeaf)
		if s.renew.IsZero() || now.Before(s.renew) {
			c.byUse.MoveToFront(e)
			return s
		}
		c.drop(e)
	}
	s := &cachedLeaf{name: name}
	c.names[name] = c.byUse.PushFront(s)
	if c.byUse.Len() > c.max {
		c.drop(c.byUse.Back())
	}
	return s
}

// finish notes when s is due for renewal. A failure is not cached.
func (c *leafCache) finish(s *cachedLeaf, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err == nil {
		c.signed.Add(1)
		end := s.cert.Leaf.NotAfter
		s.renew = end.Add(-end.Sub(now) / renewFraction)
		return
	}
	if e, ok := c.names[s.name]; ok && e.Value == any(s) {
		c.drop(e)
	}
}

func (c *leafCache) drop(e *list.Element) {
	c.byUse.Remove(e)
	delete(c.names, e.Value.(*cachedLeaf).name)
}

func (c *leafCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.names)
}
