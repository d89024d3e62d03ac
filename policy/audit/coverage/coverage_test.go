package coverage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/robots/testkit"
)

const origin = "robotsproxy/a"

// A lineOf is a line of a trail with its Link.
type lineOf struct {
	text []byte
	link trail.Link
}

// trailOf returns a trail with n lines. Its first line is an event with the origin. The text distinguishes it from others.
func trailOf(n int, text string) (all []lineOf) {
	var hash trail.Hash
	for i := range n {
		body := fmt.Appendf(nil, `{"time":"2026-11-28T00:00:00Z","kind":"event","event":"reload","detail":"%s"`, text)
		if i == 0 {
			body = fmt.Appendf(body, `,"origin":"%s"`, origin)
		}
		line, next := trail.AppendLink(body, 0, uint64(i+1), hash)
		all = append(all, lineOf{bytes.TrimSuffix(line, []byte("\n")), trail.Link{Seq: uint64(i + 1), Prev: hash, Hash: next}})
		hash = next
	}
	return all
}

// treeOf writes the tree of lines.
func treeOf(t *testing.T, lines []lineOf) File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.tree")
	all, err := tree.Create(path, lines[0].link.Seq)
	testkit.Must(t, err)
	t.Cleanup(func() { all.Close() })
	for _, l := range lines {
		testkit.Must(t, all.Append([]trail.Hash{l.link.Hash}))
	}
	return File{path, all}
}

var made = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// heldOf returns a checkpoint of lines.
func heldOf(lines []lineOf, holder, origin string) Held {
	c := tree.NewComparison(lines[0].link.Seq)
	for _, l := range lines {
		// It has no file.
		_ = c.Add(l.link.Hash)
	}
	return Held{
		Checkpoint: checkpoint.Checkpoint{Origin: origin, Size: int64(len(lines)), Root: c.Root(), Seq: c.Next() - 1, Time: made},
		Holder:     holder, Signed: true,
	}
}

func TestCompare(t *testing.T) {
	lines, other := trailOf(10, "a"), trailOf(10, "b")
	unsigned, proved := heldOf(lines[:9], "else", origin), heldOf(lines[:8], "tsa", origin)
	unsigned.Signed, proved.Since = false, made.Add(time.Hour)
	forged := heldOf(other[:9], "else", origin)
	forged.Signed = false
	for _, c := range []struct {
		name  string
		lines []lineOf
		trees []File
		held  []Held
		known bool
		part  bool

		// want is the error, or the holders with their lines.
		want string
	}{
		{name: "no tree and no checkpoint", lines: lines},
		{name: "one that covers some", lines: lines, held: []Held{heldOf(lines[:7], "here", origin)}, want: "here 7"},
		{name: "the newest counts", lines: lines,
			held: []Held{heldOf(lines[:7], "here", origin), heldOf(lines, "here", origin), heldOf(lines[:2], "here", origin)}, want: "here 10"},
		{name: "several holders", lines: lines, held: []Held{heldOf(lines[:7], "here", origin), heldOf(lines[:9], "there", origin)},
			want: "here 7, there 9"},
		{name: "a proved time", lines: lines, held: []Held{proved}, want: "tsa 8 since 2026-11-28T13:00:00Z"},
		{name: "of another audit", lines: lines, held: []Held{heldOf(other, "shared", "robotsproxy/b")}, want: "; of robotsproxy/b"},
		{name: "of a line that was changed", lines: other, held: []Held{heldOf(lines[:7], "here", origin)},
			want: "here: seq 7, or a line before it, is not the line of which robotsproxy/a made a checkpoint at 2026-11-28T12:00:00Z"},
		{name: "of a line that was cut off", lines: lines[:5], held: []Held{heldOf(lines[:7], "here", origin)}, want: "here: seq 7, of which robotsproxy/a made a checkpoint at 2026-11-28T12:00:00Z, is missing: the end was cut off"},
		{name: "of a line in another file", lines: lines[:5], held: []Held{heldOf(lines[:7], "here", origin)}, part: true, want: "; 1 unproved"},
		{name: "of lines that were removed, without a tree", lines: lines[5:], held: []Held{heldOf(lines[:7], "here", origin)},
			want: ""},
		{name: "of lines that were removed, with the tree", lines: lines[5:], trees: []File{treeOf(t, lines)}, held: []Held{heldOf(lines[:7], "here", origin)},
			want: "here 2"},
		{name: "of lines that were all removed, with the tree", lines: lines[5:], trees: []File{treeOf(t, lines)}, held: []Held{heldOf(lines[:5], "here", origin)},
			want: "here 0"},
		{name: "of an earlier tree", lines: lines, trees: []File{treeOf(t, lines[6:]), treeOf(t, lines[:4])},
			held: []Held{heldOf(lines[:4], "here", origin), heldOf(lines[6:9], "here", origin)}, want: "here 7"},
		{name: "a tree of other lines", lines: lines, trees: []File{treeOf(t, other)}, want: "seq 1 is not the line that the tree in "},
		{name: "a longer tree", lines: lines[:5], trees: []File{treeOf(t, lines)}, want: "has the line seq 10, which is missing"},
		{name: "a longer tree of several files", lines: lines[:5], trees: []File{treeOf(t, lines)}, part: true},
		{name: "a shorter tree", lines: lines, trees: []File{treeOf(t, lines[:3])}, held: []Held{heldOf(lines[:7], "here", origin)}, want: "here 7"},
		{name: "two that contradict each other", lines: lines, held: []Held{heldOf(lines[:7], "here", origin), heldOf(other[:7], "there", origin)},
			want: "two checkpoints of robotsproxy/a contradict each other: they are of the line seq 7, in here and there"},
		{name: "without a trusted signature", lines: lines, held: []Held{unsigned, heldOf(lines[:7], "here", origin)}, known: true, want: "here 7; 1 unsigned"},
		{name: "forged, and no key is known", lines: lines, held: []Held{forged}, want: "so anybody may have written it"},
		{name: "forged, and the key is known", lines: lines, held: []Held{forged}, known: true, want: "; 1 unsigned"},
	} {
		check := New(c.trees, c.held, c.known)
		for _, l := range c.lines {
			check.Add(l.text, l.link)
		}
		res := trail.Result{Lines: len(c.lines), First: c.lines[0].link.Seq, Last: c.lines[len(c.lines)-1].link}
		found, err := check.Compare(&res, c.part)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || c.want == "" {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			continue
		}
		var holders []string
		for _, h := range found.Holders {
			text := fmt.Sprintf("%s %d", h.Name, h.Lines)
			if h.Proved {
				text += " since " + h.At.Format(time.RFC3339)
			}
			holders = append(holders, text)
		}
		got := strings.Join(holders, ", ")
		if found.Unproved > 0 {
			got += fmt.Sprintf("; %d unproved", found.Unproved)
		}
		if found.Unsigned > 0 {
			got += fmt.Sprintf("; %d unsigned", found.Unsigned)
		}
		if found.Others != nil {
			got += "; of " + strings.Join(found.Others, ", ")
		}
		// The first line says the origin.
		if c.lines[0].link.Seq > 1 && len(c.trees) == 0 {
			got = strings.TrimPrefix(got, "; of "+origin)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDamagedTree: a tree whose inner hashes are others is damaged.
func TestDamagedTree(t *testing.T) {
	lines := trailOf(10, "a")
	f := treeOf(t, lines)
	content, err := os.ReadFile(f.Path)
	testkit.Must(t, err)
	content[32+tlog.HashSize*tlog.StoredHashIndex(2, 0)]++
	testkit.Must(t, os.WriteFile(f.Path, content, 0o600))
	check := New([]File{f}, nil, false)
	for _, l := range lines {
		check.Add(l.text, l.link)
	}
	res := trail.Result{Lines: len(lines), First: 1, Last: lines[9].link}
	if _, err := check.Compare(&res, false); err == nil || !strings.Contains(err.Error(), "is damaged: at seq 4") {
		t.Error(err)
	}
}
