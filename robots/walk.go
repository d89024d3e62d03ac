package robots

import "strings"

// An Effort is a number of steps of matching. A step is the visit of a node, about 8 ns, or
// other work that takes as long.
type Effort int

// MaxEffort is the maximum number of steps for one request, for all forms of its path together:
// 1 to 2 ms. Ordinary files and paths take tens or hundreds. Only a file with thousands of rules
// with "*" whose pieces occur in a long path takes more.
const MaxEffort Effort = 160_000

// A matcher takes one normalised path through the tries of a group.
//
// From a node that begins with "*" it tries every following byte of the path. It does so once
// for each such node, from the first byte at which it reached the node: whatever matches later
// bytes is found from there too. So the cost depends on the number of nodes, not on the number
// of ways in which wildcards can divide a path. If that is still too much, an indexedSearch
// takes over. If the search costs too much as well, the matcher gives up, and stepsLeft is
// negative.
//
// The path is a parameter and no field, so that it may stay on the caller's stack.
type matcher struct {
	file         *File
	best         *rule
	stepsLeft    int            // steps that may still be taken
	indexBelow   int            // the value of stepsLeft below which an indexedSearch takes over; 0: none does any more
	indexed      *indexedSearch // nil: not needed so far
	pendingCount int            // of pending, in the current trie
	morePending  *[]wildcard    // the wildcards beyond maxPending; nil: none
	pending      [maxPending]wildcard
}

// A wildcard is a node that begins with "*", and the first byte of the path that may follow.
type wildcard struct{ node, from uint32 }

const (
	// maxPending is how many wildcards a matcher keeps on the stack. Ordinary files reach fewer for
	// one path.
	maxPending = 8

	// maxStepsPerByte is how many steps a matcher takes for each byte of the path before an
	// indexedSearch takes over: about as many as the search needs to begin.
	maxStepsPerByte = 4

	// shortLiteral is the maximum length, in bytes, of a literal that strings.Index finds quickly.
	shortLiteral = 16

	// scanPerStep and scanLongPerStep are how many bytes of a path are searched or compared in the
	// time of a step, for a short literal and for a long one.
	scanPerStep     = 32
	scanLongPerStep = 8
)

// setBudget sets stepsLeft and indexBelow for a path of n bytes.
func (w *matcher) setBudget(n int, spent Effort) {
	w.stepsLeft = int(MaxEffort - spent)
	w.indexBelow = w.stepsLeft - maxStepsPerByte*(n+8)
	if w.indexBelow <= n*indexSteps {
		w.indexBelow = 0 // a crowd would not get far
	}
}

// matchTrie matches the path against one trie.
func (w *matcher) matchTrie(root uint32, path string) {
	w.stepsLeft--
	from := int(w.file.nodes[root].size)
	if from > 1 && !strings.HasPrefix(path, w.file.label(root)) { // both begin with "/"
		return
	}
	if w.indexed == nil {
		w.pendingCount = 0
		w.descend(root, path, from)
		for i := 0; i < w.pendingCount && w.stepsLeft >= w.indexBelow; i++ { // count grows
			w.tryPending(w.pending[i], path)
		}
		if w.morePending != nil {
			w.tryMorePending(path)
		}
		if w.stepsLeft >= w.indexBelow || w.indexBelow == 0 {
			return
		}
		w.indexBelow = 0
		w.stepsLeft -= len(path) * indexSteps
		w.indexed = newIndexedSearch(path)
	}
	w.matchTrieIndexed(root, path, from)
}

// descend goes down from a node whose label ends at from, and considers the rules of the nodes
// it reaches.
func (w *matcher) descend(at uint32, path string, from int) {
	nodes, heads, text := w.file.nodes, w.file.firstBytes, w.file.labels
	for {
		w.stepsLeft--
		n := &nodes[at]
		if n.firstRule != nodes[at+1].firstRule {
			w.considerRules(at, from == len(path))
		}
		if n.childCount == 0 {
			return
		}
		below := heads[n.firstChild : n.firstChild+uint32(n.childCount)]
		if below[0] == '*' {
			w.addPending(wildcard{n.firstChild, uint32(from)})
		}
		if from >= len(path) {
			return
		}
		kid := strings.IndexByte(below, path[from])
		if kid < 0 || below[kid] == '*' { // in a path it is no wildcard
			return
		}
		at = n.firstChild + uint32(kid)
		n = &nodes[at]
		if n.size > 1 {
			rest := text[n.label+1 : n.label+uint32(n.size)]
			if n.size > scanPerStep {
				w.stepsLeft -= int(n.size / scanPerStep)
			}
			if !strings.HasPrefix(path[from+1:], rest) {
				return
			}
		}
		from += int(n.size)
	}
}

// considerRules makes the rules that end at a node best if they outrank it. With atEnd the path
// ends there too.
func (w *matcher) considerRules(at uint32, atEnd bool) {
	f := w.file
	for i := f.nodes[at].firstRule; i < f.nodes[at+1].firstRule; i++ {
		if r := &f.rules[i]; (atEnd || !r.is(flagAnchored)) && r.outranks(w.best) {
			w.best = r
		}
	}
}

// addPending adds a wildcard unless its node was reached before.
func (w *matcher) addPending(p wildcard) {
	if w.indexed != nil {
		w.indexed.queue = append(w.indexed.queue, p)
		return
	}
	for _, q := range w.pending[:w.pendingCount] {
		if q.node == p.node {
			return
		}
	}
	if w.pendingCount < maxPending {
		w.pending[w.pendingCount] = p
		w.pendingCount++
		return
	}
	w.addMorePending(p)
}

// addMorePending is addPending once pending is full.
func (w *matcher) addMorePending(p wildcard) {
	if w.morePending == nil {
		w.morePending = new([]wildcard)
	}
	w.stepsLeft -= len(*w.morePending) / maxPending
	for _, q := range *w.morePending {
		if q.node == p.node {
			return
		}
	}
	*w.morePending = append(*w.morePending, p)
}

// tryMorePending tries the wildcards beyond maxPending.
func (w *matcher) tryMorePending(path string) {
	for i := 0; i < len(*w.morePending) && w.stepsLeft >= w.indexBelow; i++ { // it grows
		w.tryPending((*w.morePending)[i], path)
	}
	w.morePending = nil
}

// tryPending goes down from a wildcard at every following byte of the path.
func (w *matcher) tryPending(p wildcard, path string) {
	f := w.file
	n := &f.nodes[p.node]
	w.stepsLeft--
	if w.best != nil && n.longest < longestUnknown && uint16(n.longest) < w.best.size {
		return // nothing there outranks it
	}
	from := int(p.from)
	literal := f.label(p.node)[1:]
	w.stepsLeft -= searchSteps(uint(len(path)-from), uint(len(literal)))
	if n.childCount == 0 { // nothing follows: it does not matter where
		if rest := path[from:]; strings.Contains(rest, literal) {
			w.considerRules(p.node, strings.HasSuffix(rest, literal))
		}
		return
	}
	if literal != "" {
		once := f.firstMatchSuffices(p.node)
		for {
			i := strings.Index(path[from:], literal)
			if i < 0 {
				return
			}
			w.descend(p.node, path, from+i+len(literal))
			if from += i + 1; once || w.stepsLeft < w.indexBelow {
				return
			}
		}
	}
	// The first time for a "*" that follows, the last for an anchor.
	w.descend(p.node, path, from)
	var heads byteSet
	heads.add(f.childBytes(n))
	for from++; from < len(path) && w.stepsLeft >= w.indexBelow; from++ {
		if heads.has(path[from]) {
			w.descend(p.node, path, from)
		}
	}
	w.descend(p.node, path, len(path))
}

// searchSteps returns the steps to search n bytes of a path for a literal of so many bytes, or
// for any byte of a set if literal is zero.
func searchSteps(n, literal uint) int {
	if literal == 0 || literal > shortLiteral {
		return int((n + literal) / scanLongPerStep)
	}
	return int(n / scanPerStep)
}

// firstMatchSuffices reports whether later matches of a node add nothing to its first: no rule
// that ends there is anchored, and only "*" follows.
func (f *File) firstMatchSuffices(at uint32) bool {
	n := &f.nodes[at]
	for i := n.firstRule; i < f.nodes[at+1].firstRule; i++ {
		if f.rules[i].is(flagAnchored) {
			return false
		}
	}
	return n.childCount == 1 && f.firstBytes[n.firstChild] == '*'
}

// childBytes returns the first bytes of the labels of a node's children.
func (f *File) childBytes(n *node) string {
	return f.firstBytes[n.firstChild : n.firstChild+uint32(n.childCount)]
}

// A byteSet is a set of bytes.
type byteSet [4]uint64

func (o *byteSet) add(s string) {
	for i := range len(s) {
		o[s[i]/64] |= 1 << (s[i] % 64)
	}
}

func (o *byteSet) has(c byte) bool { return o[c/64]&(1<<(c%64)) != 0 }
