package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/robots/testkit"
)

// rootOf returns the root of the tree of the lines from first to last in a trail.
func rootOf(t *testing.T, file string, first, last uint64) tlog.Hash {
	t.Helper()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	n := int64(0)
	for l, err := range trail.Links(file, first) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Seq > last {
			break
		}
		more, err := tlog.StoredHashesForRecordHash(n, tree.LeafHash(l.Hash), read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
		n++
	}
	root, err := tlog.TreeHash(n, read)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// lastSeq returns the number of the last line of a trail.
func lastSeq(t *testing.T, file string) uint64 {
	t.Helper()
	last, err := trail.LastEntry(file)
	testkit.Must(t, err)
	return last.Seq
}

// treeCases are changes of a trail of six lines and its tree while the proxy does not run.
var treeCases = []struct {
	name   string
	change func(t *testing.T, file, tree string)

	// event is that of the first line after the start, and size the number of leaves after one more line.
	event string
	size  int64

	// aside is a file with the tree before; "": there is none.
	aside string
}{
	{name: "unchanged", change: func(*testing.T, string, string) {}, size: 7},
	{name: "no tree", change: func(t *testing.T, _, tree string) { testkit.Must(t, os.Remove(tree)) }, size: 7},
	{name: "a torn leaf", change: func(t *testing.T, _, tree string) { testkit.Must(t, os.Truncate(tree, 32+32*7+10)) }, size: 7},
	{name: "a torn header", change: func(t *testing.T, _, tree string) { testkit.Must(t, os.Truncate(tree, 10)) }, size: 7, aside: "audit.tree.unchained-*"},
	{name: "zeroes at the end, as after a power loss", change: func(t *testing.T, _, path string) {
		content, err := os.ReadFile(path)
		testkit.Must(t, err)
		clear(content[len(content)-3*tlog.HashSize:])
		testkit.Must(t, os.WriteFile(path, content, 0o600))
	}, size: 7},
	{name: "zeroes in the hashes of the last subtree, as after a power loss", change: func(t *testing.T, _, path string) {
		content, err := os.ReadFile(path)
		testkit.Must(t, err)
		clear(content[32+6*tlog.HashSize : 32+7*tlog.HashSize])
		testkit.Must(t, os.WriteFile(path, content, 0o600))
	}, size: 7},
	{name: "zeroes behind the end", change: func(t *testing.T, _, path string) { testkit.Must(t, os.Truncate(path, 32+32*100)) }, size: 7},
	{name: "a first line of a time to come", change: func(t *testing.T, _, path string) {
		content, err := os.ReadFile(path)
		testkit.Must(t, err)
		content[24] = 0x80
		testkit.Must(t, os.WriteFile(path, content, 0o600))
	}, size: 7, aside: "audit-9223372036854775809.tree"},
	{name: "another file", change: func(t *testing.T, _, tree string) { testkit.Must(t, os.WriteFile(tree, make([]byte, 4096), 0o600)) },
		size: 7, aside: "audit.tree.unchained-*"},
	{name: "lines cut off", change: func(t *testing.T, file, _ string) { cutLines(2)(t, file) }, event: trail.EventCut, size: 8},
	{name: "the file deleted", change: func(t *testing.T, file, _ string) { testkit.Must(t, os.Remove(file)) }, event: trail.EventCut, size: 8},
	{name: "the last line written anew", change: func(t *testing.T, file, _ string) {
		cutLines(1)(t, file)
		anew := filepath.Join(filepath.Dir(file), "anew.jsonl")
		testkit.Must(t, os.Rename(file, anew))
		l := open(t, Options{File: anew})
		l.Write(allowed())
		close(t, l)
		testkit.Must(t, os.Rename(anew, file))
	}, event: trail.EventChanged, size: 8, aside: "audit-000000000001.tree"},
	{name: "no tree, and the first lines removed", change: func(t *testing.T, file, tree string) {
		testkit.Must(t, os.Remove(tree))
		rewrite(t, file, func(lines [][]byte) [][]byte { return lines[2:] })
	}, size: 6},
}

// TestTreeFollowsTheTrail: the tree has all lines that the disk has, also those that a process before left out, and shows
// what was cut off or written anew.
func TestTreeFollowsTheTrail(t *testing.T) {
	for _, c := range treeCases {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			l := open(t, Options{File: file})
			for range 6 {
				l.Write(refused())
			}
			close(t, l)
			c.change(t, file, tree.Path(file))
			l = open(t, Options{File: file})
			l.Write(refused())
			close(t, l)
			head, err := l.Head()
			if err != nil || head.Size != c.size || head.Seq != lastSeq(t, file) {
				t.Errorf("%d leaves up to seq %d, %v, want %d up to %d", head.Size, head.Seq, err, c.size, lastSeq(t, file))
			}
			first := head.Seq - uint64(head.Size) + 1
			if c.event != trail.EventCut && head.Root != rootOf(t, file, first, head.Seq) {
				t.Errorf("the root is not that of the lines from seq %d to %d", first, head.Seq)
			}
			if got := lineAt(t, file, 7).Event; got != c.event && c.event != "" || c.event == "" && l.Tampered() != "" {
				t.Errorf("the first line after the start is event %q, and Tampered %q", got, l.Tampered())
			}
			names, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "audit*.tree*"))
			if aside := strings.Join(names, " "); c.aside == "" && len(names) != 1 {
				t.Errorf("there are the trees %s", aside)
			} else if match, _ := filepath.Glob(filepath.Join(filepath.Dir(file), c.aside)); c.aside != "" && len(match) != 1 {
				t.Errorf("there are the trees %s, want %s", aside, c.aside)
			}
		})
	}
}

// TestCheckpointOfALaterState: a trail and its tree that were replaced by an older state, or by other lines, are found by a
// checkpoint that was kept elsewhere.
func TestCheckpointOfALaterState(t *testing.T) {
	type point = checkpoint.Checkpoint
	newest := func(h Head) []point { return []point{{Seq: h.Seq, Size: h.Size, Root: h.Root}} }
	for _, c := range []struct {
		name   string
		latest func(h Head) []point

		// event is that of the first line after the start, and seq its number.
		event string
		seq   uint64
	}{
		{"the newest line", newest, "", 4},
		{"a later line", func(h Head) []point { return []point{{Seq: 9, Size: 9, Root: h.Root}} }, trail.EventCut, 10},
		{"two later lines", func(h Head) []point { return []point{{Seq: 9, Size: 9}, {Seq: 7, Size: 7}} }, trail.EventCut, 10},
		{"a torn tree", newest, "", 4},
		{"other lines", func(h Head) []point { return []point{{Seq: 2, Size: 2, Root: h.Root}} }, trail.EventChanged, 4},
		{"other lines at one of two places", func(h Head) []point {
			return append(newest(h), point{Seq: 2, Size: 2, Root: h.Root})
		}, trail.EventChanged, 4},
		{"another tree", func(h Head) []point { return []point{{Seq: 3, Size: 2, Root: h.Root}} }, "", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := open(t, Options{})
			for range 3 {
				l.Write(refused())
			}
			h, err := l.Head()
			testkit.Must(t, err)
			close(t, l)
			if c.name == "a torn tree" {
				testkit.Must(t, os.Truncate(tree.Path(l.opened.File), 32+32))
				testkit.Must(t, os.Truncate(tree.Path(l.opened.File), 32+32*4))
			}
			l = open(t, Options{File: l.opened.File, Latest: c.latest(h)})
			l.Write(refused())
			close(t, l)
			if got := lineAt(t, l.opened.File, c.seq); got.Event != c.event || (c.event == "") != (l.Tampered() == "") {
				t.Errorf("event %q, and Tampered %q", got.Event, l.Tampered())
			}
		})
	}
}

// TestTreeTakesWhatTheDiskHas: a tree that is longer than the trail says that lines were cut off.
func TestTreeTakesWhatTheDiskHas(t *testing.T) {
	l := open(t, Options{})
	for range 3 {
		l.Write(refused())
	}
	if h, err := l.tree.grow(); err != nil || h.Size != 0 {
		t.Errorf("the tree has %d leaves, %v, of lines that the disk may not have", h.Size, err)
	}
	if h, err := l.Head(); err != nil || h.Size != 3 || h.Seq != 3 {
		t.Errorf("%v, %v", h, err)
	}
	l = open(t, Options{Sync: SyncNone})
	l.Write(refused())
	if h, err := l.tree.grow(); err != nil || h.Size != 1 {
		t.Errorf("with SyncNone the tree has %d leaves, %v", h.Size, err)
	}
}

// TestManyLinesWaitForTheTree: of more than the bound, the tree reads the hashes from the files.
func TestManyLinesWaitForTheTree(t *testing.T) {
	l := open(t, Options{Sync: SyncNone, MaxSize: 4 << 20})
	const lines = maxLeaves + leavesAtOnce + 10
	for range lines {
		l.Write(allowed())
	}
	h, err := l.Head()
	if err != nil || h.Size != lines || h.Root != rootOf(t, l.opened.File, 1, lines) {
		t.Errorf("%d leaves, %v", h.Size, err)
	}
	if n := cap(l.leaves.hashes); n > 2*maxLeaves {
		t.Errorf("space for %d hashes", n)
	}
}

// TestTreeThatCannotBeWritten: the lines are written nevertheless, and the tree has them later.
func TestTreeThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	testkit.Must(t, os.Mkdir(tree.Path(file), 0o700))
	l := open(t, Options{File: file})
	if err := l.Write(refused()); err != nil {
		t.Error(err)
	}
	if _, err := l.Head(); err == nil {
		t.Error("there is a head without a tree")
	}
	if err := l.Err(); err != nil {
		t.Errorf("requests are refused: %v", err)
	}
	testkit.Must(t, os.Remove(tree.Path(file)))
	if h, err := l.Head(); err != nil || h.Size != 1 {
		t.Errorf("%v, %v", h, err)
	}
}

// TestNoHeadAfterAFailure: after a Close that could not write the tree, there is no Head that a checkpoint could state.
func TestNoHeadAfterAFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	testkit.Must(t, os.Mkdir(tree.Path(file), 0o700))
	l := open(t, Options{File: file})
	l.Write(refused())
	if err := l.Close(); err == nil {
		t.Error("Close has no error")
	}
	if h, err := l.Head(); err == nil {
		t.Errorf("%+v", h)
	}
}

// TestTreeOfManyLinesAfterACrash: the lines whose leaves a crash may have left incomplete are found in full segments too.
func TestTreeOfManyLinesAfterACrash(t *testing.T) {
	l := open(t, Options{MaxSize: 64 << 10})
	const lines = 500
	for range lines {
		l.Write(refused())
	}
	close(t, l)
	path := tree.Path(l.opened.File)
	content, err := os.ReadFile(path)
	testkit.Must(t, err)
	// A hash does not cross the sectors of a disk.
	middle := len(content) / 2 / tlog.HashSize * tlog.HashSize
	clear(content[middle : middle+2*tlog.HashSize])
	testkit.Must(t, os.WriteFile(path, content, 0o600))
	l = open(t, Options{File: l.opened.File})
	h, err := l.Head()
	if err != nil || h.Size != lines || h.Root != rootOf(t, l.opened.File, 1, lines) || l.Tampered() != "" {
		t.Errorf("%d leaves, %v, %q", h.Size, err, l.Tampered())
	}
}

// TestNoTreeWithoutAFile: standard output has no tree.
func TestNoTreeWithoutAFile(t *testing.T) {
	l := open(t, Options{File: "-"})
	if _, err := l.Head(); err != errNoTree {
		t.Error(err)
	}
}
