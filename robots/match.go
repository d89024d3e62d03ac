package robots

import (
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
	text    uint32 // the pattern as written, in File.text
	meta    uint32 // the line, and the flags below
	written uint16 // size of the pattern as written
	size    uint16 // of the one form, without trailing "*": what rules are ranked by
}

const (
	flagAllow    uint32 = 1 << 31
	flagAnchored uint32 = 1 << 30 // the last octet of the one form is the anchor, not a plain "$"
	flagChanged  uint32 = 1 << 29 // the one form follows the pattern as written; else it is its beginning
	maskLine     uint32 = 1<<29 - 1
)

func (r *rule) is(flag uint32) bool { return r.meta&flag != 0 }

// outranks reports whether r would decide where best, if any, does now
// (RFC 9309 2.2.2: the most octets; Allow among equals).
func (r *rule) outranks(best *rule) bool {
	return best == nil || r.size > best.size ||
		r.size == best.size && r.is(flagAllow) && !best.is(flagAllow)
}

// label gives the text on the way from a node's parent to it.
func (f *File) label(at uint32) string {
	n := &f.nodes[at]
	return f.text[n.text : n.text+uint32(n.size)]
}

// matchNormalised is match for a path that is not in the one form.
func (g Group) matchNormalised(path string) Verdict {
	var space [1 << 10]byte
	normal := appendPath(space[:0], path)
	// A view, not a copy: match keeps nothing of its path.
	return g.match(unsafe.String(unsafe.SliceData(normal), len(normal)))
}

func (g Group) match(path string) Verdict {
	w := walker{file: g.file}
	for _, in := range g.sets() {
		w.search(g.file.sets[in].root, path)
	}
	if w.best == nil {
		return Verdict{Allow: true}
	}
	return Verdict{
		Allow: w.best.is(flagAllow),
		Rule:  g.file.text[w.best.text : w.best.text+uint32(w.best.written)],
		Line:  int(w.best.meta & maskLine),
	}
}

// A walker takes one path, in the one form, through the tries of a group.
//
// From a node with "*" on, it tries every octet of the path to come next. It
// does so once for each such node, from the first octet on where it got there:
// what follows later follows there as well. So the cost is that of the nodes,
// not of the ways in which stars may share out a path.
//
// The path is no field of a walker, so that it may stand on the caller's stack.
type walker struct {
	file   *File
	best   *rule
	count  int              // of places in the current trie
	places [maxPlaces]place // the first of them
	more   []place          // the others
	seen   []uint64         // a bit for each node of places, once there are others
}

// A place is a node with "*" and the first octet of the path that may come next.
type place struct{ node, from uint32 }

// maxPlaces is how many are kept without allocating: more than the patterns
// of an ordinary file have for one path.
const maxPlaces = 8

// search takes the path down one trie.
func (w *walker) search(root uint32, path string) {
	label := w.file.label(root)
	if !strings.HasPrefix(path, label) {
		return
	}
	w.count, w.more, w.seen = 0, nil, nil
	w.descend(root, path, len(label))
	for i := 0; i < w.count; i++ { // it grows
		if i < maxPlaces {
			w.tryFrom(w.places[i], path)
		} else {
			w.tryFrom(w.more[i-maxPlaces], path)
		}
	}
}

// descend goes down from a node whose label ends at from, and takes the rules
// that end on the way.
func (w *walker) descend(at uint32, path string, from int) {
	f := w.file
	for {
		n := &f.nodes[at]
		for i := n.rules; i < f.nodes[at+1].rules; i++ {
			if r := &f.rules[i]; r.outranks(w.best) && (from == len(path) || !r.is(flagAnchored)) {
				w.best = r
			}
		}
		if n.count == 0 {
			return
		}
		heads := f.headsBelow(n)
		if heads[0] == '*' {
			w.reach(place{n.kids, uint32(from)})
		}
		if from == len(path) {
			return
		}
		kid := strings.IndexByte(heads, path[from]) // never the "*": the path has none
		if kid < 0 {
			return
		}
		at = n.kids + uint32(kid)
		label := f.label(at)
		if !strings.HasPrefix(path[from:], label) {
			return
		}
		from += len(label)
	}
}

// reach notes a place, unless its node was reached before.
func (w *walker) reach(p place) {
	if w.seen == nil {
		for _, q := range w.places[:w.count] {
			if q.node == p.node {
				return
			}
		}
		if w.count < maxPlaces {
			w.places[w.count] = p
			w.count++
			return
		}
		w.seen = make([]uint64, len(w.file.nodes)/64+1)
		for _, q := range w.places {
			w.seen[q.node/64] |= 1 << (q.node % 64)
		}
	}
	if bit := uint64(1) << (p.node % 64); w.seen[p.node/64]&bit == 0 {
		w.seen[p.node/64] |= bit
		w.more = append(w.more, p)
		w.count++
	}
}

// tryFrom goes down from a node with "*" at every octet from the place's on.
func (w *walker) tryFrom(p place, path string) {
	f := w.file
	n := &f.nodes[p.node]
	if b := w.best; b != nil && n.most < mostAny &&
		(uint16(n.most) < b.size || uint16(n.most) == b.size && b.is(flagAllow)) {
		return // nothing there outranks it
	}
	from := int(p.from)
	if literal := f.label(p.node)[1:]; literal != "" {
		once := f.endsOnce(p.node)
		for {
			i := strings.Index(path[from:], literal)
			if i < 0 {
				return
			}
			w.descend(p.node, path, from+i+len(literal))
			if from += i + 1; once {
				return
			}
		}
	}
	// The first time for a "*" that follows, the last for an anchor.
	w.descend(p.node, path, from)
	var heads octets
	heads.add(f.headsBelow(n))
	for from++; from < len(path); from++ {
		if heads.has(path[from]) {
			w.descend(p.node, path, from)
		}
	}
	w.descend(p.node, path, len(path))
}

// endsOnce reports whether the first time that a node is matched says all: no
// anchor is there, and nothing but "*" follows.
func (f *File) endsOnce(at uint32) bool {
	n := &f.nodes[at]
	for i := n.rules; i < f.nodes[at+1].rules; i++ {
		if f.rules[i].is(flagAnchored) {
			return false
		}
	}
	return n.count == 0 || n.count == 1 && f.heads[n.kids] == '*'
}

// headsBelow gives the first octets of the labels of a node's children.
func (f *File) headsBelow(n *node) string {
	return f.heads[n.kids : n.kids+uint32(n.count)]
}

// octets is a set of them.
type octets [4]uint64

func (o *octets) add(s string) {
	for i := range len(s) {
		o[s[i]/64] |= 1 << (s[i] % 64)
	}
}

func (o *octets) has(c byte) bool { return o[c/64]&(1<<(c%64)) != 0 }
