package mitm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

func mustECDSA(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// caCert returns a CA certificate for key as PEM, modified by change.
func caCert(t testing.TB, key crypto.Signer, change func(*x509.Certificate)) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func pkcs8(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func write(t testing.TB, name string, data []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // regardless of the umask
		t.Fatal(err)
	}
}

const remedy = ": restore both files, or remove both to get a new CA"

type brokenFile struct {
	name      string
	cert, key []byte // nil: no such file
	mode      fs.FileMode
	want      string // {cert} and {key} stand for the files
}

func brokenFiles(t *testing.T) []brokenFile {
	t.Helper()
	key := mustECDSA(t)
	goodKey, goodCert := pkcs8(t, key), caCert(t, key, nil)
	changed := func(f func(*x509.Certificate)) []byte { return caCert(t, key, f) }
	ended := time.Now().Add(-time.Hour)
	begins := time.Now().Add(time.Hour)
	return []brokenFile{
		{"certificate alone", goodCert, nil, 0o600, "the key {key} of CA certificate {cert} is missing" + remedy},
		{"key alone", nil, goodKey, 0o600, "the certificate {cert} of CA key {key} is missing" + remedy},
		{"certificate empty", []byte{}, goodKey, 0o600, "CA certificate {cert} contains no PEM certificate" + remedy},
		{"certificate not PEM", []byte("hello\n"), goodKey, 0o600, "CA certificate {cert} contains no PEM certificate" + remedy},
		{"certificate's file holds the key", goodKey, goodKey, 0o600, "CA certificate {cert} contains no PEM certificate" + remedy},
		{"certificate garbled", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), goodKey, 0o600,
			"CA certificate {cert} is malformed (x509: malformed certificate)" + remedy},
		{"key empty", goodCert, []byte{}, 0o600, "CA key {key} contains no PEM private key" + remedy},
		{"key not PEM", goodCert, []byte("hello\n"), 0o600, "CA key {key} contains no PEM private key" + remedy},
		{"key's file holds the certificate", goodCert, goodCert, 0o600, "CA key {key} contains no PEM private key" + remedy},
		{"key of an unknown kind", goodCert, pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte("x")}), 0o600,
			`CA key {key} is malformed (PEM block of type "OPENSSH PRIVATE KEY")` + remedy},
		{"key encrypted", goodCert, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}), 0o600,
			"CA key {key} is encrypted: store it unencrypted, with mode 0600"},
		{"key encrypted, old OpenSSL format", goodCert, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x")}), 0o600,
			"CA key {key} is encrypted: store it unencrypted, with mode 0600"},
		{"key of another certificate", goodCert, pkcs8(t, mustECDSA(t)), 0o600, "CA key {key} does not match certificate {cert}" + remedy},
		{"not a CA", changed(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, 0 }), goodKey, 0o600,
			"certificate {cert} is not a CA (CA:TRUE is missing)" + remedy},
		{"a CA that may not sign", changed(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), goodKey, 0o600,
			"certificate {cert} is not a CA (key usage keyCertSign is missing)" + remedy},
		{"expired", changed(func(c *x509.Certificate) { c.NotAfter = ended }), goodKey, 0o600,
			"CA certificate {cert} expired on " + ended.UTC().Format(time.DateOnly) + remedy},
		{"not valid yet", changed(func(c *x509.Certificate) { c.NotBefore = begins }), goodKey, 0o600,
			"CA certificate {cert} is not valid before " + begins.UTC().Format(time.DateTime) + ": set the clock, or" + remedy[1:]},
		{"key open to the group", goodCert, goodKey, 0o640,
			"CA key {key} has mode 0640, which lets other users access it: run chmod 600 on it, and replace the CA if others may have read the key"},
		{"key open to all", goodCert, goodKey, 0o644,
			"CA key {key} has mode 0644, which lets other users access it: run chmod 600 on it, and replace the CA if others may have read the key"},
	}
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range brokenFiles(t) {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
			if tt.cert != nil {
				write(t, cert, tt.cert, 0o644)
			}
			if tt.key != nil {
				write(t, key, tt.key, tt.mode)
			}
			want := strings.NewReplacer("{cert}", cert, "{key}", key).Replace(tt.want)
			_, err := LoadOrCreate(dir)
			if err == nil || err.Error() != want {
				t.Errorf("LoadOrCreate:\n got %v\nwant %s", err, want)
			}
			// The files are unchanged and there are no others.
			for name, data := range map[string][]byte{cert: tt.cert, key: tt.key} {
				got, err := os.ReadFile(name)
				if (data == nil) != (err != nil) || string(got) != string(data) {
					t.Errorf("%s has changed: %q, %v", name, got, err)
				}
			}
			if tt.cert == nil || tt.key == nil {
				return
			}
			want = strings.Replace(want, remedy[2:], "correct the file, or name another certificate and key", 1)
			if _, err := Load(cert, key); err == nil || err.Error() != want {
				t.Errorf("Load:\n got %v\nwant %s", err, want)
			}
		})
	}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	key := mustECDSA(t)
	dir := t.TempDir()
	cert, keyFile, missing, pipe := filepath.Join(dir, "a.pem"), filepath.Join(dir, "a.key"), filepath.Join(dir, "none"), filepath.Join(dir, "pipe")
	write(t, cert, caCert(t, key, nil), 0o644)
	write(t, keyFile, pkcs8(t, key), 0o600)
	testkit.Fifo(t, pipe) // to open it for reading waits for a writer
	tests := []struct{ name, cert, key, want string }{
		{"no certificate", missing, keyFile, "CA certificate: open " + missing + ": no such file or directory: make the file readable for this user"},
		{"no key", cert, missing, "CA key: open " + missing + ": no such file or directory: make the file readable for this user"},
		{"certificate is a directory", dir, keyFile, "CA certificate: open " + dir + ": not a regular file: make the file readable for this user"},
		{"key is a pipe", cert, pipe, "CA key: open " + pipe + ": not a regular file: make the file readable for this user"},
		{"key is a directory", cert, dir, "CA key: open " + dir + ": not a regular file: make the file readable for this user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Load(tt.cert, tt.key); err == nil || err.Error() != tt.want {
				t.Errorf("Load:\n got %v\nwant %s", err, tt.want)
			}
		})
	}
	if _, err := LoadOrCreate(cert); err == nil || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("a file instead of a directory: %v", err)
	}
}

func TestLoadKinds(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey := mustECDSA(t)
	sec1, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	params := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})
	tests := []struct {
		name string
		key  crypto.Signer
		pem  []byte
		mode fs.FileMode
	}{
		{"ECDSA, PKCS #8", ecKey, pkcs8(t, ecKey), 0o600},
		{"ECDSA, SEC 1 behind its parameters", ecKey, append(params, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})...), 0o600},
		{"RSA, PKCS #8", rsaKey, pkcs8(t, rsaKey), 0o600},
		{"RSA, PKCS #1", rsaKey, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}), 0o600},
		{"Ed25519, PKCS #8", edKey, pkcs8(t, edKey), 0o600},
		{"read only", ecKey, pkcs8(t, ecKey), 0o400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
			own, issuer := caCert(t, tt.key, nil), caCert(t, mustECDSA(t), nil)
			write(t, cert, append(own[:len(own):len(own)], issuer...), 0o644)
			write(t, key, tt.pem, tt.mode)
			a, err := Load(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			if string(a.CertPEM()) != string(own)+string(issuer) {
				t.Error("CertPEM is not the CA and its issuer")
			}
			leaf, err := a.leaf("a.test")
			if err != nil {
				t.Fatal(err)
			}
			if len(leaf.Certificate) != 3 {
				t.Errorf("a chain of %d, want the leaf, the CA and its issuer", len(leaf.Certificate))
			}
			verify(t, a, leaf.Leaf, "a.test")
		})
	}
}

// verify checks leaf against the CA like a client.
func verify(t testing.TB, a *Authority, leaf *x509.Certificate, name string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CertPEM())
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestLentKey checks that a user may use a key that root has made readable for a group only.
func TestLentKey(t *testing.T) {
	t.Parallel()
	const root, other, us = 0, 1000, 65532
	for _, c := range []struct {
		mode      fs.FileMode
		owner, us int
		want      bool
	}{
		{0o440, root, us, true},
		{0o640, root, us, true},
		{0o460, root, us, false},
		{0o444, root, us, false},
		{0o440, us, us, false},
		{0o440, other, us, false},
		{0o440, root, root, false},
	} {
		if got := readableByGroup(c.mode, c.owner, c.us); got != c.want {
			t.Errorf("readableByGroup(%#o, %d, %d) = %v", c.mode, c.owner, c.us, got)
		}
	}
}
