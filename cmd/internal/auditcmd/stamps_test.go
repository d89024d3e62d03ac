package auditcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/audit/trail"
)

// TestStampsBelongToOneAudit: verify compares the time-stamps in the state directory with the configured
// audit, and with no other. Time-stamps beside an audit belong to that audit.
func TestStampsBelongToOneAudit(t *testing.T) {
	state, elsewhere := t.TempDir(), t.TempDir()
	configured, other, linked := filepath.Join(elsewhere, "configured.jsonl"), filepath.Join(elsewhere, "other.jsonl"), filepath.Join(state, "link.jsonl")
	for _, path := range []string{configured, other} {
		writeAudit(t, path)
	}
	config := filepath.Join(state, "config.yaml")
	err := os.WriteFile(config, []byte("state_dir: "+state+"\naudit:\n  file: "+configured+"\n"), 0o600)
	if err == nil {
		err = os.Symlink(configured, linked)
	}
	if err == nil {
		err = saveStamp(state)
	}
	if err != nil {
		t.Fatal(err)
	}
	verify := func(want int, args ...string) {
		t.Helper()
		var out, errOut strings.Builder
		status := cli.Execute(t.Context(), Command(), append([]string{"verify", "-c", config}, args...), nil, &out, &errOut)
		if status != want || want > 0 && !strings.Contains(errOut.String(), "9-000") {
			t.Errorf("%s: status %d, want %d: %s", args, status, want, errOut.String())
		}
	}
	verify(1)
	verify(1, "--file", configured)
	verify(1, "--file", linked)
	verify(0, "--file", other)
	if err := os.Rename(filepath.Join(state, notary.StampsName), filepath.Join(elsewhere, notary.StampsName)); err != nil {
		t.Fatal(err)
	}
	verify(0)
	verify(1, "--file", other)
}

// saveStamp writes a malformed time-stamp over an anchor into a state directory.
func saveStamp(state string) error {
	dir := filepath.Join(state, notary.StampsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "9-"+strings.Repeat("0", 32)+".tsr"), []byte("x"), 0o600)
}

// TestStampsOfOneFile: a closed file of an audit lacks the lines of later time-stamps.
func TestStampsOfOneFile(t *testing.T) {
	dir := t.TempDir()
	active := filepath.Join(dir, "audit.jsonl")
	if err := saveStamp(dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{active: 1, trail.SegmentPath(active, 1): 0, filepath.Join(dir, "audit-1.jsonl"): 1} {
		writeAudit(t, path)
		var out strings.Builder
		if status := cli.Execute(t.Context(), Command(), []string{"verify", "--state", t.TempDir(), "--file", path}, nil, &out, &out); status != want {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, &out)
		}
	}
}

// writeAudit writes an audit of one line.
func writeAudit(t *testing.T, path string) {
	t.Helper()
	line, _ := trail.AppendLink([]byte(`{"time":"2026-11-21T10:00:00Z","id":"a-1"`), 0, 1, trail.Hash{})
	if err := os.WriteFile(path, line, 0o600); err != nil {
		t.Fatal(err)
	}
}
