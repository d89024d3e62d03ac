package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"
)

// folderSize is the bytes of all files below dir.
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

// TestSnapshotCeiling: a client that asks for hosts with a different large robots.txt
// each cannot fill the disk. Its further hosts are refused and see no page request; the
// hosts it knows, and other clients' new hosts, are answered.
func TestSnapshotCeiling(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	random := rand.NewChaCha8([32]byte{9})
	p := startProxy(t, outOfTheWay.with(settings{"audit.snapshot_max_size": "1MiB"}))
	honest := from(t, p.client(t, false), "127.0.0.2")
	before := newOrigin(t, "before", forbidding)
	if got := get(t, honest, before.url("http", "/no")); got.Status != http.StatusForbidden {
		t.Errorf("a rule: status %d", got.Status)
	}
	greedy := from(t, p.client(t, false), "127.0.0.3")
	var first *origin
	var file string
	refused := 0
	for range 12 {
		text := make([]byte, 500_000)
		random.Read(text)
		o := newOrigin(t, "large", string(text))
		o.handle("/page", textPage("text/plain", "page"))
		switch got := get(t, greedy, o.url("http", "/page")); {
		case got.Status == http.StatusOK:
			if first == nil {
				first, file = o, string(text)
			}
		default:
			refused++
			wantOwn(t, got, http.StatusServiceUnavailable, "proxy_internal_error")
			if len(o.pages("http")) != 0 || got.Header.Get("Retry-After") == "" {
				t.Errorf("a refused request arrived, or may come again at any time: %v", got.Header)
			}
		}
		if got := folderSize(t, filepath.Join(p.state, "snapshots")); got > most {
			t.Fatalf("%d bytes of snapshots, of at most %d", got, most)
		}
	}
	if first == nil || refused < 10 {
		t.Fatalf("%d of 12 hosts were refused", refused)
	}
	if got := get(t, greedy, first.url("http", "/page")); got.Status != http.StatusOK {
		t.Errorf("a known host: status %d", got.Status)
	}
	after := newOrigin(t, "after", forbidding)
	for _, o := range []*origin{before, after} {
		if got := get(t, honest, o.url("http", "/no")); got.Status != http.StatusForbidden {
			t.Errorf("another client's host %s: status %d", o.Name, got.Status)
		}
	}
	if !p.healthy(t) {
		t.Error("/healthz speaks of one client's refusals")
	}
	p.awaitMetric(t, "robotsproxy_snapshots_errors_total full", float64(refused))
	recorded := 0
	for _, r := range readAudit(t, p.audit) {
		if r.Reason == "audit" && r.Decision == "block" {
			recorded++
		}
	}
	if recorded != refused {
		t.Errorf("%d of %d refusals are in the audit", recorded, refused)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(file)))
	if got := command(t, "audit", "snapshot", "-c", p.config, sum).want(t, 0).stdout; got != file {
		t.Errorf("audit snapshot prints %d other bytes of %d", len(got), len(file))
	}
}
