package mitm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

const (
	// organization is in the subject of our CA and of its leaves.
	organization = "robotsproxy"
	caYears      = 10

	// leafLife is how long a leaf is valid after it is signed. With backdate it stays well
	// below 398 days, the longest that clients accept.
	leafLife = 90 * 24 * time.Hour

	// backdate is subtracted from NotBefore, for clients whose clock is behind.
	backdate = 24 * time.Hour

	// maxCN is ub-common-name (RFC 5280 A.1), in bytes.
	maxCN = 64
)

// PEM block types (RFC 7468).
const (
	blockCert      = "CERTIFICATE"
	blockPKCS8     = "PRIVATE KEY"
	blockPKCS1     = "RSA PRIVATE KEY"
	blockSEC1      = "EC PRIVATE KEY"
	blockEncrypted = "ENCRYPTED PRIVATE KEY"
)

// CreatedAt returns when a CA made by this package was made. For the CA that it replaced, that is
// when it was replaced.
func CreatedAt(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// newCA returns certificate and key of a new CA as PEM.
func newCA(now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{Organization: []string{organization}, CommonName: caName()},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		// The CA signs leaves and no further CA.
		MaxPathLenZero: true,
	}
	// CreateCertificate adds the SubjectKeyId of a CA itself.
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	if key, err = encodeKey(private); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: der}), key, nil
}

// caName returns a common name that names this host, so that the CAs of several hosts differ in a
// trust store.
func caName() string {
	const before, after = "robotsproxy CA (", ")"
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unnamed host"
	}
	return before + host[:min(len(host), maxCN-len(before)-len(after))] + after
}

// newSerial returns 128 bits from crypto/rand: positive and at most 20 bytes, as RFC 5280 4.1.2.2
// demands.
func newSerial() *big.Int {
	var b [16]byte
	// Read never fails (crypto/rand since Go 1.24).
	rand.Read(b[:])
	return new(big.Int).SetBytes(b[:])
}

// EncodeCertificates returns the certificates as PEM.
func EncodeCertificates(certs []*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: c.Raw})...)
	}
	return text
}

// encodeKey returns the key as PEM (PKCS #8).
func encodeKey(key crypto.Signer) ([]byte, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPKCS8, Bytes: pkcs8}), nil
}

// parseKey returns the RSA, ECDSA or Ed25519 key in a PEM block.
func parseKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case blockPKCS1:
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case blockSEC1:
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case blockPKCS8:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("PEM block of type %q", block.Type)
	}
	if err != nil {
		return nil, err
	}
	// An RSA, ECDSA or Ed25519 key is a Signer. A key of another kind is not.
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("must be RSA, ECDSA or Ed25519")
	}
	return signer, nil
}
