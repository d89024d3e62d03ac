package audit

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
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

// TestRecordsWhoseCaptureIsGone: archive verify looks for the captures that records name. One that is gone is a fault, unless it
// is older than all that is left.
func TestRecordsWhoseCaptureIsGone(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "captures", "")
	random := make([]byte, 60_000)
	rand.Read(random)
	o.Handle("/page", func(w http.ResponseWriter, r *http.Request) { w.Write(append(random, r.URL.RawQuery...)) })
	dir := t.TempDir()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"archive": map[string]any{"dir": dir, "max_file": "64KiB", "dedup": false}}))
	for i := range 12 {
		e2e.Get(t, p.Client(t, false), o.URL("http", fmt.Sprint("/page?", i)))
	}
	p.End(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	verify := func(exit int, want string, args ...string) {
		t.Helper()
		out := e2e.Command(t, append([]string{"archive", "verify", "-c", p.Config}, args...)...).Want(t, exit)
		if !strings.Contains(out.Stdout+out.Stderr, want) {
			t.Errorf("%s%s, want %q", out.Stdout, out.Stderr, want)
		}
	}
	verify(0, "12 records of the audit, each with its capture\n")
	verify(0, "12 records of the audit, each with its capture\n", "--dir", dir, "--audit", p.Audit)
	testkit.Must(t, os.Remove(files[0]))
	verify(0, "of captures older than the oldest file")
	// Another prefix, which sorts before, is that of a later file.
	testkit.Must(t, os.Rename(files[len(files)-1], filepath.Join(dir, strings.Replace(filepath.Base(files[len(files)-1]), "robotsproxy", "a", 1))))
	verify(0, "of captures older than the oldest file")
	testkit.Must(t, os.Remove(files[len(files)-2]))
	verify(1, " is gone\n")
}
