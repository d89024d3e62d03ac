package mitm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

const (
	maxFile  = 1 << 20 // octets read of a certificate or key file
	maxChain = 10      // certificates taken from one

	keyMode  fs.FileMode = 0o600
	lentMode fs.FileMode = 0o640
	certMode fs.FileMode = 0o644
	dirMode  fs.FileMode = 0o700
)

// A pair is a CA as it stands in its two files, checked.
type pair struct {
	certs []*x509.Certificate // the CA, then its issuers, if the file has them
	pem   []byte              // the same
	key   crypto.Signer       // of certs[0]
}

// files names a pair, and says what one can do about it.
type files struct {
	cert, key string
	remedy    string // ends the error of a pair that is of no use
}

// Load reads a CA from a PEM certificate and its private key (RSA, ECDSA or
// Ed25519; PKCS #8, PKCS #1 or SEC 1), which must not be open to others than
// its owner, but where that is root to one group. Certificates after the first, the CA's own issuers, are sent to
// clients with it.
func Load(certFile, keyFile string) (*Authority, error) {
	f := files{cert: certFile, key: keyFile, remedy: "put it right, or name another pair"}
	p, err := f.load()
	if err != nil {
		return nil, err
	}
	return newAuthority(p)
}

func (f files) load() (pair, error) {
	certs, err := f.readCerts()
	if err != nil {
		return pair{}, err
	}
	key, err := f.readKey()
	if err != nil {
		return pair{}, err
	}
	ca := certs[0]
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch now := time.Now(); {
	case !ok || !public.Equal(ca.PublicKey):
		return pair{}, fmt.Errorf("CA key %s does not belong to certificate %s: %s", f.key, f.cert, f.remedy)
	case !ca.BasicConstraintsValid || !ca.IsCA:
		return pair{}, fmt.Errorf("certificate %s is not a CA's (it lacks CA:TRUE): %s", f.cert, f.remedy)
	case ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0:
		return pair{}, fmt.Errorf("certificate %s is not a CA's (its key usage lacks keyCertSign): %s", f.cert, f.remedy)
	case now.After(ca.NotAfter):
		return pair{}, fmt.Errorf("CA certificate %s expired on %s: %s", f.cert, ca.NotAfter.Format(time.DateOnly), f.remedy)
	case now.Before(ca.NotBefore):
		return pair{}, fmt.Errorf("CA certificate %s is valid only from %s on: set the clock, or %s", f.cert, ca.NotBefore.Format(time.DateTime), f.remedy)
	}
	return pair{certs: certs, pem: encodeCerts(certs), key: key}, nil
}

func encodeCerts(certs []*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: c.Raw})...)
	}
	return text
}

// PEM block types (RFC 7468).
const (
	blockCert  = "CERTIFICATE"
	blockPKCS8 = "PRIVATE KEY"
	blockPKCS1 = "RSA PRIVATE KEY"
	blockSEC1  = "EC PRIVATE KEY"
	blockSafe  = "ENCRYPTED PRIVATE KEY"
)

func (f files) readCerts() ([]*x509.Certificate, error) {
	text, _, err := readFile(f.cert)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w: make it a file this user can read", err)
	}
	var certs []*x509.Certificate
	for len(certs) < maxChain {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != blockCert {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("CA certificate %s cannot be parsed (%w): %s", f.cert, err, f.remedy)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("CA certificate %s holds no PEM certificate: %s", f.cert, f.remedy)
	}
	return certs, nil
}

func (f files) readKey() (crypto.Signer, error) {
	text, info, err := readFile(f.key)
	if err != nil {
		return nil, fmt.Errorf("CA key: %w: make it a file this user can read", err)
	}
	if mode := info.Mode().Perm(); mode&^keyMode != 0 && !lent(mode, owner(info), os.Geteuid()) {
		return nil, fmt.Errorf("CA key %s has mode %#o, wider than 0600: chmod 600 it, and replace the pair if others may have read it", f.key, mode)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, fmt.Errorf("CA key %s holds no PEM private key: %s", f.key, f.remedy)
		}
		if !strings.HasSuffix(block.Type, blockPKCS8) {
			continue // a certificate, EC PARAMETERS, ...
		}
		if block.Type == blockSafe || block.Headers["DEK-Info"] != "" { // RFC 1421 4.6.1.3
			return nil, fmt.Errorf("CA key %s is encrypted: store it decrypted, with mode 0600", f.key)
		}
		key, err := parseKey(block)
		if err != nil {
			return nil, fmt.Errorf("CA key %s cannot be parsed (%w): %s", f.key, err, f.remedy)
		}
		return key, nil
	}
}

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
		return nil, fmt.Errorf("a block of type %q", block.Type)
	}
	if err != nil {
		return nil, err
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return k, nil
	case *ecdsa.PrivateKey:
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, errors.New("neither RSA nor ECDSA nor Ed25519")
}

// lent says whether a key is root's, who lets this user read it through a group: so
// Kubernetes mounts a Secret for a pod that has an fsGroup.
func lent(mode fs.FileMode, owner, us int) bool {
	return mode&^lentMode == 0 && owner == 0 && us != 0
}

// readFile returns the text of name and what is known of the very file read.
func readFile(name string) ([]byte, fs.FileInfo, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() { // a FIFO would hold up the start
		return nil, nil, fmt.Errorf("open %s: not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return bytes.TrimSpace(text), info, err
}
