package castore

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/mitm"
)

// These are files in the state directory: the CA certificate, and the certificates that it replaced.
const (
	certName     = "ca.pem"
	previousName = "ca-previous.pem"
)

// usedCA returns the CA that the proxy would use and the file of its certificate. It makes the CA of the state directory if there
// is none.
func usedCA(cfg config.Config) (*mitm.Authority, string, error) {
	state := ""
	if cfg.TLS.CACert == "" {
		var err error
		if state, err = cli.StateDir(cfg); err != nil {
			return nil, "", err
		}
	}
	a, err := Authority(cfg, state)
	if err != nil {
		return nil, "", err
	}
	file, err := CAFile(cfg)
	return a, file, err
}

// CAFile returns the file of the CA's certificate. It makes nothing.
func CAFile(cfg config.Config) (string, error) {
	if cfg.TLS.CACert != "" {
		return cfg.TLS.CACert, nil
	}
	state, err := cfg.State(os.Getenv)
	return filepath.Join(state, certName), err
}

// Authority loads the configured CA, or that of the state directory, which it makes if there is none.
func Authority(cfg config.Config, state string) (*mitm.Authority, error) {
	if cfg.TLS.CACert != "" {
		return mitm.Load(cfg.TLS.CACert, cfg.TLS.CAKey)
	}
	return mitm.LoadOrCreate(state)
}

// Published returns the certificates that clients have to trust, as PEM: that of a, which signs now, with its issuers, and that of
// the CA that will sign next, if there is one: tls.ca_next, or what ca next has made in the state directory.
func Published(cfg config.Config, state string, a *mitm.Authority) ([]byte, error) {
	next, err := nextCA(cfg, state)
	return published(a, next), err
}

// published returns the certificates of a, and that of the next CA unless it is nil or that of a, as PEM.
func published(a *mitm.Authority, next *x509.Certificate) []byte {
	if next == nil || next.Equal(a.Certificate()) {
		return a.CertPEM()
	}
	return append(a.CertPEM(), mitm.EncodeCertificates([]*x509.Certificate{next})...)
}

// nextInUse is nextCA for the state directory of the configuration.
func nextInUse(cfg config.Config) (*x509.Certificate, error) {
	if cfg.TLS.CACert != "" {
		return nextCA(cfg, "")
	}
	state, err := cfg.State(os.Getenv)
	if err != nil {
		return nil, err
	}
	return nextCA(cfg, state)
}

// nextCA returns the certificate of the CA that will sign next; nil: there is none.
func nextCA(cfg config.Config, state string) (*x509.Certificate, error) {
	if cfg.TLS.CANext == "" {
		if cfg.TLS.CACert != "" {
			return nil, nil
		}
		return mitm.Upcoming(state)
	}
	text, err := ReadRoots(cfg.TLS.CANext)
	if err != nil {
		return nil, fmt.Errorf("tls.ca_next: %w", err)
	}
	certs := Certificates(text)
	if len(certs) == 0 || !certs[0].IsCA {
		return nil, fmt.Errorf("tls.ca_next: %s contains no CA certificate", cfg.TLS.CANext)
	}
	return certs[0], nil
}

// validity returns the dates of a certificate's validity.
func validity(c *x509.Certificate) string {
	return c.NotBefore.UTC().Format(time.DateOnly) + " to " + c.NotAfter.UTC().Format(time.DateOnly)
}

// replacedCAs returns the certificates that ca rotate has replaced, the newest first, and their file. A configured CA (tls.ca_cert)
// has none.
func replacedCAs(cfg config.Config) (certs []*x509.Certificate, file string, err error) {
	if cfg.TLS.CACert != "" {
		return nil, "", nil
	}
	state, err := cfg.State(os.Getenv)
	if err != nil {
		return nil, "", err
	}
	certs, err = mitm.Previous(state)
	return certs, filepath.Join(state, previousName), err
}

// storePrefix is what the names of a CA in all stores begin with: ours, and unique by its fingerprint.
func storePrefix(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return fmt.Sprintf("robotsproxy-%x-", sum[:8])
}

// storeName returns the name of a CA in the stores.
func storeName(c *x509.Certificate) string { return storePrefix(c) + c.SerialNumber.String() }
