package castore

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

// Each is replaced when the next one is made, whatever has become of the file.
func TestPrintPrevious(t *testing.T) {
	made := func(day int) *x509.Certificate {
		at := time.Date(2026, 5, day, 12, 0, 0, 0, time.UTC)
		return &x509.Certificate{NotBefore: at.Add(-24 * time.Hour), NotAfter: at.AddDate(10, 0, 0)}
	}
	var b strings.Builder
	if err := printPrevious(&b, made(30), []*x509.Certificate{made(20), made(10)}, "/a"); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "valid") {
			lines = append(lines, line)
		}
	}
	want := "valid    2026-05-19 to 2036-05-20, replaced 2026-05-30\nvalid    2026-05-09 to 2036-05-10, replaced 2026-05-20\n"
	if got := strings.Join(lines, ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
