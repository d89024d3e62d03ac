package bundle

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/tree"
)

// Proofs are the content of proofs.json.
type Proofs struct {
	// Trees are the trees that have lines of the bundle. There are several if the audit began a new one.
	Trees []TreeProof `json:"trees"`
}

// A TreeProof joins the lines of one tree to its checkpoints (RFC 6962 2.1).
type TreeProof struct {
	// First is the number of the line that is the first leaf.
	First uint64 `json:"first"`

	// Checkpoints are the numbers of the last lines of the checkpoints, in their order. They name the files.
	Checkpoints []uint64 `json:"checkpoints"`

	// Nodes are the hashes of the complete subtrees without a line of the bundle, by their levels and indexes.
	Nodes map[Subtree]Hash `json:"nodes"`
}

// A Subtree is a complete subtree: it has 2^Level leaves, and Index such subtrees precede it.
type Subtree struct {
	Level int
	Index int64
}

// MarshalText returns LEVEL:INDEX.
func (s Subtree) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%d", s.Level, s.Index), nil
}

var errSubtree = errors.New("not LEVEL:INDEX of a subtree")

// UnmarshalText reads LEVEL:INDEX.
func (s *Subtree) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d:%d", &s.Level, &s.Index)
	if again, _ := s.MarshalText(); err != nil || !bytes.Equal(again, text) || s.Level < 0 || s.Level > 62 || s.Index < 0 {
		return errSubtree
	}
	return nil
}

// left and right are the subtrees below.
func (s Subtree) left() Subtree  { return Subtree{s.Level - 1, 2 * s.Index} }
func (s Subtree) right() Subtree { return Subtree{s.Level - 1, 2*s.Index + 1} }

// subtrees returns the complete subtrees that a tree of a size consists of, from the left to the right.
func subtrees(size int64) (all []Subtree) {
	for at := int64(0); at < size; {
		level := bits.Len64(uint64(size-at)) - 1
		all = append(all, Subtree{level, at >> level})
		at += 1 << level
	}
	return all
}

// A Hash is a hash of a tree, in base64.
type Hash tlog.Hash

// MarshalText returns the hash in base64.
func (h Hash) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, h[:]), nil
}

var errHash = errors.New("not a hash in base64")

// UnmarshalText reads a hash.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return errHash
	}
	copy(h[:], b)
	return nil
}

// A leaf is a line of a bundle in a tree.
type leaf struct {
	index int64
	hash  tlog.Hash
}

// leaves are lines of a bundle in one tree, by their indexes.
type leaves []leaf

// find returns the position of the first leaf that is not before an index.
func (l leaves) find(index int64) int {
	i, _ := slices.BinarySearchFunc(l, index, func(l leaf, index int64) int { return cmp.Compare(l.index, index) })
	return i
}

// anyIn reports whether a subtree has a leaf.
func (l leaves) anyIn(s Subtree) bool {
	first := s.Index << s.Level
	i := l.find(first)
	return i < len(l) && l[i].index-first < 1<<s.Level
}

// nodesFor returns the hashes that are needed to compute the roots of checkpoints from leaves.
func nodesFor(t *tree.Tree, l leaves, notes []Note) (map[Subtree]Hash, error) {
	needed := map[Subtree]bool{}
	var add func(s Subtree)
	add = func(s Subtree) {
		switch {
		case !l.anyIn(s):
			needed[s] = true
		case s.Level > 0:
			add(s.left())
			add(s.right())
		}
	}
	for _, n := range notes {
		for _, s := range subtrees(n.Size) {
			add(s)
		}
	}
	all := slices.Collect(maps.Keys(needed))
	indexes := make([]int64, len(all))
	for i, s := range all {
		indexes[i] = tlog.StoredHashIndex(s.Level, s.Index)
	}
	hashes, err := t.ReadHashes(indexes)
	if err != nil {
		return nil, err
	}
	nodes := make(map[Subtree]Hash, len(all))
	for i, s := range all {
		nodes[s] = Hash(hashes[i])
	}
	return nodes, nil
}

// A rootFinder computes roots from leaves and the hashes of other subtrees.
type rootFinder struct {
	leaves leaves
	nodes  map[Subtree]Hash

	// known are the hashes that were computed.
	known map[Subtree]tlog.Hash
}

// root returns the root of the tree of a size. Every leaf below it is a part of the root.
func (f *rootFinder) root(size int64) (root tlog.Hash, err error) {
	all := subtrees(size)
	for i, s := range slices.Backward(all) {
		h, err := f.hash(s)
		if err != nil {
			return root, err
		}
		if i == len(all)-1 {
			root = h
		} else {
			root = tlog.NodeHash(h, root)
		}
	}
	return root, nil
}

// hash returns the hash of a subtree.
func (f *rootFinder) hash(s Subtree) (h tlog.Hash, err error) {
	if h, ok := f.known[s]; ok {
		return h, nil
	}
	switch {
	case !f.leaves.anyIn(s):
		node, ok := f.nodes[s]
		if !ok {
			return h, fmt.Errorf("proofs.json: node %d:%d is missing", s.Level, s.Index)
		}
		return tlog.Hash(node), nil
	case s.Level == 0:
		return f.leaves[f.leaves.find(s.Index)].hash, nil
	}
	left, err := f.hash(s.left())
	if err != nil {
		return h, err
	}
	right, err := f.hash(s.right())
	if err != nil {
		return h, err
	}
	h = tlog.NodeHash(left, right)
	f.known[s] = h
	return h, nil
}
