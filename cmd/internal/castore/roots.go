package castore

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"software.sslmate.com/src/go-pkcs12"

	"robotsproxy/cmd/internal/cli"
)

// JavaPassword is the password that Java assumes for a trust store, which holds nothing secret.
const JavaPassword = "changeit"

// SystemRootFiles are where systems keep their root certificates, as crypto/x509 has them. The first that exists is used; without
// one, the files in rootDirs are.
var (
	SystemRootFiles = []string{
		// Debian, Ubuntu, Arch, Gentoo.
		"/etc/ssl/certs/ca-certificates.crt",
		// Fedora, RHEL 6.
		"/etc/pki/tls/certs/ca-bundle.crt",
		// openSUSE.
		"/etc/ssl/ca-bundle.pem",
		// OpenELEC.
		"/etc/pki/tls/cacert.pem",
		// CentOS, RHEL 7.
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		// Alpine, macOS, BSD.
		"/etc/ssl/cert.pem",
	}
	rootDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

const (
	// maxRootFile is how many bytes of one file are read.
	maxRootFile = 16 << 20

	// maxRootFiles is how many files of one directory are read.
	maxRootFiles = 10_000
)

// SystemRoots returns the root certificates that a program trusts in this environment: those of SSL_CERT_FILE or SSL_CERT_DIR if they
// are set, else the system's. An empty list is no error: behind the proxy its own CA is enough.
func SystemRoots(getenv func(string) string) ([]*x509.Certificate, error) {
	if file := getenv("SSL_CERT_FILE"); file != "" {
		text, err := ReadRoots(file)
		if err != nil {
			return nil, fmt.Errorf("SSL_CERT_FILE: %w", err)
		}
		return Certificates(text), nil
	}
	if dirs := getenv("SSL_CERT_DIR"); dirs != "" {
		return rootsIn(filepath.SplitList(dirs)), nil
	}
	for _, file := range SystemRootFiles {
		if text, err := ReadRoots(file); err == nil {
			return Certificates(text), nil
		}
	}
	return rootsIn(rootDirs), nil
}

// rootsIn reads whole directories, like OpenSSL, and skips files that it cannot read.
func rootsIn(dirs []string) []*x509.Certificate {
	var roots []*x509.Certificate
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files[:min(len(files), maxRootFiles)] {
			if text, err := ReadRoots(filepath.Join(dir, f.Name())); err == nil {
				roots = append(roots, Certificates(text)...)
			}
		}
	}
	return roots
}

// ReadRoots returns the content of a regular file, at most 16 MiB.
func ReadRoots(file string) ([]byte, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file)
	}
	return cli.ReadFile(file, maxRootFile)
}

// Certificates returns the certificates of a PEM text and skips those that cannot be parsed.
func Certificates(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
}

// Merge concatenates the lists and removes duplicates.
func Merge(lists ...[]*x509.Certificate) []*x509.Certificate {
	var all []*x509.Certificate
	seen := map[[sha256.Size]byte]bool{}
	for _, list := range lists {
		for _, c := range list {
			sum := sha256.Sum256(c.Raw)
			if !seen[sum] {
				seen[sum] = true
				all = append(all, c)
			}
		}
	}
	return all
}

// EncodeJavaStore returns the certificates as PKCS #12, in the form that every Java since 8 reads.
func EncodeJavaStore(certs []*x509.Certificate) ([]byte, error) {
	return pkcs12.LegacyDES.EncodeTrustStoreEntries(javaEntries(certs), JavaPassword)
}

// EncodeDefaultJavaStore returns the certificates as PKCS #12 without a password, as Java opens its default trust store. Java reads it
// from 8u301 and 11.0.12 on.
func EncodeDefaultJavaStore(certs []*x509.Certificate) ([]byte, error) {
	return pkcs12.Passwordless.EncodeTrustStoreEntries(javaEntries(certs), "")
}

// javaEntries returns the entries of a trust store.
func javaEntries(certs []*x509.Certificate) []pkcs12.TrustStoreEntry {
	entries := make([]pkcs12.TrustStoreEntry, len(certs))
	for i, c := range certs {
		// Java identifies entries by name, and two roots may have the same subject.
		entries[i] = pkcs12.TrustStoreEntry{Cert: c, FriendlyName: fmt.Sprintf("%d %s", i, c.Subject)}
	}
	return entries
}
