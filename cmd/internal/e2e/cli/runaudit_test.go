package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// audits returns the audits of all runs, the oldest first.
func audits(t *testing.T, h *e2e.Setup) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.State, "runs", "*", "audit.jsonl"))
	testkit.Must(t, err)
	slices.SortFunc(files, func(a, b string) int { // two runs may begin in one second
		infoA, errA := os.Stat(a)
		infoB, errB := os.Stat(b)
		testkit.Must(t, errA)
		testkit.Must(t, errB)
		return infoA.ModTime().Compare(infoB.ModTime())
	})
	return files
}

// TestExplainFindsTheRun: the ID of a refusal is enough, whichever run had it.
func TestExplainFindsTheRun(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "runs", e2e.Forbidding)
	h := e2e.NewSetup(t, e2e.Unpaced)
	var ids []string
	for range 2 {
		e2e.Command(t, h.RunArgs(curl, "-q", "-s", o.URL("http", "/private"))...).Want(t, 0)
	}
	files := audits(t, h)
	if len(files) != 2 {
		t.Fatalf("%q", files)
	}
	for _, file := range files {
		ids = append(ids, e2e.ReadAudit(t, file)[0].ID)
	}
	explain := func(id string, code int, more ...string) string {
		got := e2e.Command(t, append([]string{"audit", "explain", id, "-c", h.Config}, more...)...).Want(t, code)
		return got.Stdout + got.Stderr
	}
	for i, id := range ids { // without an audit of the state directory
		run := filepath.Base(filepath.Dir(files[i]))
		got := explain(id, 0)
		for _, want := range []string{files[i] + ":", "run:            " + run + "\n", "re-derived:     the same", "robotsproxy audit snapshot --run " + run + " "} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
	}
	p := e2e.StartSetup(t, h)
	p.End(t)
	if got := explain(ids[0], 0); !strings.Contains(got, files[0]+":") {
		t.Errorf("beside an audit of the state directory: %s", got)
	}
	if got := explain("nowhere", 1); !strings.Contains(got, "no such record in "+p.Audit+" ") ||
		!strings.Contains(got, "no such record in the audits of 2 runs in "+filepath.Join(h.State, "runs")+" either") {
		t.Errorf("an unknown ID: %s", got)
	}
	for _, more := range [][]string{{"--file", p.Audit}, {"--run", filepath.Base(filepath.Dir(files[1]))}} {
		if got := explain(ids[0], 1, more...); strings.Contains(got, files[0]) || strings.Contains(got, "either") {
			t.Errorf("%q: another audit was searched: %s", more, got)
		}
	}
	// A file elsewhere is not read by way of a symbolic link, be it of the audit or of a directory.
	outside := t.TempDir()
	moved := filepath.Join(outside, "audit.jsonl")
	testkit.Must(t, os.Rename(files[0], moved))
	testkit.Must(t, os.Symlink(moved, files[0]))
	testkit.Must(t, os.Symlink(outside, filepath.Join(h.State, "runs", "29991231T000000Z-1")))
	if got := explain(ids[0], 1); !strings.Contains(got, "no such record in the audits of 1 run in ") {
		t.Errorf("behind a symbolic link: %s", got)
	}
}

// TestTailSaysThatNothingIsRecorded: silence would leave open whether the right file was read.
func TestTailSaysThatNothingIsRecorded(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Unpaced)
	tail := func(code int, args ...string) e2e.Outcome {
		return e2e.Command(t, append([]string{"audit", "tail", "-c", h.Config}, args...)...).Want(t, code)
	}
	state := filepath.Join(h.State, "audit.jsonl")
	if got := tail(1).Stderr; !strings.Contains(got, "no audit at "+state+": nothing has been recorded there yet; choose the audit of the last run with --run last") {
		t.Errorf("no audit: %s", got)
	}
	if got := tail(1, "--run", "last").Stderr; !strings.Contains(got, "no run in "+filepath.Join(h.State, "runs")) {
		t.Errorf("no run: %s", got)
	}
	e2e.Command(t, h.RunArgs("true")...).Want(t, 0)
	file := h.RunAudit(t)
	got := tail(0, "--run", "last")
	if got.Stderr != "robotsproxy: no request has been recorded yet in "+file+"\n" || !strings.Contains(got.Stdout, "start: the proxy has started") {
		t.Errorf("a run without a request: %s%s", got.Stdout, got.Stderr)
	}
	if got := tail(0, "--run", "last", "-n", "1").Stderr; got != "" {
		t.Errorf("of the last line alone nothing can be said: %s", got)
	}
	if got := tail(0, "--run", "last", "--blocked"); got.Stdout != "" || got.Stderr != "robotsproxy: none of the recorded requests matches in "+file+"\n" {
		t.Errorf("with a filter: %s%s", got.Stdout, got.Stderr)
	}
	empty := filepath.Join(h.Dir, "empty.jsonl")
	e2e.WriteFile(t, empty, "")
	if got := tail(0, empty).Stderr; got != "robotsproxy: no request has been recorded yet in "+empty+"\n" {
		t.Errorf("an empty file: %s", got)
	}
	cmd := e2e.Prepare(t, "audit", "tail", "-f", "-c", h.Config, empty)
	var said e2e.SyncBuffer
	cmd.Stderr = &said
	testkit.Must(t, cmd.Start())
	testkit.Eventually(t, "tail -f waits", func() bool {
		return said.String() == "robotsproxy: no request has been recorded yet in "+empty+", waiting for one\n"
	})
	testkit.Must(t, cmd.Process.Signal(os.Interrupt))
	testkit.Must(t, cmd.Wait())
}
