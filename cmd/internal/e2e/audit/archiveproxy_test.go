package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// startProxy starts a proxy with an archive, and returns the directory of the archive.
func startProxy(t testing.TB, own e2e.Settings) (p *e2e.Proxy, dir string) {
	t.Helper()
	e2e.NeedWarcio(t)
	dir = t.TempDir()
	return e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"archive.dir": dir, "pace.adaptive": false}).With(own)), dir
}

// forms are the values of archive.compress.
var forms = []string{"gzip", "none"}

// completeFiles returns the files of an archive. No file may be left that is not complete, except .torn ones.
func completeFiles(t testing.TB, dir string) (files []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, e := range all {
		switch name := e.Name(); filepath.Ext(strings.TrimSuffix(name, ".gz")) {
		case ".warc":
			files = append(files, filepath.Join(dir, name))
		case ".open":
			t.Errorf("%s is left", name)
		default:
			if strings.HasPrefix(name, ".body-") {
				t.Errorf("%s is left", name)
			}
		}
	}
	return files
}

// readArchive reads a complete archive with warcio, checks the digests of all payloads and that
// archive verify finds no fault, and returns the records by their IDs.
func readArchive(t testing.TB, dir string) map[string]e2e.WARCRecord {
	t.Helper()
	records := map[string]e2e.WARCRecord{}
	for _, r := range e2e.ReadWARC(t, completeFiles(t, dir)...) {
		if r.Type == "response" && r.Digest != "sha256:"+r.SHA256 {
			t.Errorf("%s: the digest of the payload is %s, want %s", r.URL, r.Digest, r.SHA256)
		}
		records[r.ID] = r
	}
	e2e.Command(t, "archive", "verify", "--dir", dir).Want(t, 0)
	return records
}

// TestProxyAsWget: the payloads that the proxy archives are byte by byte those that wget archives
// of the same site, and the audit names the place of each.
func TestProxyAsWget(t *testing.T) {
	t.Parallel()
	for _, compress := range []string{"gzip", "none"} {
		origin, direct := newOrigin(t), t.TempDir()
		p, dir := startProxy(t, e2e.Settings{"archive.compress": compress, "archive.max_file": "1MiB"})
		want := wget(t, direct, "wget", origin)
		argv := append(e2e.NeedCommand("wget")(t), "-q", "--content-on-error", "--tries=1", "-O", "/dev/null")
		for url := range want {
			argv = append(argv, url)
		}
		e2e.RunPeer(t, argv, p.Env(t)).Want(t, 8) // since a page has status 410
		p.End(t)

		captures := readArchive(t, dir)
		for url := range want {
			ours := e2e.Command(t, "archive", "get", "--dir", dir, url).Want(t, 0).Stdout
			theirs := e2e.Command(t, "archive", "get", "--dir", direct, url).Want(t, 0).Stdout
			if ours != theirs {
				t.Errorf("%s, %s: %d bytes, wget has %d", compress, url, len(ours), len(theirs))
			}
		}
		records := e2e.ReadAudit(t, p.Audit)
		for _, r := range records {
			c := captures[r.WARC.ID]
			if got := (e2e.WARCPlace{File: c.File, Offset: c.Offset, ID: c.ID}); got != r.WARC || c.URL != r.URL {
				t.Errorf("%s: the audit names %v, warcio %v %s", r.URL, r.WARC, got, c.URL)
			}
		}
		if len(records) != len(pages) {
			t.Errorf("%d records in the audit, want %d", len(records), len(pages))
		}
		wantIndex(t, dir)
	}
}
