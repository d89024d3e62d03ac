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
	// label is an offset in tries.labels. The first byte of the label is also in tries.firstBytes.
	label uint32

	// firstChild is an index in tries.nodes.
	firstChild uint32

	// firstRule is the index of the first rule that ends here. The next node's firstRule is the end.
	firstRule uint32

	// size is the length of the label, in bytes.
	size uint16

	// childCount is under 256, because no pattern has NUL, CR or LF.
	childCount uint8

	// longest is the size of the longest rule at or below a node whose label begins with "*", or
	// longestUnknown if that is longer.
	longest uint8
}

// tries are the tries of all rule sets of a File, one after another.
type tries struct {
	// labels is what the labels of nodes are substrings of: the parsed text, or the normalised
	// patterns.
	labels string

	// nodes have one more than the tries, which ends the rules of the previous one.
	nodes []node

	// firstBytes has the first byte of each node's label.
	firstBytes string

	// rules are in the order of their nodes.
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

// longestUnknown is node.longest of a node with a longer rule.
const longestUnknown = 255

// A rule takes 12 bytes. A few rules end at one node: an anchored one and another, each at most three
// times: for both forms of a path, for the normalised one only, for the unified one only.
type rule struct {
	// text is the offset of the pattern as written in File.source.
	text uint32

	// meta is the line and the flags below.
	meta uint32

	// written is the length of the pattern as written, in bytes.
	written uint16

	// size is the length of the normalised pattern, in bytes. The longer rule wins.
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
