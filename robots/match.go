package robots

import (
	"cmp"
	"strings"
	"unsafe"
)

// A node of a path-compressed trie over patterns in the one form, without
// their anchors. A "*" begins a label and is never inside one, so that below
// such a node stands all that may follow at any later place of a path.
//
// The children of a node stand together, one that begins with "*" first.
type node struct {
	text  uint32 // the label, in File.text; its first octet is also in File.heads
	kids  uint32 // the first child
	rules uint32 // the first rule that ends here; the next node's is the end
	size  uint16 // of the label
	count uint8  // of children: fewer than 256, no pattern holds NUL, CR or LF
	most  uint8  // with a "*": size of the longest rule from here on; mostAny where that is more
}

const mostAny = 255

// A rule in twelve octets. At most two end at one node: one with an anchor
// and one without.
type rule struct {
	text    uint32 // the pattern as written, in File.source
	meta    uint32 // the line, and the flags below
	written uint16 // size of the pattern as written
	size    uint16 // what rules are ranked by: octets of the one form
}

const (
	flagAllow    uint32 = 1 << 31
	flagAnchored uint32 = 1 << 30 // the path has to end where the rule does
	maskLine     uint32 = 1<<30 - 1
)

func (r *rule) is(flag uint32) bool { return r.meta&flag != 0 }

// compareRank is positive where r decides and not s (RFC 9309 2.2.2: the most
// octets; Allow among equals), and of two that say the same, where r comes
// first in the file.
func (r *rule) compareRank(s *rule) int {
	switch {
	case r.size != s.size:
		return int(r.size) - int(s.size)
	case r.is(flagAllow) != s.is(flagAllow):
		return cmp.Compare(r.meta&flagAllow, s.meta&flagAllow)
	}
	return cmp.Compare(s.meta&maskLine, r.meta&maskLine)
}

// outranks reports whether r would decide where best, if any, does now.
func (r *rule) outranks(best *rule) bool { return best == nil || r.compareRank(best) > 0 }

// label gives the text on the way from a node's parent to it.
func (f *File) label(at uint32) string {
	n := &f.nodes[at]
	return f.text[n.text : n.text+uint32(n.size)]
}

// matchNormalised is match for a path that is not in the one form. It counts the bytes
// of that form, so that a byte costs as much as its percent-encoding: the audit records the
// latter, and a verdict must come out the same from there.
func (g Group) matchNormalised(path string, spent Effort) (Verdict, Effort) {
	var space [1 << 10]byte
	normal := appendPath(space[:0], path)
	return g.matchBytes(normal, spent+Effort(len(normal)/normalised))
}

// matchAsWritten is match for a dialect that takes paths as they are: as a C
// string, that is, which NUL ends.
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

// matchBytes hands on a view, not a copy: match keeps nothing of its path.
func (g Group) matchBytes(path []byte, spent Effort) (Verdict, Effort) {
	return g.match(unsafe.String(unsafe.SliceData(path), len(path)), spent)
}

func (g Group) match(path string, spent Effort) (Verdict, Effort) {
	var w walker
	w.file = g.file
	w.begin(len(path), spent)
	if g.root != manySets {
		w.search(g.root, path)
	} else {
		for _, in := range g.sets() {
			if w.search(g.file.sets[in].root, path); w.left < 0 {
				break
			}
		}
	}
	spent = MaxEffort - Effort(w.left)
	switch {
	case w.left < 0:
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

// written gives a rule's pattern as it stands in the file.
func (f *File) written(r *rule) string { return f.source[r.text : r.text+uint32(r.written)] }
