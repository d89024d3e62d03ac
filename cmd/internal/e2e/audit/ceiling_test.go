package audit

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// folderSize returns the total size of the files below dir.
func folderSize(t testing.TB, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		total += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// largeOrigin has a robots.txt that cannot be compressed.
func largeOrigin(t *testing.T, random *rand.ChaCha8) (o *e2e.Origin, robots string) {
	t.Helper()
	text := make([]byte, 500_000)
	random.Read(text)
	o = e2e.NewOrigin(t, "large", string(text))
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	return o, string(text)
}

// TestSnapshotCeiling: a client that requests many hosts with different large robots.txt
// files cannot fill the disk. Its further hosts are refused and get no page request. The
// hosts that it has already requested, and other clients' new hosts, still work.
func TestSnapshotCeiling(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	random := rand.NewChaCha8([32]byte{9})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named("127.0.0.2").With(e2e.Settings{"audit.snapshot_max_size": "1MiB"})))
	honest := e2e.From(t, p.Client(t, false), "127.0.0.2")
	before := e2e.NewOrigin(t, "before", e2e.Forbidding)
	if got := e2e.Get(t, honest, before.URL("http", "/no")); got.Status != http.StatusForbidden {
		t.Errorf("a rule: status %d", got.Status)
	}
	greedy := e2e.From(t, p.Client(t, false), "127.0.0.3")
	var first *e2e.Origin
	var file string
	refused := 0
	for range 12 {
		o, text := largeOrigin(t, random)
		switch got := e2e.Get(t, greedy, o.URL("http", "/page")); {
		case got.Status != http.StatusOK:
			refused++
			e2e.WantOwn(t, got, http.StatusServiceUnavailable, "proxy_internal_error")
			if len(o.Pages("http")) != 0 || got.Header.Get("Retry-After") == "" {
				t.Errorf("a refused request arrived, or may come again at any time: %v", got.Header)
			}
		case first == nil:
			first, file = o, text
		}
		if got := folderSize(t, filepath.Join(p.State, "snapshots")); got > most {
			t.Fatalf("%d bytes of snapshots, of at most %d", got, most)
		}
	}
	if first == nil || refused < 10 {
		t.Fatalf("%d of 12 hosts were refused", refused)
	}
	if got := e2e.Get(t, greedy, first.URL("http", "/page")); got.Status != http.StatusOK {
		t.Errorf("a known host: status %d", got.Status)
	}
	after := e2e.NewOrigin(t, "after", e2e.Forbidding)
	for _, o := range []*e2e.Origin{before, after} {
		if got := e2e.Get(t, honest, o.URL("http", "/no")); got.Status != http.StatusForbidden {
			t.Errorf("another client's host %s: status %d", o.Name, got.Status)
		}
	}
	if !p.Healthy(t) {
		t.Error("/healthz speaks of one client's refusals")
	}
	p.AwaitMetric(t, "robotsproxy_snapshots_errors_total full", float64(refused))
	recorded := 0
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		if r.Reason == "audit" && r.Decision == "block" {
			recorded++
		}
	}
	if recorded != refused {
		t.Errorf("%d of %d refusals are in the audit", recorded, refused)
	}
	wantKept(t, p, file)
}

// wantKept fails unless the proxy has stored a file unchanged.
func wantKept(t *testing.T, p *e2e.Proxy, file string) {
	t.Helper()
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(file)))
	if got := e2e.Command(t, "audit", "snapshot", "-c", p.Config, sum).Want(t, 0).Stdout; got != file {
		t.Errorf("audit snapshot prints %d other bytes of %d", len(got), len(file))
	}
}
