package audit

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestServeRemembersTheEndOfItsAudit: lines that somebody cuts off between two processes are
// reported in the log, by /healthz, doctor, an event and audit verify, and their numbers are not
// used again.
func TestServeRemembersTheEndOfItsAudit(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "end", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced)
	for range 4 {
		e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	}
	p = p.EndAgain(t)
	if strings.Contains(p.Stderr.String(), "differs from what the proxy wrote") {
		t.Errorf("after an orderly end: %s", p.Stderr)
	}
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	p.End(t)
	lines := bytes.SplitAfter([]byte(e2e.ReadText(t, p.Audit)), []byte("\n"))
	lines = lines[:len(lines)-1]
	kept := bytes.Join(lines[:len(lines)-2], nil)
	if err := os.WriteFile(p.Audit, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 1).Stderr; !strings.Contains(got, "audit.tree has the line seq ") {
		t.Errorf("audit verify: %s", got)
	}
	const found = "audit differs from what the proxy wrote"
	doctor := []string{"doctor", "-c", p.Config, "--client", "none"}
	stopped := e2e.Command(t, doctor...).Stdout
	if !strings.Contains(stopped, found+": the lines seq ") {
		t.Errorf("doctor while the proxy is stopped:\n%s", stopped)
	}
	p = p.Again(t)
	testkit.Eventually(t, "the log says that "+found, func() bool { return strings.Contains(p.Stderr.String(), found) })
	health := e2e.Get(t, &http.Client{Timeout: testkit.Patience}, "http://"+p.Admin+"/healthz")
	if health.Status != http.StatusOK || !strings.Contains(string(health.Body), "warning: the "+found) {
		t.Errorf("/healthz: %d %s", health.Status, health.Body)
	}
	if out := e2e.Command(t, doctor...).Stdout; !strings.Contains(out, found) {
		t.Errorf("doctor:\n%s", out)
	}
	got := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 1).Stderr
	if !strings.Contains(got, "(2 lines) before it, which the proxy noticed when it started") {
		t.Errorf("audit verify: %s", got)
	}
	after, _ := e2e.ParseLines(t, []byte(e2e.ReadText(t, p.Audit)[len(kept):]), e2e.Chained{})
	if len(after) == 0 || after[0].Event != "cut" || after[0].Seq != uint64(len(lines))+1 {
		t.Errorf("after %d lines, of which two were cut off, follow %+v", len(lines), after)
	}
}

// TestVerifyReadsTheSnapshots: audit verify names a robots.txt file and a line of the index that
// somebody has edited, and --no-snapshots leaves both out.
func TestVerifyReadsTheSnapshots(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "snapshots", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	p.End(t)
	verify := func(exit int, args ...string) e2e.Outcome {
		t.Helper()
		return e2e.Command(t, append([]string{"audit", "verify", "-c", p.Config}, args...)...).Want(t, exit)
	}
	if out := verify(0).Stdout; !strings.Contains(out, "robots  1 snapshot unchanged\nindex   1 line the same as in the audit\n") {
		t.Errorf("unchanged: %s", out)
	}
	for _, c := range []struct{ pattern, old, new, want string }{
		{"index/*.jsonl", `"status":200`, `"status":404`, "changed: the fetch that ended at "},
		{"??/*.gz", "\x1f\x8b", "xx", "changed: the SHA-256 of its bytes is not its name"},
	} {
		files, err := filepath.Glob(filepath.Join(p.State, "snapshots", c.pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", c.pattern, files, err)
		}
		was := e2e.ReadText(t, files[0])
		e2e.WriteFile(t, files[0], strings.Replace(was, c.old, c.new, 1))
		if got := verify(1).Stderr; !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.pattern, got)
		}
		verify(0, "--no-snapshots")
		e2e.WriteFile(t, files[0], was)
	}
	verify(0)
	testkit.Must(t, os.RemoveAll(filepath.Join(p.State, "snapshots", "index")))
	if out := verify(0).Stdout; !strings.Contains(out, "index   no line about 1 of the fetches of this audit") {
		t.Errorf("without the index: %s", out)
	}
}
