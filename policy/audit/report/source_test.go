package report

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/policy/audit/trail"
)

func TestChain(t *testing.T) {
	lines := func(n int) []trail.Line {
		var p tape
		var all []trail.Line
		for i := range n {
			all = append(all, p.line(t, rec(i, nil)))
		}
		return all
	}
	for _, c := range []struct {
		name   string
		change func(l []trail.Line) []trail.Line
		held   bool
		where  int // the line of the first fault
		what   string
	}{
		{"whole", func(l []trail.Line) []trail.Line { return l }, true, 0, ""},
		{"older files are gone", func(l []trail.Line) []trail.Line { return l[2:] }, true, 0, ""},
		{"changed", func(l []trail.Line) []trail.Line {
			l[2].Text = bytes.Replace(l[2].Text, []byte("allow"), []byte("block"), 1)
			return l
		}, false, 3, "seq 3: changed: "},
		{"missing", func(l []trail.Line) []trail.Line { return append(l[:2], l[3:]...) }, false, 3, "seq 4: missing: seq 3 (1 line) before it"},
		{"reordered", func(l []trail.Line) []trail.Line { l[2], l[3] = l[3], l[2]; return l }, false, 3, "seq 4: reordered: seq 3 belongs here, but is at "},
		{"changed and sealed anew", func(l []trail.Line) []trail.Line {
			p := tape{seq: 2, last: trail.Hash{1}}
			l[2] = p.line(t, rec(2, nil))
			return l
		}, false, 3, "unlinked"},
		{"no line of a trail", func(l []trail.Line) []trail.Line { l[4].Text = []byte("{}"); return l }, false, 5, "seq 5: foreign: not a line of the audit"},
		{"no first", func(l []trail.Line) []trail.Line {
			p := tape{last: trail.Hash{1}}
			return []trail.Line{p.line(t, rec(2, nil))}
		}, false, 1, "has the hash of a previous line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sumLines(t, Options{}, c.change(lines(5))...)
			if chain := r.Source.Chain; chain.Held != c.held || (chain.Anchor != "") != c.held {
				t.Fatalf("%+v, want held %v", chain, c.held)
			}
			if said := fmt.Sprintf("audit.jsonl:%d: ", c.where); !c.held && (!strings.HasPrefix(r.Fault(), said) || !strings.Contains(r.Fault(), c.what)) {
				t.Errorf("fault %q, want %s ... %s", r.Fault(), said, c.what)
			}
			var text, page strings.Builder
			if err := r.Text(&text, 0); err != nil {
				t.Fatal(err)
			}
			if err := r.HTML(&page, 0); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text.String(), "BROKEN: audit.jsonl:") == c.held || strings.Contains(page.String(), "The chain of the audit is broken.") == c.held {
				t.Error("text or page does not say whether it held")
			}
		})
	}
}

func TestAnchorIsOfTheLastLine(t *testing.T) {
	var p tape
	r := sumLines(t, Options{}, p.line(t, rec(0, nil)), p.line(t, rec(1, nil)))
	if got, want := r.Source.Chain.Anchor, "2:"+p.last.String()[:32]; got != want {
		t.Errorf("anchor %s, want %s", got, want)
	}
}

func open(t *testing.T, path string) *trail.Reader {
	t.Helper()
	lines, err := trail.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lines.Close() })
	return lines
}

// A trail is read through its files, plain and compressed, with a torn end.
func TestReadsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var p tape
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprintf(z, "%s\n%s\n", p.line(t, rec(0, nil)).Text, p.line(t, rec(1, nil)).Text)
	z.Close()
	last := fmt.Appendf(nil, "%s\n%s\n{\"torn", p.line(t, rec(2, blocked)).Text, p.line(t, rec(3, nil)).Text)
	for name, text := range map[string][]byte{trail.SegmentPath(path, 1) + ".gz": packed.Bytes(), path: last} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := open(t, path)
	s := New(Options{})
	if err := s.Read(lines); err != nil {
		t.Fatal(err)
	}
	r := s.Report(start, "")
	want := "[{audit-000000000001.jsonl.gz 2 1 2} {audit.jsonl 3 3 4}]"
	if got := fmt.Sprint(r.Source.Files.Rows); got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	if c := r.Source.Chain; r.Totals.Requests != 4 || r.Source.Unreadable != 1 || c.Held || c.Fault.Line != 3 {
		t.Errorf("%d requests, %d unreadable, %+v", r.Totals.Requests, r.Source.Unreadable, c)
	}
}

func TestDamagedFileIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(trail.SegmentPath(path, 1)+".gz", []byte("not compressed"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := open(t, path)
	s := New(Options{})
	if err := s.Read(lines); err == nil {
		t.Error("no error")
	}
	if f := s.Report(start, "").Fault(); !strings.Contains(f, "audit-000000000001.jsonl.gz") || !strings.Contains(f, "could not be read to its end") {
		t.Errorf("fault %q", f)
	}
}

// Files that are removed while a trail is read are no fault of it, and do not end the
// report.
func TestFilesAreRemovedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var p tape
	for i, name := range []string{trail.SegmentPath(path, 1), trail.SegmentPath(path, 3), path} {
		text := fmt.Appendf(nil, "%s\n%s\n", p.line(t, rec(2*i, nil)).Text, p.line(t, rec(2*i+1, nil)).Text)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := open(t, path)
	for range 2 { // the first file
		if _, err := lines.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for _, first := range []uint64{1, 3} {
		if err := os.Remove(trail.SegmentPath(path, first)); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Options{})
	if err := s.Read(lines); err != nil {
		t.Fatal(err)
	}
	r := s.Report(start, "")
	if c := r.Source.Chain; r.Totals.Requests != 2 || !c.Held || !c.Removed || !strings.HasPrefix(c.Anchor, "6:") {
		t.Errorf("%d requests, %+v", r.Totals.Requests, c)
	}
	if text := (prose{r}).Text("chain"); !strings.Contains(text, "Files were removed before this report read them.") {
		t.Errorf("it says %q", text)
	}
}

// A file whose first lines are gone is a fault for the report as for audit verify.
func TestBeginningOfAFileIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var p tape
	p.line(t, rec(0, nil))
	if err := os.WriteFile(trail.SegmentPath(path, 1), fmt.Appendf(nil, "%s\n", p.line(t, rec(1, nil)).Text), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := open(t, path)
	s := New(Options{})
	if err := s.Read(lines); err != nil {
		t.Fatal(err)
	}
	if r := s.Report(start, ""); r.Fault() != "audit-000000000001.jsonl:1: seq 2: missing: seq 1 (1 line) before it" || r.Totals.Requests != 1 {
		t.Errorf("fault %q, %d requests", r.Fault(), r.Totals.Requests)
	}
}
