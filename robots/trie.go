package robots

import (
	"cmp"
)

// A node is part of a path-compressed trie over the normalised patterns, without their anchors.
// A "*" may only begin a label, so that everything below such a node may follow at any later
// byte of the path.
//
// The children of a node are adjacent; one that begins with "*" comes first.
type node struct {
	// Offset in File.labels; its first byte is also in File.firstBytes.
	label uint32

	// Index in File.nodes.
	firstChild uint32

	// The first rule that ends here; the next node's firstRule is the end.
	firstRule uint32

	// Of the label, in bytes.
	size uint16

	// Under 256: no pattern has NUL, CR or LF.
	childCount uint8

	// If the label begins with "*": size of the longest rule at or below the node, up to longestUnknown.
	longest uint8
}

// tries are the tries of all rule sets of a File, one after another.
type tries struct {
	// What the labels of nodes are substrings of: the parsed text, or the normalised patterns.
	labels string

	// A last node ends the rules of the previous one.
	nodes []node

	// The first byte of each node's label.
	firstBytes string

	// In the order of their nodes.
	rules []rule
}

// label returns the bytes between a node's parent and the node.
func (t *tries) label(at uint32) string {
	n := &t.nodes[at]
	return t.labels[n.label : n.label+uint32(n.size)]
}

// childBytes returns the first bytes of the labels of a node's children.
func (t *tries) childBytes(n *node) string {
	return t.firstBytes[n.firstChild : n.firstChild+uint32(n.childCount)]
}

// firstMatchSuffices reports whether later matches of a node add nothing to its first: no rule
// that ends there is anchored, and only "*" follows.
func (t *tries) firstMatchSuffices(at uint32) bool {
	n := &t.nodes[at]
	for i := n.firstRule; i < t.nodes[at+1].firstRule; i++ {
		if t.rules[i].is(flagAnchored) {
			return false
		}
	}
	return n.childCount == 1 && t.firstBytes[n.firstChild] == '*'
}

const longestUnknown = 255

// A rule takes 12 bytes. A few rules end at one node: an anchored one and another, each at most three
// times: for both forms of a path, for the normalised one only, for the unified one only.
type rule struct {
	// Offset in File.source of the pattern as written.
	text uint32

	// The line, and the flags below.
	meta uint32

	// size of the pattern as written.
	written uint16

	// Bytes of the normalised pattern: the longer rule wins.
	size uint16
}

const (
	flagAllow uint32 = 1 << 31
	// The path must end where the pattern does.
	flagAnchored uint32 = 1 << 30
	// Only the normalised form of a path can match.
	flagNormalisedOnly uint32 = 1 << 29
	// Only the unified form of a path can match.
	flagUnifiedOnly uint32 = 1 << 28
	maskLine        uint32 = 1<<28 - 1
)

// covers reports whether r, which decides rather than s and whose pattern is the same, matches
// whatever s does.
func (r *rule) covers(s *rule) bool {
	return r.is(flagAnchored) == s.is(flagAnchored) && r.meta&(flagNormalisedOnly|flagUnifiedOnly)&^s.meta == 0
}

func (r *rule) is(flag uint32) bool { return r.meta&flag != 0 }

// compareRank is positive if r decides rather than s: the longer one, Allow among equals (RFC
// 9309 2.2.2), and of two equal rules the first in the file.
func (r *rule) compareRank(s *rule) int {
	switch {
	case r.size != s.size:
		return int(r.size) - int(s.size)
	case r.is(flagAllow) != s.is(flagAllow):
		return cmp.Compare(r.meta&flagAllow, s.meta&flagAllow)
	}
	return cmp.Compare(s.meta&maskLine, r.meta&maskLine)
}

// outranks reports whether r decides rather than best, which may be nil.
func (r *rule) outranks(best *rule) bool { return best == nil || r.compareRank(best) > 0 }
