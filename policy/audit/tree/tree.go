// Package tree keeps a Merkle tree over the lines of an audit trail (RFC 6962 2.1), so that one hash, the root, stands
// for all of them, and a short proof shows that a line is among them ([tlog.ProveRecord]) or that an earlier root stood for
// the same lines ([tlog.ProveTree]).
//
// The data of a leaf are the 32 bytes of a line's hash, and its hash is [LeafHash]. The leaves are lines with successive
// numbers. The hashes are kept in a file in the order of [tlog.StoredHashIndex], 64 bytes a line, after a header:
//
//	offset 0    "robotsproxy-audit-tree-1"
//	offset 24   the number of the first line, eight bytes, the highest first
//	offset 32   the hashes, 32 bytes each
//
// The file only grows. It can be made again as long as all lines are there; if lines have been removed, only this file proves
// that they were there. A file that ends within a leaf, as after a crash, is read without that leaf.
//
// How it fails: every method returns the errors of the file. After a failed Append or Truncate the tree is as before, and the
// method can be called again.
package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"sort"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
)

const (
	magic      = "robotsproxy-audit-tree-1"
	headerSize = len(magic) + 8
)

// ErrForm is the error for a file that is no tree, or of a later version.
var ErrForm = errors.New("not the tree of an audit")

var errIrregular = errors.New("not a regular file")

// Path returns the path of the tree of the trail that is written to path: audit.tree for audit.jsonl.
func Path(path string) string { return strings.TrimSuffix(path, ".jsonl") + ".tree" }

// LeafHash returns the hash of the leaf for a line with the hash h.
func LeafHash(h trail.Hash) tlog.Hash { return tlog.RecordHash(h[:]) }

// A Tree is an open file with a tree. It is for one goroutine, and one process may write the file.
type Tree struct {
	file  *os.File
	first uint64
	edge  edge
}

// Create makes a tree without leaves in a new file at path. first is the number of the line that will be its first leaf, from 1.
func Create(path string, first uint64) (*Tree, error) {
	f, err := osfile.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(binary.BigEndian.AppendUint64([]byte(magic), first)); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return &Tree{file: f, first: first}, nil
}

// Open opens the tree at path, to read and to write it. The error wraps fs.ErrNotExist if there is no file, and ErrForm if
// it is no tree.
func Open(path string) (*Tree, error) { return open(path, os.O_RDWR) }

// OpenToRead opens the tree at path as it is now, to read it. Another process may write it meanwhile. The errors are those
// of Open.
func OpenToRead(path string) (*Tree, error) { return open(path, os.O_RDONLY) }

func open(path string, flag int) (*Tree, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errIrregular)
	}
	f, err := osfile.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	t := &Tree{file: f}
	if err := t.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return t, nil
}

// load reads the header and the edge.
func (t *Tree) load() error {
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	var header [headerSize]byte
	_, err = t.file.ReadAt(header[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	t.first = binary.BigEndian.Uint64(header[len(magic):])
	if string(header[:len(magic)]) != magic || t.first == 0 {
		return ErrForm
	}
	t.edge, err = t.edgeOf(leavesIn((info.Size() - int64(headerSize)) / tlog.HashSize))
	return err
}

// leavesIn returns how many leaves have all of their hashes among the first stored hashes of a tree.
func leavesIn(stored int64) int64 {
	return int64(sort.Search(int(stored), func(n int) bool { return tlog.StoredHashCount(int64(n)+1) > stored }))
}

// edgeOf reads the edge of the tree of the first size leaves.
func (t *Tree) edgeOf(size int64) (e edge, err error) {
	var indexes []int64
	for rest := size; rest > 0; {
		level := bits.Len64(uint64(rest)) - 1
		indexes = append(indexes, tlog.StoredHashIndex(level, (size-rest)>>level))
		rest -= 1 << level
	}
	e.size = size
	e.roots, err = t.ReadHashes(indexes)
	return e, err
}

// First returns the number of the line that is the first leaf.
func (t *Tree) First() uint64 { return t.first }

// Next returns the number of the line that follows the last leaf.
func (t *Tree) Next() uint64 { return t.first + uint64(t.edge.size) }

// NextNonzero returns the number of the line that follows the last leaf that a crash has not left as zeroes.
func (t *Tree) NextNonzero() uint64 {
	return t.first + uint64(sort.Search(int(t.edge.size), func(n int) bool {
		leaf, err := t.Leaf(t.first + uint64(n))
		return err == nil && leaf == tlog.Hash{}
	}))
}

// Size returns the number of leaves.
func (t *Tree) Size() int64 { return t.edge.size }

// Append appends the leaves for lines, which have the numbers from t.Next() on, given their hashes.
func (t *Tree) Append(lines []trail.Hash) error {
	after := edge{t.edge.size, append([]tlog.Hash(nil), t.edge.roots...)}
	b := make([]byte, 0, 2*tlog.HashSize*(len(lines)+1))
	for _, h := range lines {
		b = after.add(LeafHash(h), b)
	}
	if _, err := t.file.WriteAt(b, offsetOf(tlog.StoredHashCount(t.edge.size))); err != nil {
		return err
	}
	t.edge = after
	return nil
}

// offsetOf returns where in the file the stored hash with an index is.
func offsetOf(index int64) int64 { return int64(headerSize) + index*tlog.HashSize }

// Truncate removes the leaves from the line next on, which must not be before t.First().
func (t *Tree) Truncate(next uint64) error {
	size := int64(next - t.first)
	after, err := t.edgeOf(size)
	if err != nil {
		return err
	}
	if err := t.file.Truncate(offsetOf(tlog.StoredHashCount(size))); err != nil {
		return err
	}
	t.edge = after
	return nil
}

// Leaf returns the hash of the leaf for the line seq, which must be in the tree.
func (t *Tree) Leaf(seq uint64) (tlog.Hash, error) {
	h, err := t.ReadHashes([]int64{tlog.StoredHashIndex(0, int64(seq-t.first))})
	if err != nil {
		return tlog.Hash{}, err
	}
	return h[0], nil
}

// CurrentRoot returns the root of the tree.
func (t *Tree) CurrentRoot() tlog.Hash { return t.edge.root() }

// Root returns the root of the tree of the first size leaves, of which there must be as many.
func (t *Tree) Root(size int64) (tlog.Hash, error) { return tlog.TreeHash(size, t) }

// ReadHashes implements [tlog.HashReader].
func (t *Tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if _, err := t.file.ReadAt(hashes[i][:], offsetOf(index)); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

// Sync returns when the disk has the tree.
func (t *Tree) Sync() error { return t.file.Sync() }

// Close closes the file.
func (t *Tree) Close() error { return t.file.Close() }
