package robots

import (
	"cmp"
	"strings"
	"unsafe"
)

// A node is part of a path-compressed trie over the normalised patterns, without their anchors.
// A "*" may only begin a label, so that everything below such a node may follow at any later
// byte of the path.
//
// The children of a node are adjacent; one that begins with "*" comes first.
type node struct {
	label      uint32 // offset in File.labels; its first byte is also in File.firstBytes
	firstChild uint32 // index in File.nodes
	firstRule  uint32 // the first rule that ends here; the next node's firstRule is the end
	size       uint16 // of the label, in bytes
	childCount uint8  // under 256: no pattern has NUL, CR or LF
	longest    uint8  // if the label begins with "*": size of the longest rule at or below the node, up to longestUnknown
}

const longestUnknown = 255

// A rule takes 12 bytes. At most two rules end at one node: an anchored one and another.
type rule struct {
	text    uint32 // offset in File.source of the pattern as written
	meta    uint32 // the line, and the flags below
	written uint16 // size of the pattern as written
	size    uint16 // bytes of the normalised pattern: the longer rule wins
}

const (
	flagAllow    uint32 = 1 << 31
	flagAnchored uint32 = 1 << 30 // the pattern ends with "$"
	maskLine     uint32 = 1<<30 - 1
)

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

// label returns the bytes between a node's parent and the node.
func (f *File) label(at uint32) string {
	n := &f.nodes[at]
	return f.labels[n.label : n.label+uint32(n.size)]
}

// matchNormalised normalises the path and matches it. The bytes of the normalised form count as
// steps, so that a byte costs as much as its percent-encoding: the audit records the latter, and
// the verdict on it must be the same.
func (g Group) matchNormalised(path string, spent Effort) (Verdict, Effort) {
	var space [1 << 10]byte
	normal := appendPath(space[:0], path)
	return g.matchBytes(normal, spent+Effort(len(normal)/normalisePerStep))
}

// matchAsWritten matches a path under a dialect that does not normalise paths. Such a dialect
// reads a path as a C string, which ends at NUL.
func (g Group) matchAsWritten(path string, spent Effort) (Verdict, Effort) {
	if i := strings.IndexByte(path, 0); i >= 0 {
		path = path[:i]
	}
	if path != "" && path[0] == '/' {
		return g.match(path, spent)
	}
	var space [1 << 10]byte
	return g.matchBytes(append(append(space[:0], '/'), path...), spent)
}

// matchBytes passes path without a copy: match does not keep it.
func (g Group) matchBytes(path []byte, spent Effort) (Verdict, Effort) {
	return g.match(unsafe.String(unsafe.SliceData(path), len(path)), spent)
}

func (g Group) match(path string, spent Effort) (Verdict, Effort) {
	var w matcher
	w.file = g.file
	w.setBudget(len(path), spent)
	if g.root != severalSets {
		w.matchTrie(g.root, path)
	} else {
		for _, in := range g.setRefs() {
			if w.matchTrie(g.file.ruleSets[in].root, path); w.stepsLeft < 0 {
				break
			}
		}
	}
	spent = MaxEffort - Effort(w.stepsLeft)
	switch {
	case w.stepsLeft < 0:
		return Verdict{GaveUp: true}, spent
	case w.best == nil:
		return Verdict{Allow: true}, spent
	}
	return Verdict{
		Allow: w.best.is(flagAllow) || w.best.written == 0,
		Rule:  g.file.written(w.best),
		Line:  int(w.best.meta & maskLine),
	}, spent
}

// written returns the pattern of a rule as the file has it.
func (f *File) written(r *rule) string { return f.source[r.text : r.text+uint32(r.written)] }
