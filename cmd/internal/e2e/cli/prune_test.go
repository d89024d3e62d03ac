package cli

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Runs remove the directories of finished ones, however many do so at once, but not that of a run that lasts.
func TestRunRemovesOldRuns(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"runs.max_age": "24h", "runs.max_number": 6}))
	runs := filepath.Join(h.State, "runs")
	old := time.Now().Add(-99 * 24 * time.Hour)
	for _, name := range []string{"20260101T000000Z-7", "20260101T000000Z-7.2"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(runs, name, "snapshots"), 0o700))
		e2e.WriteFile(t, filepath.Join(runs, name, "audit.jsonl"), "")
		testkit.Must(t, os.Chtimes(filepath.Join(runs, name), time.Time{}, old))
	}
	left := func() []string {
		dirs, err := filepath.Glob(filepath.Join(runs, "*"))
		testkit.Must(t, err)
		return dirs
	}

	lasting := e2e.Prepare(t, h.RunArgs("sh", "-c", "echo $ROBOTSPROXY_RUN; read line")...)
	input, err := lasting.StdinPipe()
	testkit.Must(t, err)
	output, err := lasting.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, lasting.Start())
	t.Cleanup(func() { lasting.Process.Kill() })
	first := make([]byte, 4096)
	n, err := output.Read(first)
	testkit.Must(t, err)
	dir := strings.TrimSpace(string(first[:n]))
	testkit.Eventually(t, "the first run removes both", func() bool { return slices.Equal(left(), []string{dir}) })
	// This is the last file that the run makes in its directory before it ends.
	testkit.Eventually(t, "the tree of the audit", func() bool { return e2e.Exists(filepath.Join(dir, "audit.tree")) })
	testkit.Must(t, os.Chtimes(dir, time.Time{}, old))

	var all sync.WaitGroup
	for range 9 {
		all.Go(func() {
			out := e2e.Finish(t, e2e.Prepare(t, h.RunArgs("true")...))
			if out.Code != 0 || strings.Contains(out.Stderr, "run directory") {
				t.Errorf("status %d: %s", out.Code, out.Stderr)
			}
		})
	}
	all.Wait()
	e2e.Command(t, h.RunArgs("true")...).Want(t, 0)
	if dirs := left(); len(dirs) != 6+1 || !slices.Contains(dirs, dir) { // the oldest one is left because it lasts
		t.Errorf("left: %s", strings.Join(dirs, "\n"))
	}
	if _, err := os.Stat(filepath.Join(dir, "audit.jsonl")); err != nil {
		t.Error(err)
	}
	testkit.Must(t, input.Close())
	io.Copy(io.Discard, output)
	lasting.Wait()
	if _, err := os.Stat(filepath.Join(dir, "audit.jsonl")); err != nil {
		t.Error(err)
	}
}
