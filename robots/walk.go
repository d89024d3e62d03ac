package robots

import "strings"

// A walker takes one path, in the one form, through the tries of a group.
//
// From a node with "*" on, it tries every octet of the path to come next. It
// does so once for each such node, from the first octet on where it got there:
// what follows later follows there as well. So the cost is that of the nodes,
// not of the ways in which stars may share out a path. Where that is still too
// much, a crowd goes on.
//
// The path is no field of a walker, so that it may stand on the caller's stack.
type walker struct {
	file   *File
	best   *rule
	steps  int    // nodes that may still be visited
	crowd  *crowd // nil before there was too much to do
	count  int    // of places in the current trie
	places [maxPlaces]place
}

// A place is a node with "*" and the first octet of the path that may come next.
type place struct{ node, from uint32 }

const (
	// maxPlaces is how many are kept on the stack: more than the patterns of
	// an ordinary file have for one path.
	maxPlaces = 8

	// maxSteps is how many nodes are visited, for each octet of the path,
	// before a crowd takes over. That costs about as much as so many steps.
	maxSteps = 16

	// scanned is how many octets of a path are searched in the time of a step.
	scanned = 64
)

// search takes the path down one trie.
func (w *walker) search(root uint32, path string) {
	from := int(w.file.nodes[root].size)
	if from > 1 && !strings.HasPrefix(path, w.file.label(root)) { // both begin with "/"
		return
	}
	if w.crowd == nil {
		w.count = 0
		w.descend(root, path, from)
		for i := 0; i < min(w.count, maxPlaces) && w.steps >= 0; i++ { // count grows
			w.tryFrom(w.places[i], path)
		}
		if w.count <= maxPlaces && w.steps >= 0 {
			return
		}
		w.crowd = newCrowd(path)
	}
	w.searchCrowded(root, path, from)
}

// descend goes down from a node whose label ends at from, and takes the rules
// that end on the way.
func (w *walker) descend(at uint32, path string, from int) {
	nodes, heads, text := w.file.nodes, w.file.heads, w.file.text
	for {
		w.steps--
		n := &nodes[at]
		if n.rules != nodes[at+1].rules {
			w.takeRules(at, from == len(path))
		}
		if n.count == 0 {
			return
		}
		below := heads[n.kids : n.kids+uint32(n.count)]
		if below[0] == '*' {
			w.reach(place{n.kids, uint32(from)})
		}
		if from >= len(path) {
			return
		}
		kid := strings.IndexByte(below, path[from])
		if kid < 0 || below[kid] == '*' { // in a path it is no wildcard
			return
		}
		at = n.kids + uint32(kid)
		n = &nodes[at]
		if n.size > 1 {
			rest := text[n.text+1 : n.text+uint32(n.size)]
			if !strings.HasPrefix(path[from+1:], rest) {
				return
			}
		}
		from += int(n.size)
	}
}

// takeRules takes those that end at a node; atEnd: the path does as well.
func (w *walker) takeRules(at uint32, atEnd bool) {
	f := w.file
	for i := f.nodes[at].rules; i < f.nodes[at+1].rules; i++ {
		if r := &f.rules[i]; (atEnd || !r.is(flagAnchored)) && r.outranks(w.best) {
			w.best = r
		}
	}
}

// reach notes a place, unless its node was reached before.
func (w *walker) reach(p place) {
	if w.crowd != nil {
		w.crowd.queue = append(w.crowd.queue, p)
		return
	}
	for _, q := range w.places[:min(w.count, maxPlaces)] {
		if q.node == p.node {
			return
		}
	}
	if w.count < maxPlaces {
		w.places[w.count] = p
	}
	w.count = min(w.count, maxPlaces) + 1
}

// tryFrom goes down from a node with "*" at every octet from the place's on.
func (w *walker) tryFrom(p place, path string) {
	f := w.file
	n := &f.nodes[p.node]
	if w.best != nil && n.most < mostAny && uint16(n.most) < w.best.size {
		return // nothing there outranks it
	}
	from := int(p.from)
	literal := f.label(p.node)[1:]
	w.steps -= (len(path) - from) / scanned
	if n.count == 0 { // nothing follows: it does not matter where
		if rest := path[from:]; strings.Contains(rest, literal) {
			w.takeRules(p.node, strings.HasSuffix(rest, literal))
		}
		return
	}
	if literal != "" {
		once := f.endsOnce(p.node)
		for {
			i := strings.Index(path[from:], literal)
			if i < 0 {
				return
			}
			w.descend(p.node, path, from+i+len(literal))
			if from += i + 1; once || w.steps < 0 {
				return
			}
		}
	}
	// The first time for a "*" that follows, the last for an anchor.
	w.descend(p.node, path, from)
	var heads octets
	heads.add(f.headsBelow(n))
	for from++; from < len(path) && w.steps >= 0; from++ {
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
	return n.count == 1 && f.heads[n.kids] == '*'
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
