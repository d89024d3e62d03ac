package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

func TestDoctorCADates(t *testing.T) {
	for _, c := range []struct {
		name string
		end  time.Duration
		want cli.Status
		says string
	}{
		{"good", 31 * 24 * time.Hour, cli.StatusOK, "valid until "},
		{"soon over", 29 * 24 * time.Hour, cli.StatusWarn, "expires on "},
		{"over", -time.Hour, cli.StatusFail, "expired on "},
	} {
		d := doctorFor(t, "http://127.0.0.1:1")
		d.ca, d.authority, d.cfg.StateDir = nil, nil, t.TempDir()
		testca.Write(t, d.cfg.StateDir, time.Now().Add(c.end))
		found := checkCA(t.Context(), d)
		if found.Status != c.want || !strings.Contains(found.Detail, c.says) {
			t.Errorf("%s: %+v", c.name, found)
		}
		if c.want != cli.StatusOK && !strings.HasPrefix(found.Hint, "robotsproxy ca rotate") {
			t.Errorf("%s: what to do: %q", c.name, found.Hint)
		}
	}
}

// An audit that goes to a pipe is not opened: nobody may be reading there.
func TestDoctorAuditPipe(t *testing.T) {
	d := doctorFor(t, "http://127.0.0.1:1")
	d.cfg.Audit.File = filepath.Join(t.TempDir(), "pipe")
	testkit.Fifo(t, d.cfg.Audit.File)
	if found := checkAudit(t.Context(), d); found.Status != cli.StatusSkip {
		t.Errorf("audit: %+v", found)
	}
	if found := checkClock(t.Context(), d); found.Status != cli.StatusOK {
		t.Errorf("clock: %+v", found)
	}
}

// TestDoctorSnapshots: it warns before hosts are refused.
func TestDoctorSnapshots(t *testing.T) {
	d := doctorFor(t, "http://127.0.0.1:1")
	d.cfg.StateDir, d.cfg.Audit.MaxSize, d.cfg.Audit.SnapshotMaxSize = t.TempDir(), 1, 1<<20
	day := filepath.Join(d.cfg.StateDir, cli.SnapshotsName, "index", "2026-11-21.jsonl")
	if err := os.MkdirAll(filepath.Dir(day), 0o700); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]cli.Status{900_000: cli.StatusOK, 1_000_000: cli.StatusWarn} {
		if err := os.WriteFile(day, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if found := checkAudit(t.Context(), d); found.Status != want {
			t.Errorf("%d bytes: %+v", size, found)
		}
	}
}

// The clock, against each thing that it cannot be before.
func TestDoctorClock(t *testing.T) {
	record := `{"time":"2031-01-01T00:00:00Z","decision":"allow","seq":0}` + "\n"
	for _, c := range []struct {
		name string
		set  func(d *doctor)
		want cli.Status
		says string
	}{
		{"right", func(*doctor) {}, cli.StatusOK, "the proxy's time is unknown"},
		{"as the proxy's", func(d *doctor) { d.proxyDateAt = d.now(); d.proxyDate = d.proxyDateAt.Add(-time.Second) }, cli.StatusOK, "as the proxy's"},
		{"apart from the proxy's", func(d *doctor) { d.proxyDateAt = d.now(); d.proxyDate = d.proxyDateAt.Add(2 * time.Hour) }, cli.StatusWarn, "differs by 2h0m0s"},
		{"before the CA", func(d *doctor) { d.now = at(d.ca.NotBefore.Add(-time.Hour)) }, cli.StatusFail, "the creation of the CA"},
		{"before the audit's end", func(d *doctor) { writeState(t, d, cli.AuditName, record) }, cli.StatusFail, "the newest record of the audit (2031-01-01 00:00:00)"},
		{"after the audit's end", func(d *doctor) {
			writeState(t, d, cli.AuditName, record)
			d.ca, d.now = nil, at(time.Date(2031, 1, 1, 0, 0, 1, 0, time.UTC))
		}, cli.StatusOK, "2031"},
		{"before the state", func(d *doctor) {
			soon := time.Now().Add(time.Hour)
			if err := os.Chtimes(writeState(t, d, daemon.StateFile, ""), soon, soon); err != nil {
				t.Fatal(err)
			}
		}, cli.StatusFail, "the last write of the state"},
		{"the state of another machine", func(d *doctor) { writeState(t, d, cli.AuditName, record); d.remote = true }, cli.StatusOK, ""},
	} {
		d := doctorFor(t, "http://127.0.0.1:1")
		d.cfg.StateDir = t.TempDir()
		c.set(d)
		if found := checkClock(t.Context(), d); found.Status != c.want || !strings.Contains(found.Detail, c.says) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}

func at(fixed time.Time) func() time.Time { return func() time.Time { return fixed } }

// writeState writes a file of the state directory.
func writeState(t *testing.T, d *doctor, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(d.cfg.StateDir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A failure is what a diagnosis is that nobody has filled in.
func TestDiagnosisZeroValue(t *testing.T) {
	var out strings.Builder
	printer := cli.NewDiagnosisPrinter(&out, false, "")
	if err := printer.Add(cli.Diagnosis{}); err != nil || !strings.HasPrefix(out.String(), "FAIL") || printer.Verdict("x") == nil {
		t.Errorf("%q, %v", out.String(), err)
	}
}
