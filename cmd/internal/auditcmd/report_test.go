package auditcmd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
)

func TestMoment(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text string
		want time.Time // zero: an error
	}{
		{"2026-11-20T10:00:00+01:00", time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)},
		{"2026-11-20", time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)},
		{"24h", now.Add(-24 * time.Hour)},
		{"7d", now.Add(-7 * 24 * time.Hour)},
		{"1d12h", now.Add(-36 * time.Hour)},
		{"-1h", time.Time{}},
		{"-1d", time.Time{}},
		{"d", time.Time{}},
		{"7 d", time.Time{}},
		{"2026-13-01", time.Time{}},
		{"99999999d", time.Time{}},
	} {
		got, err := moment(c.text, now)
		if !got.Equal(c.want) || (err != nil) != c.want.IsZero() {
			t.Errorf("%s: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}

func TestPageIsNotForATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal to be had:", err)
	}
	defer terminal.Close()
	cmd := auditReportCommand()
	cmd.SetArgs([]string{"--format", "html", "--file", "none.jsonl"})
	cmd.SetOut(terminal)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if status, _ := cli.ExitStatus(cmd.Execute()); status != cli.ExitUsage {
		t.Error("it is not refused")
	}
}

func TestReplaceFileIsWholeOrNot(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	fault := errors.New("no room")
	for _, c := range []struct {
		err  error
		want string
	}{{fault, "old"}, {nil, "new"}} {
		err := cli.ReplaceFile(name, func(w io.Writer) error {
			io.WriteString(w, "new")
			return c.err
		})
		text, _ := os.ReadFile(name)
		if !errors.Is(err, c.err) || string(text) != c.want {
			t.Errorf("%v: %q, %v", c.err, text, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
		t.Errorf("there is left %v", left)
	}
}

// Reports may be dropped where their writer cannot look.
func TestReplaceFileWithoutReadingItsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o300); err != nil {
		t.Fatal(err)
	}
	// TempDir removes what it can read.
	defer os.Chmod(dir, 0o700)
	if err := cli.ReplaceFile(filepath.Join(dir, "report"), func(w io.Writer) error { return nil }); err != nil {
		t.Error(err)
	}
}
