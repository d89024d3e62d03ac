package robots

import "strings"

// An indexedSearch matches a path against a trie whose wildcards are too many, or whose rules
// are too much alike, to try every byte of the path for each of them. It visits each node below
// a "*" once, for all bytes of the path together.
type indexedSearch struct {
	index *suffixIndex
	queue []wildcard     // not tried yet; no node is added twice
	stack []partialMatch // not visited yet
}

// A partialMatch is a node below a "*", and all suffixes of the path that begin with the bytes
// between the two.
type partialMatch struct {
	node  uint32
	depth int // bytes between the "*" and the end of the node's label
	suffixRange
}

func newIndexedSearch(path string) *indexedSearch {
	own := strings.Clone(path) // or every path would have to stand on the heap
	return &indexedSearch{index: newSuffixIndex(own)}
}

// matchTrieIndexed is matchTrie by an indexedSearch, below a root whose label ends at from.
func (w *matcher) matchTrieIndexed(root uint32, path string, from int) {
	w.indexed.queue = w.indexed.queue[:0]
	w.descend(root, path, from)
	for i := 0; i < len(w.indexed.queue) && w.stepsLeft >= 0; i++ { // it grows
		w.tryIndexed(w.indexed.queue[i], path)
	}
}

// tryIndexed goes down from a wildcard for all following bytes of the path at once.
func (w *matcher) tryIndexed(p wildcard, path string) {
	f, c := w.file, w.indexed
	n := &f.nodes[p.node]
	w.stepsLeft--
	if w.best != nil && n.longest < longestUnknown && uint16(n.longest) < w.best.size {
		return // nothing there outranks it
	}
	c.stack = c.stack[:0]
	c.push(partialMatch{p.node, 0, c.index.all()}, f.label(p.node)[1:])
	w.stepsLeft -= c.index.takeSteps()
	for len(c.stack) > 0 && w.stepsLeft >= 0 {
		b := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		n := &f.nodes[b.node]
		star := n.childCount > 0 && f.firstBytes[n.firstChild] == '*'
		if star || n.firstRule != f.nodes[b.node+1].firstRule { // else it does not matter where it begins
			first, atEnd := int(p.from), true
			if b.depth > 0 {
				if first = c.index.next(b.suffixRange, b.depth, first); first < 0 {
					continue
				}
				atEnd = c.index.endsPath(b.suffixRange, b.depth, int(p.from))
			}
			w.considerRules(b.node, atEnd)
			if star {
				w.addPending(wildcard{n.firstChild, uint32(first + b.depth)})
			}
		}
		w.pushChildren(n, b, path)
		w.stepsLeft -= 2 + c.index.takeSteps()
	}
}

// pushChildren pushes the children of a node, whose label ends where m does.
func (w *matcher) pushChildren(n *node, b partialMatch, path string) {
	f, c := w.file, w.indexed
	heads := f.childBytes(n)
	if b.hi-b.lo == 1 { // one place: one octet to come
		if next := int(c.index.starts[b.lo]) + b.depth; next < len(path) && path[next] != '*' {
			if kid := strings.IndexByte(heads, path[next]); kid >= 0 {
				at := n.firstChild + uint32(kid)
				c.push(partialMatch{at, b.depth, b.suffixRange}, f.label(at))
			}
		}
		return
	}
	for kid := range len(heads) {
		if heads[kid] != '*' {
			at := n.firstChild + uint32(kid)
			c.push(partialMatch{at, b.depth, b.suffixRange}, f.label(at))
		}
	}
}

// push pushes m, extended by the label of its node, unless the path does not have these bytes.
func (c *indexedSearch) push(b partialMatch, label string) {
	b.suffixRange = c.index.extend(b.suffixRange, b.depth, label)
	b.depth += len(label)
	if b.lo < b.hi || b.depth == 0 {
		c.stack = append(c.stack, b)
	}
}
