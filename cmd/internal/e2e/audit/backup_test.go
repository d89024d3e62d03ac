package audit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestBackup makes a copy of a proxy's state under load with the script of the documentation, loses the state, and restores the
// copy: the proxy says what is missing, and does not use its numbers again.
func TestBackup(t *testing.T) {
	t.Parallel()
	sh, script, saved := e2e.NeedPeer(t, "sh"), filepath.Join(t.TempDir(), "backup.sh"), filepath.Join(t.TempDir(), "saved")
	_, text, _ := strings.Cut(e2e.ReadText(t, filepath.Join(e2e.TreeRoot(), "docs/backup.md")), "<<'END'\n")
	text, _, _ = strings.Cut(text, "\nEND\n")
	e2e.WriteFile(t, script, text)
	o := e2e.NewOrigin(t, "backup", e2e.Forbidding)
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	elsewhere := filepath.Join(t.TempDir(), "anchors")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.anchor": map[string]string{"file": elsewhere}, "audit.max_size": "64KiB"}))
	stop, load := make(chan struct{}), sync.WaitGroup{}
	for i, c := range p.Clients(t, 4) {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					e2e.Get(t, c, o.URL("http", fmt.Sprintf("/page?%d.%d", i, n)))
				}
			}
		})
	}
	segments := func(dir string) int {
		all, _ := filepath.Glob(filepath.Join(dir, "audit-*"))
		return len(all)
	}
	testkit.Eventually(t, "files were rotated", func() bool { return segments(p.State) > 4 })
	out, err := exec.Command(sh, script, p.State, saved).CombinedOutput()
	close(stop)
	load.Wait()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	copied := e2e.ReadLines(t, filepath.Join(saved, "audit.jsonl"))
	p.End(t)
	last := e2e.ReadLines(t, p.Audit)
	end := last[len(last)-1].Seq
	if got := e2e.Command(t, "audit", "verify", "--audit-dir", saved); got.Code != 0 {
		t.Errorf("the copy: exit %d: %s%s", got.Code, got.Stdout, got.Stderr)
	}
	if len(copied) == 0 || segments(saved) == 0 || copied[len(copied)-1].Seq >= end {
		t.Fatalf("the copy ends with %d of %d lines", copied[len(copied)-1].Seq, end)
	}

	testkit.Must(t, os.Rename(p.State, p.State+".lost"))
	if out, err := exec.Command("cp", "-Rp", saved, p.State).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ca := e2e.ReadText(t, p.CA)
	p = p.Again(t)
	if got := e2e.Get(t, p.Client(t, false), o.URL("https", "/page")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
	if e2e.ReadText(t, p.CA) != ca {
		t.Error("the CA is another one")
	}
	missing := fmt.Sprintf("the lines seq %d to %d are missing", copied[len(copied)-1].Seq+1, end)
	if !strings.Contains(p.Stderr.String(), missing) {
		t.Errorf("the log lacks %q", missing)
	}
	if got := e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+"/healthz"); !strings.Contains(string(got.Body), missing) {
		t.Errorf("/healthz lacks %q: %s", missing, got.Body)
	}
	p.End(t)
	var line struct{ Seq uint64 }
	testkit.Must(t, json.Unmarshal([]byte(e2e.Command(t, "audit", "tail", "--json", "-n", "1", "--audit-dir", p.State).Want(t, 0).Stdout), &line))
	if line.Seq <= end {
		t.Errorf("the last line has number %d, the last line before had %d", line.Seq, end)
	}
	if got := e2e.Command(t, "audit", "verify", "--audit-dir", p.State); got.Code == 0 || !strings.Contains(got.Stdout+got.Stderr, "missing") {
		t.Errorf("verify: exit %d: %s%s", got.Code, got.Stdout, got.Stderr)
	}
}
