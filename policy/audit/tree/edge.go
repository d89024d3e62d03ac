package tree

import (
	"golang.org/x/mod/sumdb/tlog"
)

// An edge has the roots of the largest complete subtrees of a tree from left to right, which are all that is needed to add
// leaves. The zero edge is that of a tree without leaves.
type edge struct {
	size  int64
	roots []tlog.Hash
}

// add adds a leaf. It appends the hashes that are stored for the leaf to b, in the order of [tlog.StoredHashIndex]: its own,
// and the roots of the subtrees that it completes.
func (e *edge) add(leaf tlog.Hash, b []byte) []byte {
	b = append(b, leaf[:]...)
	for at := e.size; at&1 == 1; at >>= 1 {
		last := len(e.roots) - 1
		leaf = tlog.NodeHash(e.roots[last], leaf)
		e.roots = e.roots[:last]
		b = append(b, leaf[:]...)
	}
	e.roots = append(e.roots, leaf)
	e.size++
	return b
}

// root returns the root of the tree.
func (e *edge) root() tlog.Hash {
	if e.size == 0 {
		// It needs no hashes.
		root, _ := tlog.TreeHash(0, nil)
		return root
	}
	root := e.roots[len(e.roots)-1]
	for i := len(e.roots) - 2; i >= 0; i-- {
		root = tlog.NodeHash(e.roots[i], root)
	}
	return root
}
