package e2e

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A summed is what audit report --format json says, as far as tests ask.
type summed struct {
	Source struct {
		Files struct {
			Rows []struct {
				Name  string `json:"name"`
				Lines int64  `json:"lines"`
				First int64  `json:"first_seq"`
				Last  int64  `json:"last_seq"`
			} `json:"rows"`
		} `json:"files"`
		Lines      int64 `json:"lines"`
		Requests   int64 `json:"requests"`
		Unreadable int64 `json:"unreadable"`
		Chain      struct {
			Held bool `json:"held"`
		} `json:"chain"`
	} `json:"source"`
	Totals struct {
		Requests int64 `json:"requests"`
		Blocked  int64 `json:"blocked"`
	} `json:"totals"`
}

// reports are what every format says of an audit that may be written meanwhile.
func (p *proxy) reports(t *testing.T) (sum summed) {
	t.Helper()
	for _, format := range []string{"text", "csv", "json", "html"} {
		got := command(t, "audit", "report", "-c", p.config, "--format", format).want(t, 0)
		if got.stderr != "" {
			t.Errorf("report --format %s: %s", format, got.stderr)
		}
		var err error
		switch format {
		case "json":
			err = json.Unmarshal([]byte(got.stdout), &sum)
		case "csv":
			_, err = csv.NewReader(strings.NewReader(got.stdout)).ReadAll()
		case "text":
			if !strings.Contains(got.stdout, "\n  chain      holds over all of it") {
				t.Errorf("report: %s", got.stdout)
			}
		case "html":
			if !strings.HasSuffix(got.stdout, "</html>\n") || strings.Contains(got.stdout, `class="alarm"`) {
				t.Errorf("report --format html: %s", got.stdout)
			}
		}
		if err != nil {
			t.Errorf("report --format %s: %v", format, err)
		}
	}
	return sum
}

// whole holds a report against itself: each line was counted once.
func (s *summed) whole(t *testing.T) {
	t.Helper()
	next := int64(1)
	for _, f := range s.Source.Files.Rows {
		if f.First != next || f.Last != f.First+f.Lines-1 {
			t.Errorf("file %+v, its first line should be %d", f, next)
		}
		next = f.Last + 1
	}
	if !s.Source.Chain.Held || s.Source.Lines != next-1 || s.Source.Unreadable != 0 || s.Totals.Requests != s.Source.Requests {
		t.Errorf("%+v", s)
	}
}

// TestAuditIsReadWhileItIsWritten: while serve is asked by many, and files of the audit
// turn and are compressed, verify, tail and report find no fault, and no line twice or
// none at all.
func TestAuditIsReadWhileItIsWritten(t *testing.T) {
	t.Parallel()
	const rounds = 3
	o := newOrigin(t, "live", forbidding)
	p := startProxy(t, outOfTheWay.with(settings{"audit.max_size": "512KiB", "audit.max_files": 10_000})) // a report names 1,000 files one by one
	follow := prepare(t, "audit", "tail", "-c", p.config, "-f", "--json")
	var followed, said syncBuffer
	follow.Stdout, follow.Stderr = &followed, &said
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follow.Process.Kill() })
	load := underLoad(t, p, o, 300)
	for range rounds {
		if got := command(t, "audit", "verify", "-c", p.config).want(t, 0); got.stderr != "" {
			t.Errorf("verify: %s", got.stderr)
		}
		sum := p.reports(t)
		sum.whole(t)
		last := command(t, "audit", "tail", "-c", p.config, "-n", "200", "--json").want(t, 0)
		if lines := numbered(t, last.stdout); last.stderr != "" || len(lines) != 200 || lines[199] != lines[0]+199 {
			t.Errorf("tail: %s%v", last.stderr, lines)
		}
	}
	eventually(t, patience, "files are compressed", func() bool {
		zipped, _ := filepath.Glob(filepath.Join(filepath.Dir(p.audit), "*.gz"))
		return len(zipped) > 3
	})
	load.stop()
	p.end(t)

	all := wholeTrail(t, p.audit)
	eventually(t, patience, "tail -f shows the last record", func() bool {
		return strings.HasSuffix(followed.String(), "\n") && strings.Contains(followed.String(), all[len(all)-1].ID)
	})
	follow.Process.Signal(syscall.SIGINT)
	if err := follow.Wait(); err != nil || said.String() != "" && !strings.HasSuffix(said.String(), "is not there yet\n") {
		t.Errorf("tail -f: %v: %s", err, &said)
	}
	lines := numbered(t, followed.String())
	for i, seq := range lines {
		if i > 0 && seq != lines[i-1]+1 {
			t.Fatalf("tail -f shows line %d behind line %d", seq, lines[i-1])
		}
	}
	sum := p.reports(t)
	sum.whole(t)
	if want := int64(len(all)); lines[len(lines)-1] != want || sum.Source.Lines != want || sum.Totals.Blocked < int64(len(load.ids())) {
		t.Errorf("%d lines, of which tail shows the last as %d, and %+v", want, lines[len(lines)-1], sum)
	}
}

// TestAuditIsReadWhileItIsRemoved: files that go while they are read, or before their
// turn, are no fault.
func TestAuditIsReadWhileItIsRemoved(t *testing.T) {
	t.Parallel()
	const rounds = 6
	o := newOrigin(t, "removed", forbidding)
	p := startProxy(t, outOfTheWay.with(settings{"audit.max_size": "64KiB", "audit.max_files": 1}))
	load := underLoad(t, p, o, 300)
	for range rounds {
		command(t, "audit", "verify", "-c", p.config).want(t, 0)
		p.reports(t)
		command(t, "audit", "tail", "-c", p.config, "-n", "300").want(t, 0)
	}
	load.stop()
	if _, err := os.Stat(filepath.Join(filepath.Dir(p.audit), "audit-000000000001.jsonl.gz")); err == nil {
		t.Error("no file was removed")
	}
}

// numbered gives the numbers of the lines of an audit.
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
