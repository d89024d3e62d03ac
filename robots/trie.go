package robots

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"
)

// A parsedRule is a rule before it is in a trie.
type parsedRule struct {
	rule
	start, end uint32 // what goes into the trie: the normalised pattern without its anchor and trailing "*"s; see finalText
	block      uint32
}

// inNormalised is set in parsedRule.start if the offset is in parsed.normalised, not in source.
const inNormalised uint32 = 1 << 31

// addRule adds a rule to the current block. pattern is a substring of source.
func (s *parsed) addRule(pattern string, line int, allow bool) {
	at := offsetIn(s.source, pattern)
	it := parsedRule{start: at, block: uint32(s.blocks - 1), rule: rule{
		text: at, meta: uint32(line), written: uint16(len(pattern)),
	}}
	if allow {
		it.meta |= flagAllow
	}
	form := s.normalisePattern(pattern)
	if form != pattern {
		it.start = uint32(len(s.normalised)) | inNormalised
		s.normalised = append(s.normalised, form...)
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
	it.end = it.start + uint32(len(path))
	s.rules = append(s.rules, it)
	if allow && s.dialect.IndexPages {
		if slash := strings.LastIndexByte(form, '/'); slash >= 0 && strings.HasPrefix(form[slash:], "/index.htm") {
			it.meta |= flagAnchored
			it.size = uint16(slash + len("/$"))
			it.end = it.start + uint32(slash+1)
			s.rules = append(s.rules, it)
		}
	}
}

// normalisePattern returns a pattern as it is compared with paths, with its wildcards as "*".
func (s *parsed) normalisePattern(pattern string) string {
	switch {
	case isASCII(pattern) && strings.IndexByte(pattern, '%') < 0:
		return pattern
	case s.dialect.AsWritten:
		return string(appendEscaped(nil, pattern))
	}
	return string(appendNormal(nil, pattern, "*"))
}

// offsetIn returns where in whole its substring part begins.
func offsetIn(whole, part string) uint32 {
	if part == "" {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(part))) - uintptr(unsafe.Pointer(unsafe.StringData(whole))))
}

// finalText returns the text that the offsets of all rules refer to from then on. It is the
// source or, if a pattern differs from its normalised form, a copy of all that goes into tries.
func (s *parsed) finalText() string {
	if len(s.normalised) == 0 {
		return s.source
	}
	var text []byte
	for i := range s.rules {
		it := &s.rules[i]
		at, size := it.start, it.end-it.start
		it.start = uint32(len(text))
		if at&inNormalised != 0 {
			at &^= inNormalised
			text = append(text, s.normalised[at:at+size]...)
		} else {
			text = append(text, s.source[at:at+size]...)
		}
		it.end = it.start + size
	}
	s.normalised = nil
	return string(text)
}

// pattern returns what goes into the trie; text is that of finalText.
func (it *parsedRule) pattern(text string) string { return text[it.start:it.end] }

// buildTries builds the trie of each rule set.
func (c *compiler) buildTries() {
	f := c.file
	c.rules = slices.DeleteFunc(c.rules, func(it parsedRule) bool { return c.setOf[it.block] < 0 })
	f.labels = c.finalText()
	items := c.sortedRules()
	f.rules = make([]rule, 0, len(items))
	f.nodes = make([]node, 0, 2*len(items)+len(f.ruleSets)+1) // a guess: a rule is a leaf and parts a label
	for in := range f.ruleSets {
		n := 0
		for n < len(items) && c.setOf[items[n].block] == in {
			n++
		}
		f.ruleSets[in] = c.newRuleSet(items[:n])
		c.buildTrie(items[:n])
		items = items[n:]
	}
	f.nodes = slices.Clone(append(f.nodes, node{firstRule: uint32(len(f.rules))}))
	f.rules = slices.Clone(f.rules)
}

// sortedRules returns the rules in the order of their rule sets, then of their patterns; of
// equal patterns the rule that decides comes first. It sorts small values: the first eight bytes
// tell most patterns apart.
func (c *compiler) sortedRules() []parsedRule {
	type entry struct {
		head    uint64
		set, at uint32
	}
	entries := make([]entry, len(c.rules))
	for i := range c.rules {
		it := &c.rules[i]
		var head [8]byte
		copy(head[:], it.pattern(c.file.labels))
		entries[i] = entry{binary.BigEndian.Uint64(head[:]), uint32(c.setOf[it.block]), uint32(i)}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		switch {
		case a.set != b.set:
			return cmp.Compare(a.set, b.set)
		case a.head != b.head:
			return cmp.Compare(a.head, b.head)
		}
		x, y := &c.rules[a.at], &c.rules[b.at]
		if order := strings.Compare(x.pattern(c.file.labels), y.pattern(c.file.labels)); order != 0 {
			return order
		}
		return -x.compareRank(&y.rule)
	})
	items := make([]parsedRule, len(entries))
	for i, e := range entries {
		items[i] = c.rules[e.at]
	}
	return items
}

func (c *compiler) newRuleSet(items []parsedRule) ruleSet {
	s := ruleSet{root: uint32(len(c.file.nodes)), longestDisallowAll: -1, longestAllow: -1}
	for i := range items {
		it := &items[i]
		switch size := int32(it.size); {
		case it.is(flagAllow):
			s.longestAllow = max(s.longestAllow, size)
		case it.written > 0 && it.matchesAll(c.file.labels):
			s.longestDisallowAll = max(s.longestDisallowAll, size)
		}
	}
	return s
}

// matchesAll reports whether the rule matches every path: its pattern is no more than the "/"
// that every path begins with, and wildcards.
func (it *parsedRule) matchesAll(text string) bool {
	path := it.pattern(text)
	if it.is(flagAnchored) && !strings.HasSuffix(path, "*") {
		return false
	}
	literal := strings.Trim(path, "*")
	return literal == "" || literal == "/"
}

// A span is the rules at and below a node, which have the first depth bytes in common.
type span struct{ from, to, depth int }

// buildTrie builds a trie of sorted rules level by level. The spans are the queue and, one for
// one, the nodes.
func (c *compiler) buildTrie(items []parsedRule) {
	f, root := c.file, len(c.file.nodes)
	c.spans = c.spans[:0]
	c.addNode(0, span{to: len(items)})
	for i := 0; i < len(c.spans); i++ {
		s := c.spans[i]
		n := node{firstRule: uint32(len(f.rules)), firstChild: uint32(len(f.nodes))}
		if s.from < s.to {
			first, last := &items[s.from], &items[s.to-1]
			size := commonLabel(first.pattern(f.labels)[s.depth:], last.pattern(f.labels)[s.depth:], i == 0)
			n.label, n.size = first.start+uint32(s.depth), uint16(size)
			s.depth += size
		}
		for s.from < s.to && int(items[s.from].end-items[s.from].start) == s.depth {
			c.addNodeRule(n.firstRule, items[s.from].rule)
			s.from++
		}
		c.addChildren(items, s)
		n.childCount = uint8(len(f.nodes) - int(n.firstChild))
		if c.firstBytes[root+i] == '*' {
			n.longest = longestSize(items[c.spans[i].from:s.to])
		}
		f.nodes[root+i] = n
	}
}

// commonLabel returns the length of the common beginning of two patterns, up to a "*" that is
// not the first byte. The label of a root has no "*" at all, since a matcher only tries
// wildcards that it reached from a parent.
func commonLabel(a, b string, root bool) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] && (a[n] != '*' || n == 0 && !root) {
		n++
	}
	return n
}

// addNodeRule adds a rule that ends at the current node, whose rules begin at from. Only the
// first anchored rule and the first other rule can decide.
func (c *compiler) addNodeRule(from uint32, r rule) {
	for _, prev := range c.file.rules[from:] {
		if prev.is(flagAnchored) == r.is(flagAnchored) {
			return
		}
	}
	c.file.rules = append(c.file.rules, r)
}

// addChildren adds a node for each byte that may follow, "*" first.
func (c *compiler) addChildren(items []parsedRule, s span) {
	spans, nodes := len(c.spans), len(c.firstBytes)
	for s.from < s.to {
		kid := span{s.from, s.from + 1, s.depth}
		head := items[kid.from].pattern(c.file.labels)[s.depth]
		for kid.to < s.to && items[kid.to].pattern(c.file.labels)[s.depth] == head {
			kid.to++
		}
		c.addNode(head, kid)
		if head == '*' {
			last := len(c.spans) - 1
			c.spans[spans], c.spans[last] = c.spans[last], c.spans[spans]
			c.firstBytes[nodes], c.firstBytes[nodes+last-spans] = head, c.firstBytes[nodes]
		}
		s.from = kid.to
	}
}

func (c *compiler) addNode(head byte, s span) {
	c.file.nodes = append(c.file.nodes, node{})
	c.firstBytes = append(c.firstBytes, head)
	c.spans = append(c.spans, s)
}

// longestSize returns the size of the longest rule, at most longestUnknown.
func longestSize(items []parsedRule) uint8 {
	most := uint16(0)
	for i := range items {
		most = max(most, items[i].size)
	}
	return uint8(min(most, longestUnknown))
}
