package mitm

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newTestAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := LoadOrCreate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLeaf(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	long := strings.Repeat("a", 60) + ".example.test"
	tests := []struct {
		name, ask string
		dns       string
		ip        string
		cn        string
	}{
		{"a name", "www.example.test", "www.example.test", "", "www.example.test"},
		{"upper case and trailing dot", "WWW.Example.Test.", "www.example.test", "", "www.example.test"},
		{"underscore", "a_b.test", "a_b.test", "", "a_b.test"},
		{"Punycode", "xn--bcher-kva.test", "xn--bcher-kva.test", "", "xn--bcher-kva.test"},
		{"too long for a CN", long, long, "", ""},
		{"IPv4 (RFC 5280 4.2.1.6)", "192.0.2.1", "", "192.0.2.1", "192.0.2.1"},
		{"IPv6", "2001:DB8::1", "", "2001:db8::1", "2001:db8::1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cert, err := a.leaf(tt.ask)
			if err != nil {
				t.Fatal(err)
			}
			leaf := cert.Leaf
			verify(t, a, leaf, tt.dns+tt.ip)
			var ips []string
			for _, ip := range leaf.IPAddresses {
				ips = append(ips, ip.String())
			}
			if got := strings.Join(leaf.DNSNames, " "); got != tt.dns || strings.Join(ips, " ") != tt.ip {
				t.Errorf("SAN %q, %q", got, ips)
			}
			if leaf.Subject.CommonName != tt.cn {
				t.Errorf("CN %q, want %q", leaf.Subject.CommonName, tt.cn)
			}
			if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || leaf.IsCA || !leaf.BasicConstraintsValid {
				t.Error("not a server's leaf")
			}
			if life := leaf.NotAfter.Sub(leaf.NotBefore); life >= 398*24*time.Hour || time.Since(leaf.NotBefore) < 23*time.Hour {
				t.Errorf("valid from %s for %s", leaf.NotBefore, life)
			}
			if len(leaf.AuthorityKeyId) == 0 || len(cert.Certificate) != 2 {
				t.Error("the CA is not in the chain, or not named by the leaf")
			}
		})
	}
}

func TestLeafRefuses(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	names := []string{
		"", ".", "*", "*.example.test", "a..b", "a b", "a/b", "a@b", "a.test:443", "[2001:db8::1]", "a\x00.test", "127.1",
		strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 127) + "test",
	}
	for _, name := range names {
		if cert, err := a.leaf(name); !errors.Is(err, errBadName) || cert != nil {
			t.Errorf("leaf(%q) = %v, want errBadName", name, err)
		}
	}
	if n := a.leaves.len(); n != 0 {
		t.Errorf("%d cached", n)
	}
}

func TestLeafStaysWithinTheCA(t *testing.T) {
	t.Parallel()
	key := mustECDSA(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), caCert(t, key, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(-time.Minute) }), 0o644)
	write(t, filepath.Join(dir, "ca.key"), pkcs8(t, key), 0o600)
	a, err := LoadOrCreate(dir)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.leaf("a.test")
	if err != nil {
		t.Fatal(err)
	}
	if cert.Leaf.NotAfter.After(a.ca.NotAfter) || cert.Leaf.NotBefore.Before(a.ca.NotBefore) {
		t.Errorf("valid from %s to %s", cert.Leaf.NotBefore, cert.Leaf.NotAfter)
	}
	if _, err := a.sign("a.test", a.ca.NotAfter.Add(time.Second)); err == nil || !strings.Contains(err.Error(), "the CA expired on") {
		t.Errorf("a CA that expired: %v", err)
	}
}

// TestLeafKeyIsFresh checks that all leaves of an Authority share a key and that the next Authority of
// the same CA has a different one, so the key is not derived from stored data.
func TestLeafKeyIsFresh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var keys []*ecdsa.PublicKey
	for range 3 {
		a, err := LoadOrCreate(dir)
		if err != nil {
			t.Fatal(err)
		}
		one, err := a.leaf("a.test")
		if err != nil {
			t.Fatal(err)
		}
		two, err := a.leaf("b.test")
		if err != nil {
			t.Fatal(err)
		}
		key := one.Leaf.PublicKey.(*ecdsa.PublicKey)
		if !key.Equal(two.Leaf.PublicKey) {
			t.Error("two leaves have different keys")
		}
		if slices.ContainsFunc(keys, func(k *ecdsa.PublicKey) bool { return k.Equal(key) }) || key.Equal(a.ca.PublicKey) {
			t.Error("the leaf key is not fresh")
		}
		if one.Leaf.SerialNumber.Cmp(two.Leaf.SerialNumber) == 0 || one.Leaf.SerialNumber.BitLen() > 128 {
			t.Errorf("serials %x and %x", one.Leaf.SerialNumber, two.Leaf.SerialNumber)
		}
		keys = append(keys, key)
	}
}

// countingSigner counts the calls of a leafCache.
type countingSigner struct {
	signed atomic.Int64
	life   time.Duration
	err    error
}

func (m *countingSigner) sign(_ string, now time.Time) (*tls.Certificate, error) {
	m.signed.Add(1)
	if m.err != nil {
		return nil, m.err
	}
	return &tls.Certificate{Leaf: &x509.Certificate{NotAfter: now.Add(m.life)}}, nil
}

func TestLeafCacheIsBounded(t *testing.T) {
	t.Parallel()
	c, m, now := newLeafCache(3), &countingSigner{life: time.Hour}, time.Now()
	ask := func(names ...string) {
		for _, name := range names {
			if _, err := c.get(name, now, m.sign); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask("a", "b", "c", "a", "d") // b is the least recently used
	if n := c.len(); n != 3 {
		t.Fatalf("%d cached, want 3", n)
	}
	ask("a", "c", "d")
	if n := m.signed.Load(); n != 4 {
		t.Errorf("%d signed, want 4", n)
	}
	ask("b")
	if n := m.signed.Load(); n != 5 {
		t.Errorf("%d signed, want 5", n)
	}
	for i := range 100 {
		ask(fmt.Sprint(i))
	}
	if c.len() != 3 || c.byUse.Len() != 3 {
		t.Errorf("%d and %d cached, want 3", c.len(), c.byUse.Len())
	}
}

func TestLeafCacheRenews(t *testing.T) {
	t.Parallel()
	c, m, start := newLeafCache(3), &countingSigner{life: 40 * time.Hour}, time.Now()
	for _, step := range []struct {
		after time.Duration
		want  int64
	}{{0, 1}, {29 * time.Hour, 1}, {30 * time.Hour, 2}, {59 * time.Hour, 2}, {61 * time.Hour, 3}} {
		if _, err := c.get("a", start.Add(step.after), m.sign); err != nil {
			t.Fatal(err)
		}
		if got := m.signed.Load(); got != step.want {
			t.Errorf("after %s: %d signed, want %d", step.after, got, step.want)
		}
	}
}

func TestLeafCacheHoldsNoFailure(t *testing.T) {
	t.Parallel()
	c, m := newLeafCache(3), &countingSigner{life: time.Hour, err: net.ErrClosed}
	if _, err := c.get("a", time.Now(), m.sign); !errors.Is(err, net.ErrClosed) || c.len() != 0 {
		t.Errorf("%v, %d cached", err, c.len())
	}
	m.err = nil
	if _, err := c.get("a", time.Now(), m.sign); err != nil {
		t.Error(err)
	}
}

func TestLeafCacheMintsOnce(t *testing.T) {
	t.Parallel()
	c, m := newLeafCache(3), &countingSigner{life: time.Hour}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if cert, err := c.get("a", time.Now(), m.sign); err != nil || cert == nil {
				t.Errorf("%v, %v", cert, err)
			}
		})
	}
	all.Wait()
	if n := m.signed.Load(); n != 1 {
		t.Errorf("%d signed, want 1", n)
	}
}

func BenchmarkMint(b *testing.B) {
	a := newTestAuthority(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.sign("www.example.test", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
