package robots

import "strings"

// An Effort is how many steps matching has taken. A step is the visit of a node,
// about 8 ns, or other work that takes as long.
type Effort int

// MaxEffort is how many steps are spent on one request, in all forms of its path
// together: 1 to 2 ms. Ordinary files and paths take tens or hundreds. Only a file
// with thousands of rules with "*" whose pieces occur in a long path takes more.
const MaxEffort Effort = 160_000

// A walker takes one path, in the one form, through the tries of a group.
//
// From a node with "*" on, it tries every byte of the path to come next. It
// does so once for each such node, from the first byte on where it got there:
// what follows later follows there as well. So the cost is that of the nodes,
// not of the ways in which stars may share out a path. Where that is still too
// much, a crowd goes on. Where a crowd costs too much as well, the walker gives
// up: left is negative then.
//
// The path is no field of a walker, so that it may stand on the caller's stack.
type walker struct {
	file   *File
	best   *rule
	left   int      // steps that may still be taken
	floor  int      // the value of left below which a crowd takes over; 0: no crowd does any more
	crowd  *crowd   // nil before there was too much to do
	count  int      // of places in the current trie
	more   *[]place // those beyond maxPlaces; nil: there are none
	places [maxPlaces]place
}

// A place is a node with "*" and the first byte of the path that may come next.
type place struct{ node, from uint32 }

const (
	// maxPlaces is how many are kept on the stack: more than the patterns of
	// an ordinary file have for one path.
	maxPlaces = 8

	// maxSteps is how many steps are taken for each byte of the path before a crowd
	// takes over: about as many as a crowd needs to begin.
	maxSteps = 4

	// shortLiteral is how many bytes a literal may have to be searched quickly.
	shortLiteral = 16

	// scanned and scannedLong are how many bytes of a path are searched or compared
	// in the time of a step, for a short literal and for a long one.
	scanned     = 32
	scannedLong = 8
)

// begin sets left and floor for a path of n bytes.
func (w *walker) begin(n int, spent Effort) {
	w.left = int(MaxEffort - spent)
	w.floor = w.left - maxSteps*(n+8)
	if w.floor <= n*indexSteps {
		w.floor = 0 // a crowd would not get far
	}
}

// search takes the path down one trie.
func (w *walker) search(root uint32, path string) {
	w.left--
	from := int(w.file.nodes[root].size)
	if from > 1 && !strings.HasPrefix(path, w.file.label(root)) { // both begin with "/"
		return
	}
	if w.crowd == nil {
		w.count = 0
		w.descend(root, path, from)
		for i := 0; i < w.count && w.left >= w.floor; i++ { // count grows
			w.tryFrom(w.places[i], path)
		}
		if w.more != nil {
			w.tryMore(path)
		}
		if w.left >= w.floor || w.floor == 0 {
			return
		}
		w.floor = 0
		w.left -= len(path) * indexSteps
		w.crowd = newCrowd(path)
	}
	w.searchCrowded(root, path, from)
}

// descend goes down from a node whose label ends at from, and takes the rules
// that end on the way.
func (w *walker) descend(at uint32, path string, from int) {
	nodes, heads, text := w.file.nodes, w.file.heads, w.file.text
	for {
		w.left--
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
			if n.size > scanned {
				w.left -= int(n.size / scanned)
			}
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
	w.reachMore(p)
}

// reachMore is reach after maxPlaces are taken.
func (w *walker) reachMore(p place) {
	if w.more == nil {
		w.more = new([]place)
	}
	w.left -= len(*w.more) / maxPlaces
	for _, q := range *w.more {
		if q.node == p.node {
			return
		}
	}
	*w.more = append(*w.more, p)
}

// tryMore tries from the places beyond maxPlaces.
func (w *walker) tryMore(path string) {
	for i := 0; i < len(*w.more) && w.left >= w.floor; i++ { // it grows
		w.tryFrom((*w.more)[i], path)
	}
	w.more = nil
}

// tryFrom goes down from a node with "*" at every byte from the place's on.
func (w *walker) tryFrom(p place, path string) {
	f := w.file
	n := &f.nodes[p.node]
	w.left--
	if w.best != nil && n.most < mostAny && uint16(n.most) < w.best.size {
		return // nothing there outranks it
	}
	from := int(p.from)
	literal := f.label(p.node)[1:]
	w.left -= searchSteps(uint(len(path)-from), uint(len(literal)))
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
			if from += i + 1; once || w.left < w.floor {
				return
			}
		}
	}
	// The first time for a "*" that follows, the last for an anchor.
	w.descend(p.node, path, from)
	var heads octets
	heads.add(f.headsBelow(n))
	for from++; from < len(path) && w.left >= w.floor; from++ {
		if heads.has(path[from]) {
			w.descend(p.node, path, from)
		}
	}
	w.descend(p.node, path, len(path))
}

// searchSteps gives the steps to search n bytes of a path for a literal of so many
// bytes or, if that is zero, for one of several bytes.
func searchSteps(n, literal uint) int {
	if literal == 0 || literal > shortLiteral {
		return int((n + literal) / scannedLong)
	}
	return int(n / scanned)
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
