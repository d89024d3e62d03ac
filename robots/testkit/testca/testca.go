// Package testca has certificate authorities and TLS servers for tests. Only tests import it.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// New makes a certificate authority that is valid until a time, and returns its certificate
// and its key as PEM.
func New(t testing.TB, until time.Time) (cert, key []byte) {
	t.Helper()
	own := selfSigned(t, until, x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, KeyUsage: x509.KeyUsageCertSign})
	pkcs8, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	testkit.Must(t, err)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// Write writes the files of a [New] authority into a state directory.
func Write(t testing.TB, dir string, until time.Time) {
	t.Helper()
	cert, key := New(t, until)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), cert, 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
}

// NewTLSServer is [httptest.NewTLSServer] with the certificate of [StartTLS].
func NewTLSServer(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	StartTLS(t, s)
	return s
}

// StartTLS starts s with the certificate of all these servers, unless s has one. It is for loopback
// and example.com, as that of httptest, but its key is ECDSA: signing with an RSA key takes most of
// the time of a handshake.
func StartTLS(t testing.TB, s *httptest.Server) {
	t.Helper()
	serverCert.once.Do(func() {
		serverCert.Certificate = selfSigned(t, time.Now().AddDate(0, 6, 0), x509.Certificate{
			DNSNames: []string{"example.com", "*.example.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		})
	})
	if s.TLS == nil {
		s.TLS = &tls.Config{}
	}
	if s.TLS.Certificates == nil {
		s.TLS.Certificates = []tls.Certificate{serverCert.Certificate}
	}
	s.StartTLS()
}

var serverCert struct {
	once sync.Once
	tls.Certificate
}

// selfSigned makes a certificate that is valid for a year, until a time, and is its own authority.
func selfSigned(t testing.TB, until time.Time, c x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	c.SerialNumber, c.Subject.Organization = big.NewInt(1), []string{"robotsproxy"}
	c.NotBefore, c.NotAfter = until.AddDate(-1, 0, 0), until
	c.IsCA, c.BasicConstraintsValid = true, true
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, key.Public(), key)
	testkit.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
