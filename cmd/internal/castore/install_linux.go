package castore

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"os"
	"slices"

	"github.com/smallstep/truststore"
)

// systemFile is where ca install puts c for the system, "" where that is not
// known, and whether it is there.
func systemFile(c *x509.Certificate) (file string, there bool) {
	if truststore.SystemTrustFilename == "" {
		return "", false
	}
	sum := sha256.Sum256(c.Raw)
	file = fmt.Sprintf(truststore.SystemTrustFilename, fmt.Sprintf("robotsproxy-%x-%s", sum[:8], c.SerialNumber))
	_, err := os.Stat(file)
	return file, err == nil
}

// systemHolds says whether c is one of the system's roots, whatever the
// environment names in their place. They are read anew each time.
func systemHolds(c *x509.Certificate) bool {
	roots, _ := SystemRoots(func(string) string { return "" }) // fails of variables alone
	return slices.ContainsFunc(roots, c.Equal)
}
