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

	// maxShown is the maximum number of bytes of a client's name in an error message.
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

	// signed counts the leaves so far; see Authority.Follow.
	signed *atomic.Uint64

	// mu guards byUse and names. byUse has each *cachedLeaf, the most recently used in front.
	mu    sync.Mutex
	byUse *list.List
	names map[string]*list.Element
}

type cachedLeaf struct {
	name string
	made time.Time

	// cert signs the certificate once. It is not called under the cache's lock: an RSA signature takes milliseconds.
	cert func() (*tls.Certificate, error)
}

func newLeafCache(most int) *leafCache {
	return &leafCache{max: most, signed: new(atomic.Uint64), byUse: list.New(), names: make(map[string]*list.Element)}
}

// get returns the leaf of name. It signs one if there is none, or if the old one is due for renewal. A failure is not
// cached.
func (c *leafCache) get(name string, now time.Time, sign func(string, time.Time) (*tls.Certificate, error)) (*tls.Certificate, error) {
	for {
		e := c.entry(name, now, sign)
		leaf := e.Value.(*cachedLeaf)
		cert, err := leaf.cert()
		if err == nil {
			end := cert.Leaf.NotAfter
			if now.Before(end.Add(-end.Sub(leaf.made) / renewFraction)) {
				return cert, nil
			}
		}
		c.mu.Lock()
		c.drop(e)
		c.mu.Unlock()
		if err != nil || !leaf.made.Before(now) {
			return cert, err
		}
	}
}

// entry returns the entry of name, a new one if there is none. Its Value is a *cachedLeaf.
func (c *leafCache) entry(name string, now time.Time, sign func(string, time.Time) (*tls.Certificate, error)) *list.Element {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.names[name]; ok {
		c.byUse.MoveToFront(e)
		return e
	}
	e := c.byUse.PushFront(&cachedLeaf{name: name, made: now, cert: sync.OnceValues(func() (*tls.Certificate, error) {
		cert, err := sign(name, now)
		if err == nil {
			c.signed.Add(1)
		}
		return cert, err
	})})
	c.names[name] = e
	if c.byUse.Len() > c.max {
		c.drop(c.byUse.Back())
	}
	return e
}

// drop removes an entry, unless it has been removed. The caller holds c.mu.
func (c *leafCache) drop(e *list.Element) {
	if name := e.Value.(*cachedLeaf).name; c.names[name] == e {
		c.byUse.Remove(e)
		delete(c.names, name)
	}
}

func (c *leafCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.names)
}
