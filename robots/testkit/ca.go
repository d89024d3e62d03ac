package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// NewCA makes a certificate authority that is valid until a time, and returns its certificate
// and its key as PEM.
func NewCA(t testing.TB, until time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"robotsproxy"}, CommonName: "test CA"},
		NotBefore: until.AddDate(-1, 0, 0), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// WriteCA writes a NewCA into a state directory.
func WriteCA(t testing.TB, dir string, until time.Time) {
	t.Helper()
	cert, key := NewCA(t, until)
	Must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), cert, 0o600))
	Must(t, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
}
