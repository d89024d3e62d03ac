package mitm

import (
	"container/list"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/robots"
)

const (
	// leafLife is how long a leaf is valid from when it is minted. With
	// backdate it stays well below 398 days, the most that clients accept.
	leafLife = 90 * 24 * time.Hour
	// backdate is taken from NotBefore, for clients whose clock is behind.
	backdate = 24 * time.Hour
	// renewPart: a leaf is minted anew in the last quarter of its life.
	renewPart = 4

	maxCN    = 64  // ub-common-name (RFC 5280 A.1)
	maxShown = 100 // octets of a stranger's name in an error text
)

var errBadName = errors.New("not a host name or an IP address")

// leaf returns the leaf certificate for name, minting it if none is held.
func (a *Authority) leaf(name string) (*tls.Certificate, error) {
	name, err := hostName(name)
	if err != nil {
		return nil, err
	}
	return a.leaves.get(name, time.Now(), a.mint)
}

// hostName returns the one spelling of name that certificates are made for and
// held under. A wildcard is not a host name.
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

// mint makes a leaf for name, which is in the form hostName gives.
func (a *Authority) mint(name string, now time.Time) (*tls.Certificate, error) {
	if now.After(a.ca.NotAfter) {
		return nil, fmt.Errorf("mint certificate for %s: the CA expired on %s", name, a.ca.NotAfter.Format(time.DateOnly))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("mint certificate for %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{organization}},
		NotBefore:    latest(now.Add(-backdate), a.ca.NotBefore),
		NotAfter:     earliest(now.Add(leafLife), a.ca.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Zero basicConstraints are written as CA:FALSE.
		BasicConstraintsValid: true,
	}
	// The CN is for people: names are taken from the SAN (RFC 9110 4.3.4). A
	// name too long for it is left out, not cut: the cut one could be another's.
	if len(name) <= maxCN {
		template.Subject.CommonName = name
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, a.leafKey.Public(), a.signer)
	if err != nil {
		return nil, fmt.Errorf("mint certificate for %s: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("mint certificate for %s: %w", name, err)
	}
	return &tls.Certificate{
		Certificate: append([][]byte{der}, a.chain...),
		PrivateKey:  a.leafKey,
		Leaf:        leaf,
	}, nil
}

// newSerial returns 128 bits from crypto/rand: positive and at most 20 octets,
// as RFC 5280 4.1.2.2 asks.
func newSerial() (*big.Int, error) {
	for {
		serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
		if err != nil || serial.Sign() > 0 {
			return serial, err
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// A leafCache holds the leaves used last, at most max of them. A name is
// minted once, however many ask for it at the same time.
type leafCache struct {
	max  int
	made atomic.Uint64 // leaves, so far

	mu    sync.Mutex
	byUse *list.List // of *leafSlot; the one used last in front
	slots map[string]*list.Element
}

type leafSlot struct {
	name string
	mint sync.Once // outside the cache's lock: an RSA signature takes milliseconds
	cert *tls.Certificate
	err  error

	renew time.Time // when it is to be minted anew; guarded by the cache's mu, zero while minting
}

func newLeafCache(most int) *leafCache {
	return &leafCache{max: most, byUse: list.New(), slots: make(map[string]*list.Element)}
}

func (c *leafCache) get(name string, now time.Time, mint func(string, time.Time) (*tls.Certificate, error)) (*tls.Certificate, error) {
	slot := c.slot(name, now)
	slot.mint.Do(func() {
		slot.cert, slot.err = mint(name, now)
		c.minted(slot, now)
	})
	return slot.cert, slot.err
}

// slot returns the place of name, a fresh one where there is none or where
// what it holds is near its end.
func (c *leafCache) slot(name string, now time.Time) *leafSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.slots[name]; ok {
		s := e.Value.(*leafSlot)
		if s.renew.IsZero() || now.Before(s.renew) {
			c.byUse.MoveToFront(e)
			return s
		}
		c.drop(e)
	}
	s := &leafSlot{name: name}
	c.slots[name] = c.byUse.PushFront(s)
	if c.byUse.Len() > c.max {
		c.drop(c.byUse.Back())
	}
	return s
}

// minted notes when s is to be renewed. A failure is not held.
func (c *leafCache) minted(s *leafSlot, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err == nil {
		c.made.Add(1)
		end := s.cert.Leaf.NotAfter
		s.renew = end.Add(-end.Sub(now) / renewPart)
		return
	}
	if e, ok := c.slots[s.name]; ok && e.Value == any(s) {
		c.drop(e)
	}
}

func (c *leafCache) drop(e *list.Element) {
	c.byUse.Remove(e)
	delete(c.slots, e.Value.(*leafSlot).name)
}

func (c *leafCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.slots)
}
