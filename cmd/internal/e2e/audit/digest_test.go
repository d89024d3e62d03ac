package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// TestRecordsHaveDigests: records have the SHA-256 of what the origin has sent, if the configuration or the archive asks for
// it. A refusal and an empty body have none.
func TestRecordsHaveDigests(t *testing.T) {
	t.Parallel()
	page := bytes.Repeat([]byte("page "), 20_000)
	for name, own := range map[string]e2e.Settings{
		"audit.digests": {"audit.digests": true},
		"an archive":    {"archive": map[string]string{"dir": t.TempDir()}},
		"neither":       {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "digests", e2e.Forbidding)
			o.Handle("/page", func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })
			o.Handle("/empty", func(http.ResponseWriter, *http.Request) {})
			p := e2e.StartProxy(t, e2e.Unpaced.With(own))
			for _, path := range []string{"/page", "/empty", "/no"} {
				e2e.Get(t, p.Client(t, false), o.URL("http", path))
				r := e2e.AwaitRecord(t, p.Audit, o.URL("http", path))
				sum := sha256.Sum256(page)
				want, size := hex.EncodeToString(sum[:]), int64(len(page))
				if path != "/page" || name == "neither" {
					want, size = "", 0
				}
				if r.BodySHA256 != want || r.BodyBytes != size {
					t.Errorf("%s has %q of %d bytes, want %q of %d", path, r.BodySHA256, r.BodyBytes, want, size)
				}
			}
		})
	}
}
