package egress

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestLegacyTLS checks that an origin that accepts none of the usual cipher suites is offered legacy ones on a second
// connection, which is remembered, and that TLS before 1.2 is used only if Options.TLSMin permits it.
func TestLegacyTLS(t *testing.T) {
	for _, c := range []struct {
		name   string
		suites []uint16
		max    uint16 // version of TLS
		min    uint16 // Options.TLSMin
		works  bool
		legacy bool
	}{
		{"the usual", nil, tls.VersionTLS12, 0, true, false},
		{"an exchange of RSA keys", []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}, tls.VersionTLS12, 0, true, true},
		{"CBC", []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA256}, tls.VersionTLS12, 0, true, true},
		{"RC4", []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}, tls.VersionTLS12, 0, false, false},
		{"TLS 1.0, not permitted", nil, tls.VersionTLS10, 0, false, false},
		{"TLS 1.0", nil, tls.VersionTLS10, tls.VersionTLS10, true, true},
		{"TLS 1.1", []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}, tls.VersionTLS11, tls.VersionTLS10, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cert, roots := rsaCertificate(t)
			o := serveOver(t, hello, &tls.Config{
				Certificates: []tls.Certificate{cert}, CipherSuites: c.suites, MinVersion: tls.VersionTLS10, MaxVersion: c.max,
			})
			d := newClient(t, Options{AllowPrivate: loopback, Roots: roots, TLSMin: c.min})
			first := int64(0)
			for range 2 {
				_, body, err := get(t, d, o.String())
				if (err == nil) != c.works || c.works && body != "hello" {
					t.Fatalf("%q, %v", body, err)
				}
				if err != nil {
					if errors.Is(err, ErrOldTLS) != (c.max < tls.VersionTLS12) {
						t.Errorf("%v", err)
					}
					return
				}
				if first == 0 {
					first = o.accepted.Load()
				}
				d.pool.mu.Lock()
				for _, list := range d.pool.idle {
					for _, p := range list {
						if p.info.Legacy != c.legacy {
							t.Errorf("%+v", p.info)
						}
					}
				}
				d.pool.mu.Unlock()
				d.CloseIdle()
			}
			if n := o.accepted.Load(); n != first+1 {
				t.Errorf("%d connections for the second request, want 1: what the origin accepts is not remembered", n-first)
			}
			if got := fmt.Sprint(d.Stats().Origins.Dialed[OutcomeTLS]); got != "0" {
				t.Errorf("%s failed handshakes are counted", got)
			}
		})
	}
}

// TestLegacyTLSAtOnce checks that the first requests to an origin with legacy cipher suites all succeed, although only
// one of them is the first to find out.
func TestLegacyTLSAtOnce(t *testing.T) {
	cert, roots := rsaCertificate(t)
	o := serveOver(t, hello, &tls.Config{
		Certificates: []tls.Certificate{cert}, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}, MaxVersion: tls.VersionTLS12,
	})
	d := newClient(t, Options{AllowPrivate: loopback, Roots: roots})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, body, err := get(t, d, o.String()); body != "hello" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	all.Wait()
}

// rsaCertificate returns a certificate for 127.0.0.1 with an RSA key, and the roots that verify it.
func rsaCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: later(), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	testkit.Must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
