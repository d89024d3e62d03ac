package robots

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// An item is a rule on its way into a trie.
type item struct {
	rule
	block uint32
	head  uint64 // the first eight octets of its text, to be sorted by
}

// addRule takes a rule into the current block.
func (s *statements) addRule(pattern []byte, line int, allow bool) {
	it := item{block: uint32(s.blocks - 1), rule: rule{
		text: uint32(len(s.text)), meta: uint32(line), written: uint16(len(pattern)),
	}}
	if allow {
		it.meta |= flagAllow
	}
	s.text = append(s.text, pattern...)
	form := pattern
	if !isASCII(pattern) || bytes.IndexByte(pattern, '%') >= 0 {
		end := len(s.text)
		s.text = appendPattern(s.text, pattern)
		if form = s.text[end:]; bytes.Equal(form, pattern) {
			s.text = s.text[:end]
		} else {
			it.meta |= flagChanged
		}
	}
	form = bytes.TrimRight(form, "*")
	it.size = uint16(len(form))
	if pattern[len(pattern)-1] == '$' {
		it.meta |= flagAnchored
		form = form[:len(form)-1]
	}
	var head [8]byte
	copy(head[:], form)
	it.head = binary.BigEndian.Uint64(head[:])
	s.rules = append(s.rules, it)
}

// textAt gives where the text that goes into the trie begins in File.text.
func (it *item) textAt() uint32 {
	if it.is(flagChanged) {
		return it.text + uint32(it.written)
	}
	return it.text
}

// path gives the text that goes into the trie: the one form without its anchor.
func (it *item) path(text string) string {
	size := uint32(it.size)
	if it.is(flagAnchored) {
		size--
	}
	from := it.textAt()
	return text[from : from+size]
}

// addTries builds the trie of each set.
func (c *compiler) addTries() {
	f := c.file
	c.rules = slices.DeleteFunc(c.rules, func(it item) bool { return c.sets[it.block] < 0 })
	slices.SortFunc(c.rules, c.compare)
	f.rules = make([]rule, 0, len(c.rules))
	f.nodes = make([]node, 0, 2*len(c.rules)+len(f.sets)+1) // a guess: a rule is a leaf and parts a label
	rest := c.rules
	for in := range f.sets {
		n := 0
		for n < len(rest) && c.sets[rest[n].block] == in {
			n++
		}
		f.sets[in] = c.newSet(rest[:n])
		c.addTrie(rest[:n])
		rest = rest[n:]
	}
	f.nodes = slices.Clone(append(f.nodes, node{rules: uint32(len(f.rules))}))
	f.rules = slices.Clone(f.rules)
}

// compare puts the rules of a set in the order of their text, those that
// allow first among equals, then those that come first in the file.
func (c *compiler) compare(a, b item) int {
	switch {
	case a.block != b.block && c.sets[a.block] != c.sets[b.block]:
		return c.sets[a.block] - c.sets[b.block]
	case a.head != b.head:
		return cmp.Compare(a.head, b.head)
	}
	if order := strings.Compare(a.path(c.file.text), b.path(c.file.text)); order != 0 {
		return order
	}
	if a.is(flagAllow) != b.is(flagAllow) {
		return cmp.Compare(b.meta, a.meta) // it is the top bit
	}
	return cmp.Compare(a.meta&maskLine, b.meta&maskLine)
}

func (c *compiler) newSet(items []item) set {
	s := set{root: uint32(len(c.file.nodes)), barrier: -1, allow: -1}
	for i := range items {
		it := &items[i]
		switch size := int32(it.size); {
		case it.is(flagAllow):
			s.allow = max(s.allow, size)
		case it.matchesAll(c.file.text):
			s.barrier = max(s.barrier, size)
		}
	}
	return s
}

// matchesAll reports whether every path matches: there is no more to match
// than the "/" that each begins with, and whatever follows.
func (it *item) matchesAll(text string) bool {
	path := it.path(text)
	if it.is(flagAnchored) && !strings.HasSuffix(path, "*") {
		return false
	}
	literal := strings.Trim(path, "*")
	return literal == "" || literal == "/"
}

// A span is the items below a node, which share their first depth octets.
type span struct{ from, to, depth int }

// addTrie builds a trie of sorted items, level by level: the spans are both
// the queue and, one for one, the nodes.
func (c *compiler) addTrie(items []item) {
	f, root := c.file, len(c.file.nodes)
	c.spans = c.spans[:0]
	c.addNode(0, span{to: len(items)})
	for i := 0; i < len(c.spans); i++ {
		s := c.spans[i]
		n := node{rules: uint32(len(f.rules)), kids: uint32(len(f.nodes))}
		if s.from < s.to {
			first, last := &items[s.from], &items[s.to-1]
			size := labelSize(first.path(f.text)[s.depth:], last.path(f.text)[s.depth:], i == 0)
			n.text, n.size = first.textAt()+uint32(s.depth), uint16(size)
			s.depth += size
		}
		for s.from < s.to && len(items[s.from].path(f.text)) == s.depth {
			c.addEnd(n.rules, items[s.from].rule)
			s.from++
		}
		c.addKids(items, s)
		n.count = uint8(len(f.nodes) - int(n.kids))
		if c.heads[root+i] == '*' {
			n.most = longest(items[c.spans[i].from:s.to])
		}
		f.nodes[root+i] = n
	}
}

// labelSize gives how much two texts have in common, up to a "*" that is not
// the first octet. A root has no "*" even there: it is not its parent's to try.
func labelSize(a, b string, root bool) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] && (a[n] != '*' || n == 0 && !root) {
		n++
	}
	return n
}

// addEnd takes a rule that ends at the current node, whose rules begin at
// from: the first with and the first without an anchor decide.
func (c *compiler) addEnd(from uint32, r rule) {
	for _, prev := range c.file.rules[from:] {
		if prev.is(flagAnchored) == r.is(flagAnchored) {
			return
		}
	}
	c.file.rules = append(c.file.rules, r)
}

// addKids adds a node for each octet that may follow, "*" first.
func (c *compiler) addKids(items []item, s span) {
	spans, nodes := len(c.spans), len(c.heads)
	for s.from < s.to {
		kid := span{s.from, s.from + 1, s.depth}
		head := items[kid.from].path(c.file.text)[s.depth]
		for kid.to < s.to && items[kid.to].path(c.file.text)[s.depth] == head {
			kid.to++
		}
		c.addNode(head, kid)
		if head == '*' {
			last := len(c.spans) - 1
			c.spans[spans], c.spans[last] = c.spans[last], c.spans[spans]
			c.heads[nodes], c.heads[nodes+last-spans] = head, c.heads[nodes]
		}
		s.from = kid.to
	}
}

func (c *compiler) addNode(head byte, s span) {
	c.file.nodes = append(c.file.nodes, node{})
	c.heads = append(c.heads, head)
	c.spans = append(c.spans, s)
}

// longest gives the size of the longest of items, as far as a node holds it.
func longest(items []item) uint8 {
	most := uint16(0)
	for i := range items {
		most = max(most, items[i].size)
	}
	return uint8(min(most, mostAny))
}
