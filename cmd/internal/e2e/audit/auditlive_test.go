package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestAuditIsReadWhileItIsWritten: under load, while audit files are closed and
// compressed, verify, tail and report find no fault, and each line exactly once.
func TestAuditIsReadWhileItIsWritten(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	const rounds = 3
	o := e2e.NewOrigin(t, "live", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.max_size": "128KiB", "audit.max_files": 10_000})) // a report names 1,000 files one by one
	follow := e2e.Prepare(t, "audit", "tail", "-c", p.Config, "-f", "--json")
	var followed, said e2e.SyncBuffer
	follow.Stdout, follow.Stderr = &followed, &said
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follow.Process.Kill() })
	load := underLoad(t, p, o, 300)
	for range rounds {
		if got := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0); got.Stderr != "" {
			t.Errorf("verify: %s", got.Stderr)
		}
		sum := p.Reports(t)
		sum.Whole(t)
		last := e2e.Command(t, "audit", "tail", "-c", p.Config, "-n", "200", "--json").Want(t, 0)
		if lines := numbered(t, last.Stdout); last.Stderr != "" || len(lines) != 200 || lines[199] != lines[0]+199 {
			t.Errorf("tail: %s%v", last.Stderr, lines)
		}
	}
	testkit.Eventually(t, "files are compressed", func() bool {
		zipped, _ := filepath.Glob(filepath.Join(filepath.Dir(p.Audit), "*.gz"))
		return len(zipped) > 3
	})
	load.stop()
	p.End(t)

	all := wholeTrail(t, p.Audit)
	testkit.Eventually(t, "tail -f shows the last line", func() bool {
		return strings.HasSuffix(followed.String(), "\n") && strings.Contains(followed.String(), fmt.Sprintf(`"seq":%d,`, len(all)))
	})
	follow.Process.Signal(syscall.SIGINT)
	early := regexp.MustCompile(`^(robotsproxy: \S+ does not exist yet\n)?(robotsproxy: no request has been recorded yet in \S+, waiting for one\n)?$`)
	if err := follow.Wait(); err != nil || !early.MatchString(said.String()) {
		t.Errorf("tail -f: %v: %s", err, &said)
	}
	lines := numbered(t, followed.String())
	for i, seq := range lines {
		if i > 0 && seq != lines[i-1]+1 {
			t.Fatalf("tail -f shows line %d behind line %d", seq, lines[i-1])
		}
	}
	sum := p.Reports(t)
	sum.Whole(t)
	if want := int64(len(all)); lines[len(lines)-1] != want || sum.Source.Lines != want || sum.Totals.Blocked < int64(len(load.ids())) {
		t.Errorf("%d lines, of which tail shows the last as %d, and %+v", want, lines[len(lines)-1], sum)
	}
}

// TestAuditIsReadWhileItIsRemoved: files that are removed while they are read, or before,
// are not a fault.
func TestAuditIsReadWhileItIsRemoved(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	const rounds = 3
	o := e2e.NewOrigin(t, "removed", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.max_size": "64KiB", "audit.max_files": 1}))
	load := underLoad(t, p, o, 300)
	for range rounds {
		e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0)
		p.Reports(t)
		e2e.Command(t, "audit", "tail", "-c", p.Config, "-n", "300").Want(t, 0)
	}
	load.stop()
	if _, err := os.Stat(filepath.Join(filepath.Dir(p.Audit), "audit-000000000001.jsonl.gz")); err == nil {
		t.Error("no file was removed")
	}
}

// numbered returns the numbers of the lines of an audit.
func numbered(t *testing.T, text string) (numbers []int64) {
	t.Helper()
	for line := range strings.Lines(text) {
		var l struct {
			Seq int64 `json:"seq"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		numbers = append(numbers, l.Seq)
	}
	return numbers
}
