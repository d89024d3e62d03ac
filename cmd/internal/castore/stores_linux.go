package castore

import (
	"crypto/x509"
	"fmt"
	"os"
	"slices"

	"github.com/smallstep/truststore"
)

// installedFile returns the file that ca install writes for c into the system's store, "" if the store of this system is unknown, and
// whether it exists.
func installedFile(c *x509.Certificate) (file string, there bool) {
	if truststore.SystemTrustFilename == "" {
		return "", false
	}
	file = fmt.Sprintf(truststore.SystemTrustFilename, storeName(c))
	_, err := os.Stat(file)
	return file, err == nil
}

// systemTrusts reports whether c is one of the system's roots, whatever the environment names instead. It reads them again at each
// call.
func systemTrusts(c *x509.Certificate) bool {
	// SystemRoots fails only because of a variable.
	roots, _ := SystemRoots(func(string) string { return "" })
	return slices.ContainsFunc(roots, c.Equal)
}
