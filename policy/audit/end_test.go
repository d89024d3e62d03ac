package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/robots/testkit"
)

// cutLines removes the last n lines of a file.
func cutLines(n int) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		rewrite(t, file, func(lines [][]byte) [][]byte { return lines[:len(lines)-n] })
	}
}

// cutTree removes the leaves from the line next on.
func cutTree(t *testing.T, file string, next uint64) {
	t.Helper()
	all, err := tree.Open(tree.Path(file))
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(all.Truncate(next), all.Close()))
}

// rewrite replaces the lines of a file, which keep their line feeds.
func rewrite(t *testing.T, file string, change func([][]byte) [][]byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		lines := bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		lines[len(lines)-1] = append(lines[len(lines)-1], '\n')
		err = os.WriteFile(file, bytes.Join(change(lines), nil), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// edit returns a function that changes line i of a file.
func edit(i int) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		rewrite(t, file, func(lines [][]byte) [][]byte {
			lines[i] = bytes.Replace(lines[i], []byte(`"block"`), []byte(`"bl0ck"`), 1)
			return lines
		})
	}
}

// endCases are changes of a trail while the proxy does not run, and what the next start finds.
var endCases = []struct {
	name   string
	change func(t *testing.T, file string)
	unsure bool   // the disk had only the first three lines for certain
	event  string // "": none is expected
	detail string // of the event
	seq    uint64 // of the first line after the start
	fault  string // of verification; "": there is none
}{
	{"unchanged", func(*testing.T, string) {}, false, "", "", 7, ""},
	{"lines were written after the last fsync", func(*testing.T, string) {}, true, "", "", 7, ""},
	{"a power loss took what was written after the last fsync", func(t *testing.T, file string) {
		cutLines(3)(t, file)
		cutTree(t, file, 4)
	}, true, "", "", 4, ""},
	{"lines cut off", cutLines(2), false, trail.EventCut, "the lines seq 5 to 6 are missing", 7, "missing: seq 5 to 6 (2 lines) before it, which the proxy noticed when it started"},
	{"a part of a line cut off too", func(t *testing.T, file string) {
		rewrite(t, file, func(lines [][]byte) [][]byte { return append(lines[:4], lines[4][:20]) })
	}, false, trail.EventCut, "the lines seq 5 to 6 are missing", 7, "missing: seq 5 to 6 (2 lines) before it, which the proxy noticed when it started"},
	{"the file deleted", func(t *testing.T, file string) { os.Remove(file) }, false, trail.EventCut, "the lines seq 1 to 6 are missing", 7, "missing: seq 1 to 6"},
	{"the file empty", func(t *testing.T, file string) { os.Truncate(file, 0) }, false, trail.EventCut, "the lines seq 1 to 6 are missing", 7, "missing: seq 1 to 6"},
	{"the last line edited", edit(5), false, trail.EventChanged, "the line seq 6 does not match its hash", 7, "seq 6: changed: the hash does not match"},
	{"the last certain line edited", edit(2), true, trail.EventChanged, "the line seq 3 is not the line that was on the disk", 7, "seq 3: changed: the hash does not match"},
	{"written anew", func(t *testing.T, file string) {
		testkit.Must(t, errors.Join(os.Remove(file), os.Remove(tree.Path(file))))
		l := open(t, Options{File: file})
		for range 6 {
			l.Write(allowed())
		}
		close(t, l)
	}, false, trail.EventChanged, "the line seq 6 is not the line that was on the disk", 7, "seq 7: changed: the proxy noticed when it started that seq 6 had been changed"},
}

// TestOpenComparesTheEnd: a trail whose end is not as its previous writer left it gets an event, and
// verification fails. The previous writer left six lines.
func TestOpenComparesTheEnd(t *testing.T) {
	for _, c := range endCases {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			l := open(t, Options{File: file})
			var known End
			for i := range 6 {
				l.Write(refused())
				if i == 2 {
					l.probe(true)
					known = l.OnDisk()
				}
			}
			close(t, l)
			if !c.unsure {
				known = l.OnDisk()
			}
			if want := map[bool]uint64{false: 6, true: 3}[c.unsure]; known.Seq != want {
				t.Fatalf("the disk has the lines up to seq %d, want %d", known.Seq, want)
			}
			c.change(t, file)
			compared, err := CompareEnd(file, known.Link)
			if err != nil {
				t.Fatal(err)
			}
			l = open(t, Options{File: file, Known: known})
			tampered := l.Tampered()
			if compared != tampered {
				t.Errorf("CompareEnd says %q, Open %q", compared, tampered)
			}
			l.Write(refused())
			close(t, l)

			first := lineAt(t, file, c.seq)
			if c.event == "" && (tampered != "" || first.Event != "") || first.Event != c.event || !strings.Contains(first.Detail, c.detail) || !strings.Contains(tampered, c.detail) {
				t.Errorf("Tampered is %q, and the first line after the start is event %q: %q; want %q: %q", tampered, first.Event, first.Detail, c.event, c.detail)
			}
			err = verify(t, file, trail.VerifyOptions{})
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("verification says %v, want %q", err, c.fault)
			}
			if err := verify(t, file, trail.VerifyOptions{From: c.seq}); err != nil {
				t.Errorf("verification from seq %d says %v", c.seq, err)
			}
			if l := open(t, Options{File: file, Known: l.OnDisk()}); l.Tampered() != "" {
				t.Errorf("the next start says %q", l.Tampered())
			}
		})
	}
}

// lineAt returns the content of the line with this seq.
func lineAt(t *testing.T, file string, seq uint64) (found trail.Entry) {
	t.Helper()
	r, err := trail.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	trail.VerifyEach(r, func(line trail.Line, _ error) {
		if e, err := trail.Read(line.Text); err == nil && e.Seq == seq {
			found = e
		}
	})
	if found.Seq != seq {
		t.Fatalf("%s has no line seq %d", file, seq)
	}
	return found
}

func verify(t *testing.T, file string, o trail.VerifyOptions) error {
	t.Helper()
	r, err := trail.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = trail.Verify(r, o)
	return err
}

// TestOnDiskNeedsAWaitForTheDisk: OnDisk returns no line for which the log has not waited (fsync).
func TestOnDiskNeedsAWaitForTheDisk(t *testing.T) {
	l := open(t, Options{Sync: SyncNone})
	l.Write(refused())
	l.probe(true)
	if got := l.OnDisk(); got != (End{}) {
		t.Errorf("with SyncNone the disk has %v", got)
	}
	l = open(t, Options{Sync: SyncAlways})
	for i, r := range []*Record{refused(), allowed()} {
		if err := l.Write(r); err != nil || l.OnDisk().Seq != uint64(i+1) {
			t.Errorf("with SyncAlways the disk has %v after %d records, %v", l.OnDisk(), i+1, err)
		}
	}
	l = open(t, Options{})
	l.Write(refused())
	if got := l.OnDisk(); got.Seq != 0 {
		t.Errorf("before the wait the disk has %v", got)
	}
	l.probe(true)
	if got := l.OnDisk(); got.Seq != 1 || got.Hash == (trail.Hash{}) {
		t.Errorf("after the wait the disk has %v", got)
	}
}

// TestKnownLineInAFullSegment: the known line is found in a compressed segment too, and nothing is
// said of a line whose segment was removed.
func TestKnownLineInAFullSegment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, Options{File: file, MaxSize: 1})
	for range 3 {
		l.Write(refused())
	}
	close(t, l)
	segment := trail.SegmentPath(file, 1)
	if err := compress(segment, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	known, err := trail.FindLink(file, 1)
	if err != nil {
		t.Fatal(err)
	}
	other := known
	other.Hash[0]++
	for _, c := range []struct {
		known trail.Link
		gone  bool
		want  string // expected event
	}{{known, false, ""}, {other, false, trail.EventChanged}, {other, true, ""}} {
		if c.gone {
			os.Remove(trail.GzipPath(segment))
		}
		from, e := compareEnd(file, trail.Link{Seq: 3}, c.known)
		if (e != nil) != (c.want != "") || e != nil && e.Event != c.want || from.Seq != 3 {
			t.Errorf("known %v, segment gone %v: event %v after seq %d, want %q", c.known.Hash, c.gone, e, from.Seq, c.want)
		}
	}
	if _, err := trail.FindLink(file, 9); !errors.Is(err, trail.ErrNoRecord) {
		t.Errorf("a line that was never written: %v", err)
	}
}
