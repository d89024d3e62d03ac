package audit

import (
	"bytes"
	"net/http"
	"os"
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
	if strings.Contains(p.Stderr.String(), "not as the proxy left it") {
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
	e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0) // the lines alone cannot show it
	p = p.Again(t)
	const found = "the audit is not as the proxy left it"
	if !strings.Contains(p.Stderr.String(), found) {
		t.Errorf("the log says nothing: %s", p.Stderr)
	}
	health := e2e.Get(t, &http.Client{Timeout: testkit.Patience}, "http://"+p.Admin+"/healthz")
	if health.Status != http.StatusOK || !strings.Contains(string(health.Body), "warning: "+found) {
		t.Errorf("/healthz: %d %s", health.Status, health.Body)
	}
	if out := e2e.Command(t, "doctor", "-c", p.Config).Stdout; !strings.Contains(out, found) {
		t.Errorf("doctor:\n%s", out)
	}
	got := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 1).Stderr
	if !strings.Contains(got, "(2 lines) before it, as the proxy noticed when it started") {
		t.Errorf("audit verify: %s", got)
	}
	after, _ := e2e.ParseLines(t, []byte(e2e.ReadText(t, p.Audit)[len(kept):]), e2e.Chained{})
	if len(after) == 0 || after[0].Event != "cut" || after[0].Seq != uint64(len(lines))+1 {
		t.Errorf("after %d lines, of which two were cut off, follow %+v", len(lines), after)
	}
}
