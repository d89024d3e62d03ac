package tree

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// lineHash returns the hash of a made-up line.
func lineHash(seq uint64) (h trail.Hash) {
	binary.BigEndian.PutUint64(h[:], seq)
	return h
}

// linesFrom returns the hashes of n lines.
func linesFrom(seq uint64, n int) (all []trail.Hash) {
	for i := range n {
		all = append(all, lineHash(seq+uint64(i)))
	}
	return all
}

// rootByDefinition is the Merkle tree hash as RFC 6962 2.1 defines it.
func rootByDefinition(lines []trail.Hash) tlog.Hash {
	switch len(lines) {
	case 0:
		root, _ := tlog.TreeHash(0, nil)
		return root
	case 1:
		return LeafHash(lines[0])
	}
	k := 1
	for 2*k < len(lines) {
		k *= 2
	}
	return tlog.NodeHash(rootByDefinition(lines[:k]), rootByDefinition(lines[k:]))
}

func create(t testing.TB, first uint64) (*Tree, string) {
	path := filepath.Join(t.TempDir(), "audit.tree")
	tree, err := Create(path, first)
	testkit.Must(t, err)
	t.Cleanup(func() { tree.Close() })
	return tree, path
}

// TestRoots compares the roots of all small trees, also after they were opened again, with the definition (RFC 6962 2.1).
func TestRoots(t *testing.T) {
	const first = 41
	tree, path := create(t, first)
	for n := range 70 {
		lines := linesFrom(first, n)
		if tree.Size() != int64(n) || tree.Next() != first+uint64(n) {
			t.Fatalf("%d leaves, next is %d", tree.Size(), tree.Next())
		}
		if root, err := tree.Root(int64(n)); err != nil || root != rootByDefinition(lines) {
			t.Fatalf("%d leaves: root %v, %v", n, root, err)
		}
		if n%3 == 0 {
			tree.Close()
			var err error
			tree, err = Open(path)
			testkit.Must(t, err)
			t.Cleanup(func() { tree.Close() })
		}
		testkit.Must(t, tree.Append(linesFrom(first+uint64(n), 1)))
	}
	for n := range tree.Size() {
		if root, err := tree.Root(n); err != nil || root != rootByDefinition(linesFrom(first, int(n))) {
			t.Errorf("the first %d leaves: root %v, %v", n, root, err)
		}
		if leaf, err := tree.Leaf(first + uint64(n)); err != nil || leaf != LeafHash(lineHash(first+uint64(n))) {
			t.Errorf("leaf of line %d: %v, %v", first+n, leaf, err)
		}
	}
}

// TestProofs checks that a reader of the file can prove each line, and each earlier root.
func TestProofs(t *testing.T) {
	tree, path := create(t, 1)
	testkit.Must(t, tree.Append(linesFrom(1, 100)))
	read, err := OpenToRead(path)
	testkit.Must(t, err)
	defer read.Close()
	root, err := read.Root(100)
	testkit.Must(t, err)
	for n := range int64(100) {
		line, err := tlog.ProveRecord(100, n, read)
		testkit.Must(t, err)
		testkit.Must(t, tlog.CheckRecord(line, 100, root, n, LeafHash(lineHash(uint64(n)+1))))
		earlier, err := read.Root(n + 1)
		testkit.Must(t, err)
		same, err := tlog.ProveTree(100, n+1, read)
		testkit.Must(t, err)
		testkit.Must(t, tlog.CheckTree(same, 100, root, n+1, earlier))
	}
}

// TestTornTree cuts the file at each byte: what is left is the tree of the leaves that are there, and can go on.
func TestTornTree(t *testing.T) {
	tree, path := create(t, 7)
	testkit.Must(t, tree.Append(linesFrom(7, 9)))
	whole, err := os.ReadFile(path)
	testkit.Must(t, err)
	for size := range len(whole) {
		cut := filepath.Join(t.TempDir(), "audit.tree")
		testkit.Must(t, os.WriteFile(cut, whole[:size], 0o600))
		tree, err := Open(cut)
		if size < headerSize {
			if !errors.Is(err, ErrForm) {
				t.Errorf("%d bytes: %v", size, err)
			}
			continue
		}
		testkit.Must(t, err)
		n := int(tree.Size())
		if n == 9 || tlog.StoredHashCount(int64(n+1)) <= int64(size-headerSize)/tlog.HashSize {
			t.Errorf("%d bytes: %d leaves", size, n)
		}
		testkit.Must(t, tree.Append(linesFrom(7+uint64(n), 20-n)))
		if root, err := tree.Root(20); err != nil || root != rootByDefinition(linesFrom(7, 20)) {
			t.Errorf("%d bytes: root %v, %v", size, root, err)
		}
		tree.Close()
	}
}

func TestTruncate(t *testing.T) {
	for keep := range uint64(20) {
		tree, path := create(t, 5)
		testkit.Must(t, tree.Append(linesFrom(5, 20)))
		testkit.Must(t, tree.Truncate(5+keep))
		testkit.Must(t, tree.Append(linesFrom(5+keep, 3)))
		if root, err := tree.Root(tree.Size()); err != nil || root != rootByDefinition(linesFrom(5, int(keep)+3)) {
			t.Errorf("%d leaves kept: root %v, %v", keep, root, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != offsetOf(tlog.StoredHashCount(int64(keep)+3)) {
			t.Errorf("%d leaves kept: %d bytes, %v", keep, info.Size(), err)
		}
	}
}

// TestFailedAppend checks that a failed write leaves the tree as it was.
func TestFailedAppend(t *testing.T) {
	tree, path := create(t, 1)
	testkit.Must(t, tree.Append(linesFrom(1, 5)))
	read, err := OpenToRead(path)
	testkit.Must(t, err)
	defer read.Close()
	if err := read.Append(linesFrom(6, 3)); err == nil || read.Size() != 5 {
		t.Errorf("%d leaves, %v", read.Size(), err)
	}
	if root, err := read.Root(5); err != nil || root != rootByDefinition(linesFrom(1, 5)) {
		t.Errorf("root %v, %v", root, err)
	}
}

// TestComparison compares lines with the file, also where lines or leaves are not there.
func TestComparison(t *testing.T) {
	tree, path := create(t, 5)
	testkit.Must(t, tree.Append(linesFrom(5, 20)))
	change := func(index int64, to byte) *Tree {
		content, err := os.ReadFile(path)
		testkit.Must(t, err)
		for i := range tlog.HashSize {
			content[offsetOf(index)+int64(i)] = to
		}
		changed := filepath.Join(t.TempDir(), "audit.tree")
		testkit.Must(t, os.WriteFile(changed, content, 0o600))
		read, err := OpenToRead(changed)
		testkit.Must(t, err)
		t.Cleanup(func() { read.Close() })
		return read
	}
	for _, c := range []struct {
		name string
		of   *Comparison

		// The lines from the line from to the line to are there.
		from, to uint64
		err      error
		at       uint64
	}{
		{"all lines", tree.Compare(), 5, 24, nil, 0},
		{"the first lines are not there", tree.Compare(), 9, 24, nil, 0},
		{"the last lines are not there", tree.Compare(), 5, 20, nil, 0},
		{"the last leaves are not there", tree.Compare(), 5, 30, nil, 0},
		{"no file", NewComparison(5), 5, 24, nil, 0},
		{"no file, and the first lines are not there", NewComparison(5), 9, 24, io.EOF, 5},
		{"another leaf", change(tlog.StoredHashIndex(0, 6), 1).Compare(), 5, 24, ErrLine, 11},
		{"another leaf, of a line that is not there", change(tlog.StoredHashIndex(0, 6), 1).Compare(), 13, 24, ErrInner, 12},
		{"another inner hash", change(tlog.StoredHashIndex(2, 1), 1).Compare(), 5, 24, ErrInner, 12},
		{"a leaf that a crash has left out", change(tlog.StoredHashIndex(0, 6), 0).Compare(), 5, 24, nil, 0},
		{"an inner hash that a crash has left out", change(tlog.StoredHashIndex(2, 1), 0).Compare(), 5, 24, nil, 0},
		{"a leaf that a crash has left out, of a line that is not there", change(tlog.StoredHashIndex(0, 6), 0).Compare(), 13, 24, io.EOF, 11},
	} {
		var err error
		for err == nil && c.of.Next() < c.from {
			err = c.of.Skip()
		}
		for err == nil && c.of.Next() <= c.to {
			err = c.of.Add(lineHash(c.of.Next()))
		}
		if err == nil {
			for c.of.Skip() == nil {
			}
			if n := int(c.of.Next() - c.of.First()); c.of.Root() != rootByDefinition(linesFrom(5, n)) {
				t.Errorf("%s: another root of %d leaves", c.name, n)
			}
		}
		at := c.of.Next()
		if err != nil && err != io.EOF {
			at--
		}
		if err != c.err || err != nil && at != c.at {
			t.Errorf("%s: %v at %d, want %v at %d", c.name, err, at, c.err, c.at)
		}
	}
	if NewComparison(1).Root() != rootByDefinition(nil) {
		t.Error("the root of no leaves")
	}
}

func TestNoTree(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for name, text := range map[string]string{"empty": "", "text": "robotsproxy-audit-tree-2 and more bytes than the header", "no line 0": magic + "\x00\x00\x00\x00\x00\x00\x00\x00"} {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := Open(path); !errors.Is(err, ErrForm) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, path := create(t, 1)
	if _, err := Create(path, 1); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second tree in a file: %v", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	tree, _ := create(b, 1)
	const batch = 100
	seq := uint64(1)
	for b.Loop() {
		testkit.Must(b, tree.Append(linesFrom(seq, batch)))
		seq += batch
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/line")
}
