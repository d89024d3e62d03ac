package robots

import "strings"

// A crowd is what a walker needs where stars are so many, or their rules so
// alike, that to try each byte for each of them takes too long. It goes
// through each node below a "*" once, for all bytes of the path together.
type crowd struct {
	suffixes *suffixes
	queue    []place // still to be tried from; no node is reached twice
	open     []below
}

// A below is a node below a "*", with the places in the path where all that
// stands between the two occurs.
type below struct {
	node  uint32
	depth int // octets between the "*" and the end of the node's label
	stretch
}

func newCrowd(path string) *crowd {
	own := strings.Clone(path) // or every path would have to stand on the heap
	return &crowd{suffixes: newSuffixes(own)}
}

// searchCrowded is search, whatever there is to do, below a root whose label
// ends at from.
func (w *walker) searchCrowded(root uint32, path string, from int) {
	w.crowd.queue = w.crowd.queue[:0]
	w.descend(root, path, from)
	for i := 0; i < len(w.crowd.queue) && w.left >= 0; i++ { // it grows
		w.tryAll(w.crowd.queue[i], path)
	}
}

// tryAll goes down from a node with "*" for all octets of the path that may come next.
func (w *walker) tryAll(p place, path string) {
	f, c := w.file, w.crowd
	n := &f.nodes[p.node]
	w.left--
	if w.best != nil && n.most < mostAny && uint16(n.most) < w.best.size {
		return // nothing there outranks it
	}
	c.open = c.open[:0]
	c.narrow(below{p.node, 0, c.suffixes.all()}, f.label(p.node)[1:])
	w.left -= c.suffixes.count()
	for len(c.open) > 0 && w.left >= 0 {
		b := c.open[len(c.open)-1]
		c.open = c.open[:len(c.open)-1]
		n := &f.nodes[b.node]
		star := n.count > 0 && f.heads[n.kids] == '*'
		if star || n.rules != f.nodes[b.node+1].rules { // else it does not matter where it begins
			first, atEnd := int(p.from), true
			if b.depth > 0 {
				if first = c.suffixes.next(b.stretch, b.depth, first); first < 0 {
					continue
				}
				atEnd = c.suffixes.endsPath(b.stretch, b.depth, int(p.from))
			}
			w.takeRules(b.node, atEnd)
			if star {
				w.reach(place{n.kids, uint32(first + b.depth)})
			}
		}
		w.goDown(n, b, path)
		w.left -= 2 + c.suffixes.count()
	}
}

// goDown opens the children of a node, whose label ends where b does.
func (w *walker) goDown(n *node, b below, path string) {
	f, c := w.file, w.crowd
	heads := f.headsBelow(n)
	if b.hi-b.lo == 1 { // one place: one octet to come
		if next := int(c.suffixes.starts[b.lo]) + b.depth; next < len(path) && path[next] != '*' {
			if kid := strings.IndexByte(heads, path[next]); kid >= 0 {
				at := n.kids + uint32(kid)
				c.narrow(below{at, b.depth, b.stretch}, f.label(at))
			}
		}
		return
	}
	for kid := range len(heads) {
		if heads[kid] != '*' {
			at := n.kids + uint32(kid)
			c.narrow(below{at, b.depth, b.stretch}, f.label(at))
		}
	}
}

// narrow opens b for the octets that its node's label adds, if they occur.
func (c *crowd) narrow(b below, label string) {
	b.stretch = c.suffixes.narrow(b.stretch, b.depth, label)
	b.depth += len(label)
	if b.lo < b.hi || b.depth == 0 {
		c.open = append(c.open, b)
	}
}
