package robots

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"
)

// An item is a rule on its way into a trie.
type item struct {
	rule
	at, end uint32 // what goes into the trie, the one form without its anchor and last "*"s; see settle
	block   uint32
}

// inForms is set in item.at where it points into statements.forms, not source.
const inForms uint32 = 1 << 31

// addRule takes a rule into the current block. Its pattern is part of source.
func (s *statements) addRule(pattern string, line int, allow bool) {
	at := offset(s.source, pattern)
	it := item{at: at, block: uint32(s.blocks - 1), rule: rule{
		text: at, meta: uint32(line), written: uint16(len(pattern)),
	}}
	if allow {
		it.meta |= flagAllow
	}
	form := s.oneForm(pattern)
	if form != pattern {
		it.at = uint32(len(s.forms)) | inForms
		s.forms = append(s.forms, form...)
	}
	path := strings.TrimRight(form, "*")
	it.size = uint16(len(path))
	if s.dialect.AsWritten {
		it.size = uint16(len(form))
	}
	if len(path) > 0 && pattern[len(pattern)-1] == '$' {
		it.meta |= flagAnchored
		path = path[:len(path)-1]
	}
	it.end = it.at + uint32(len(path))
	s.rules = append(s.rules, it)
	if allow && s.dialect.IndexPages {
		if slash := strings.LastIndexByte(form, '/'); slash >= 0 && strings.HasPrefix(form[slash:], "/index.htm") {
			it.meta |= flagAnchored
			it.size = uint16(slash + len("/$"))
			it.end = it.at + uint32(slash+1)
			s.rules = append(s.rules, it)
		}
	}
}

// oneForm gives a pattern as it is compared with paths, its wildcards as "*".
func (s *statements) oneForm(pattern string) string {
	switch {
	case isASCII(pattern) && strings.IndexByte(pattern, '%') < 0:
		return pattern
	case s.dialect.AsWritten:
		return string(appendEscaped(nil, pattern))
	}
	return string(appendNormal(nil, pattern, "*"))
}

// offset gives where in whole a part of it begins.
func offset(whole, part string) uint32 {
	if part == "" {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(part))) - uintptr(unsafe.Pointer(unsafe.StringData(whole))))
}

// settle gives the text that all items point into: the source, or where some
// have another form than they were written in, a copy of what goes into tries.
func (s *statements) settle() string {
	if len(s.forms) == 0 {
		return s.source
	}
	var text []byte
	for i := range s.rules {
		it := &s.rules[i]
		at, size := it.at, it.end-it.at
		it.at = uint32(len(text))
		if at&inForms != 0 {
			at &^= inForms
			text = append(text, s.forms[at:at+size]...)
		} else {
			text = append(text, s.source[at:at+size]...)
		}
		it.end = it.at + size
	}
	s.forms = nil
	return string(text)
}

// path gives what goes into the trie, once the statements are settled.
func (it *item) path(text string) string { return text[it.at:it.end] }

// addTries builds the trie of each set.
func (c *compiler) addTries() {
	f := c.file
	c.rules = slices.DeleteFunc(c.rules, func(it item) bool { return c.sets[it.block] < 0 })
	f.text = c.settle()
	items := c.sorted()
	f.rules = make([]rule, 0, len(items))
	f.nodes = make([]node, 0, 2*len(items)+len(f.sets)+1) // a guess: a rule is a leaf and parts a label
	for in := range f.sets {
		n := 0
		for n < len(items) && c.sets[items[n].block] == in {
			n++
		}
		f.sets[in] = c.newSet(items[:n])
		c.addTrie(items[:n])
		items = items[n:]
	}
	f.nodes = slices.Clone(append(f.nodes, node{rules: uint32(len(f.rules))}))
	f.rules = slices.Clone(f.rules)
}

// sorted gives the rules in the order of their sets, then of their texts, and
// among equals the one that decides first. It sorts what is small: the first
// eight octets of each text tell most apart.
func (c *compiler) sorted() []item {
	type entry struct {
		head    uint64
		set, at uint32
	}
	entries := make([]entry, len(c.rules))
	for i := range c.rules {
		it := &c.rules[i]
		var head [8]byte
		copy(head[:], it.path(c.file.text))
		entries[i] = entry{binary.BigEndian.Uint64(head[:]), uint32(c.sets[it.block]), uint32(i)}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		switch {
		case a.set != b.set:
			return cmp.Compare(a.set, b.set)
		case a.head != b.head:
			return cmp.Compare(a.head, b.head)
		}
		x, y := &c.rules[a.at], &c.rules[b.at]
		if order := strings.Compare(x.path(c.file.text), y.path(c.file.text)); order != 0 {
			return order
		}
		return -x.compareRank(&y.rule)
	})
	items := make([]item, len(entries))
	for i, e := range entries {
		items[i] = c.rules[e.at]
	}
	return items
}

func (c *compiler) newSet(items []item) set {
	s := set{root: uint32(len(c.file.nodes)), barrier: -1, allow: -1}
	for i := range items {
		it := &items[i]
		switch size := int32(it.size); {
		case it.is(flagAllow):
			s.allow = max(s.allow, size)
		case it.written > 0 && it.matchesAll(c.file.text):
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
			n.text, n.size = first.at+uint32(s.depth), uint16(size)
			s.depth += size
		}
		for s.from < s.to && int(items[s.from].end-items[s.from].at) == s.depth {
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
