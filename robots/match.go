package robots

import "strings"

// An Effort is a number of steps of matching. A step is the visit of a node, about 8 ns, or
// other work that takes as long.
type Effort int

// MaxEffort is the maximum number of steps for one request, for all forms of its path together:
// 1 to 2 ms. Ordinary files and paths take tens or hundreds. Only a file with many rules with "*"
// whose pieces occur in a long path takes more.
const MaxEffort Effort = 160_000

// A matcher takes one normalised path through the tries of a group.
//
// From a node that begins with "*" it tries every following byte of the path. It does so once
// for each such node, from the first byte at which it reached the node: whatever matches later
// bytes is found from there too. So the cost depends on the number of nodes, not on the number
// of ways in which wildcards can divide a path. If that is still too much, the matcher gives up,
// and stepsLeft is negative.
//
// The path is a parameter and no field, so that it may stay on the caller's stack.
type matcher struct {
	tries *tries
	best  *rule

	// ignored are the flags of the rules that cannot match this form of the path.
	ignored uint32

	// stepsLeft is how many steps the matcher may still take. It is negative once it has given up.
	stepsLeft int

	// pending are the wildcards that the matcher has reached in the current trie: pendingCount of
	// them, and then morePending, which needs an allocation.
	pendingCount int
	morePending  []wildcard
	pending      [maxPending]wildcard
}

// A wildcard is a node that begins with "*", and the first byte of the path that may follow.
type wildcard struct{ node, from uint32 }

const (
	// maxPending is how many wildcards a matcher keeps on the stack. Ordinary files reach fewer for
	// one path.
	maxPending = 8

	// shortLiteral is the maximum length, in bytes, of a literal that strings.Index finds quickly.
	shortLiteral = 16

	// scanPerStep and scanLongPerStep are how many bytes of a path are searched or compared in the
	// time of a step, for a short literal and for a long one.
	scanPerStep     = 32
	scanLongPerStep = 8
)

// matchTries matches the path against the tries of a group, until it gives up.
func (m *matcher) matchTries(g Group, path string) {
	for _, set := range g.setRefs() {
		if m.matchTrie(g.file.ruleSets[set].root, path); m.stepsLeft < 0 {
			return
		}
	}
}

// matchTrie matches the path against one trie.
func (m *matcher) matchTrie(root uint32, path string) {
	m.stepsLeft--
	from := int(m.tries.nodes[root].size)
	// A label of 1 byte is "/", with which every path begins.
	if from > 1 && !strings.HasPrefix(path, m.tries.label(root)) {
		return
	}
	m.pendingCount, m.morePending = 0, nil
	m.descend(root, path, from)
	// Both lists grow meanwhile.
	for i := 0; i < m.pendingCount && m.stepsLeft >= 0; i++ {
		m.tryPending(m.pending[i], path)
	}
	for i := 0; i < len(m.morePending) && m.stepsLeft >= 0; i++ {
		m.tryPending(m.morePending[i], path)
	}
}

// descend goes down from a node whose label ends at from, and considers the rules of the nodes
// it reaches.
func (m *matcher) descend(at uint32, path string, from int) {
	nodes, firstBytes, labels := m.tries.nodes, m.tries.firstBytes, m.tries.labels
	for {
		m.stepsLeft--
		n := &nodes[at]
		if n.firstRule != nodes[at+1].firstRule {
			m.considerRules(at, from == len(path))
		}
		if n.childCount == 0 {
			return
		}
		children := firstBytes[n.firstChild : n.firstChild+uint32(n.childCount)]
		if children[0] == '*' {
			m.addPending(wildcard{n.firstChild, uint32(from)})
		}
		if from >= len(path) {
			return
		}
		child := strings.IndexByte(children, path[from])
		// The child of a "*" is a wildcard, but a "*" in a path is none.
		if child < 0 || children[child] == '*' {
			return
		}
		at = n.firstChild + uint32(child)
		n = &nodes[at]
		if n.size > 1 {
			rest := labels[n.label+1 : n.label+uint32(n.size)]
			if n.size > scanPerStep {
				m.stepsLeft -= int(n.size / scanPerStep)
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
func (m *matcher) considerRules(at uint32, atEnd bool) {
	t := m.tries
	for i := t.nodes[at].firstRule; i < t.nodes[at+1].firstRule; i++ {
		if r := &t.rules[i]; (atEnd || !r.is(flagAnchored)) && !r.is(m.ignored) && r.outranks(m.best) {
			m.best = r
		}
	}
}

// addPending adds a wildcard unless its node was reached before.
func (m *matcher) addPending(w wildcard) {
	if reached(m.pending[:m.pendingCount], w.node) {
		return
	}
	if m.pendingCount < maxPending {
		m.pending[m.pendingCount] = w
		m.pendingCount++
		return
	}
	m.stepsLeft -= len(m.morePending) / maxPending
	if !reached(m.morePending, w.node) {
		m.morePending = append(m.morePending, w)
	}
}

// reached reports whether pending has a node.
func reached(pending []wildcard, node uint32) bool {
	for i := range pending {
		if pending[i].node == node {
			return true
		}
	}
	return false
}

// tryPending goes down from a wildcard at every following byte of the path.
func (m *matcher) tryPending(w wildcard, path string) {
	t := m.tries
	n := &t.nodes[w.node]
	m.stepsLeft--
	if m.best != nil && n.longest < longestUnknown && uint16(n.longest) < m.best.size {
		// No rule at or below the node outranks best.
		return
	}
	from := int(w.from)
	literal := t.label(w.node)[1:]
	m.stepsLeft -= searchSteps(uint(len(path)-from), uint(len(literal)))
	// No node follows, so any match will do.
	if n.childCount == 0 {
		if rest := path[from:]; strings.Contains(rest, literal) {
			m.considerRules(w.node, strings.HasSuffix(rest, literal))
		}
		return
	}
	if literal != "" {
		once := t.firstMatchSuffices(w.node)
		for {
			i := strings.Index(path[from:], literal)
			if i < 0 {
				return
			}
			m.descend(w.node, path, from+i+len(literal))
			if from += i + 1; once || m.stepsLeft < 0 {
				return
			}
		}
	}
	// A "*" that follows needs the first match, and an anchor the last one.
	m.descend(w.node, path, from)
	var first byteSet
	first.add(t.childBytes(n))
	for from++; from < len(path) && m.stepsLeft >= 0; from++ {
		if first.has(path[from]) {
			m.descend(w.node, path, from)
		}
	}
	m.descend(w.node, path, len(path))
}

// searchSteps returns the steps to search n bytes of a path for a literal of so many bytes, or
// for any byte of a set if literal is zero.
func searchSteps(n, literal uint) int {
	if literal == 0 || literal > shortLiteral {
		return int((n + literal) / scanLongPerStep)
	}
	return int(n / scanPerStep)
}

// A byteSet is a set of bytes.
type byteSet [4]uint64

func (b *byteSet) add(s string) {
	for i := range len(s) {
		b[s[i]/64] |= 1 << (s[i] % 64)
	}
}

func (b *byteSet) has(c byte) bool { return b[c/64]&(1<<(c%64)) != 0 }
