package robots

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// Parse compiles a robots.txt. It never fails: it ignores lines that it cannot read. It parses
// at most [MaxBytes] bytes and drops a last line that this limit may have cut. It keeps no
// reference to text. If d has no name, it returns nil.
func Parse(text []byte, d Dialect) *File {
	return ParseString(string(text[:min(len(text), MaxBytes)]), d)
}

// ParseString is Parse for a text that the caller keeps anyway: the File refers to text, and so
// keeps it in memory.
func ParseString(text string, d Dialect) *File {
	if d.Name == "" {
		return nil
	}
	return compile(parseText(text, d))
}

// A nameKey is a name under which an agent finds a block.
type nameKey struct {
	text    string // lower case
	partial bool   // text is the leading letters of the word in the file, which is longer
	block   int
	delay   time.Duration
}

// A compiler turns parsed lines into a File.
type compiler struct {
	*parsed
	file       *File
	setOf      []int  // the rule set of each block; -1: the block names nobody
	nameText   []byte // of the File
	firstBytes []byte // of the File
	spans      []span // one for each node of the trie being built
}

func compile(s *parsed) *File {
	c := compiler{parsed: s, file: &File{dialect: sharedDialect(s.dialect)}}
	keys := c.keys()
	c.groupBlocks(keys)
	c.addNames(keys)
	c.file.source, c.file.nameText = c.source, string(c.nameText)
	c.buildTries()
	c.file.firstBytes = string(c.firstBytes)
	c.addExtensions(keys)
	return c.file
}

// sharedDialect returns a pointer to the named dialect that d equals, or to a copy of d.
func sharedDialect(d Dialect) *Dialect {
	for i := range dialects {
		if dialects[i] == d {
			return &dialects[i]
		}
	}
	return &d
}

// keys returns all names in order; of equal names the full ones come first.
func (s *parsed) keys() []nameKey {
	keys := make([]nameKey, 0, len(s.agentLines))
	for _, a := range s.agentLines {
		r := s.agentRuns[a.run]
		if isStar(a.value) {
			keys = append(keys, nameKey{"*", false, r.block, r.delay})
			continue
		}
		full := lower(leadingName(a.value))
		run := leadingLetters(full)
		if s.dialect.LettersOnly {
			full = run
		}
		if full == "" {
			continue
		}
		keys = append(keys, nameKey{full, false, r.block, r.delay})
		if run != "" && len(run) < len(full) {
			keys = append(keys, nameKey{run, true, r.block, r.delay})
		}
	}
	slices.SortFunc(keys, func(a, b nameKey) int {
		if c := strings.Compare(a.text, b.text); c != 0 {
			return c
		}
		if a.partial != b.partial {
			if b.partial {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.block, b.block)
	})
	return keys
}

// isStar reports whether a User-agent line names all clients.
func isStar(value string) bool {
	return len(value) > 0 && value[0] == '*' && (len(value) == 1 || isSpace(value[1]))
}

// groupBlocks assigns a rule set to each block. Blocks that name the same agents share one.
func (c *compiler) groupBlocks(keys []nameKey) {
	type member struct{ block, name int }
	members := make([]member, 0, len(keys))
	for i, k := range keys {
		if k.partial {
			continue
		}
		m := member{k.block, i}
		if n := len(members); n > 0 && keys[members[n-1].name].text == k.text {
			m.name = members[n-1].name // all keys of a name have the index of its first key
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.name, b.name))
	})
	members = slices.Compact(members)

	c.setOf = slices.Repeat([]int{-1}, c.blocks)
	byNames := make(map[string]int)
	var names []byte
	for len(members) > 0 {
		block := members[0].block
		names = names[:0]
		for len(members) > 0 && members[0].block == block {
			names = binary.AppendUvarint(names, uint64(members[0].name))
			members = members[1:]
		}
		in, ok := byNames[string(names)]
		if !ok {
			in = len(byNames)
			byNames[string(names)] = in
		}
		c.setOf[block] = in
	}
	c.file.ruleSets = make([]ruleSet, len(byNames))
}

// addNames makes the table of names, each with its rule sets and its longest delay.
func (c *compiler) addNames(keys []nameKey) {
	for len(keys) > 0 {
		first := keys[0]
		n := agentName{
			start: uint32(len(c.nameText)), size: uint32(len(first.text)),
			firstRef: uint32(len(c.file.setRefs)), partial: first.partial,
		}
		c.nameText = append(c.nameText, first.text...)
		for ; len(keys) > 0 && keys[0].text == first.text; keys = keys[1:] {
			if keys[0].partial == first.partial {
				n.delay = max(n.delay, keys[0].delay)
				c.file.setRefs = append(c.file.setRefs, uint32(c.setOf[keys[0].block]))
			}
		}
		own := c.file.setRefs[n.firstRef:]
		slices.Sort(own)
		own = slices.Compact(own)
		n.refCount = uint32(len(own))
		c.file.setRefs = c.file.setRefs[:n.firstRef+n.refCount]
		c.file.names = append(c.file.names, n)
	}
	c.file.names, c.file.setRefs = slices.Clone(c.file.names), slices.Clone(c.file.setRefs)
}

// buildTries builds the trie of each rule set.
func (c *compiler) buildTries() {
	f := c.file
	c.rules = slices.DeleteFunc(c.rules, func(it parsedRule) bool { return c.setOf[it.block] < 0 })
	f.labels = c.finalText()
	items := c.sortedRules()
	f.rules = make([]rule, 0, len(items))
	f.nodes = make([]node, 0, 2*len(items)+len(f.ruleSets)+1) // usually enough: a rule adds a leaf and may split a label
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
		child := span{s.from, s.from + 1, s.depth}
		head := items[child.from].pattern(c.file.labels)[s.depth]
		for child.to < s.to && items[child.to].pattern(c.file.labels)[s.depth] == head {
			child.to++
		}
		c.addNode(head, child)
		if head == '*' {
			last := len(c.spans) - 1
			c.spans[spans], c.spans[last] = c.spans[last], c.spans[spans]
			c.firstBytes[nodes], c.firstBytes[nodes+last-spans] = head, c.firstBytes[nodes]
		}
		s.from = child.to
	}
}

func (c *compiler) addNode(head byte, s span) {
	c.file.nodes = append(c.file.nodes, node{})
	c.firstBytes = append(c.firstBytes, head)
	c.spans = append(c.spans, s)
}

// longestSize returns the size of the longest rule, at most longestUnknown.
func longestSize(items []parsedRule) uint8 {
	size := uint16(0)
	for i := range items {
		size = max(size, items[i].size)
	}
	return uint8(min(size, longestUnknown))
}

// addExtensions compiles the extension lines, if there are any.
func (c *compiler) addExtensions(keys []nameKey) {
	if c.ext.links.lines+c.ext.preferences.lines == 0 {
		return
	}
	e := &extensions{sitemaps: c.ext.sitemaps, licenses: c.ext.licenses}
	c.file.ext = e
	if len(c.ext.signals) > 0 {
		e.signals = c.nameSignals(keys)
		for _, s := range c.ext.signals {
			e.signalLines = append(e.signalLines, usage{setLine{s.UsageLine, int32(c.setOf[s.block])}, c.normalisePattern(s.pattern), 0})
		}
	}
	if len(c.ext.usages) > 0 {
		c.addUsages(e)
	}
}

// addUsages compiles the patterns of Content-Usage lines as a File of its own with the same
// names.
func (c *compiler) addUsages(e *extensions) {
	var patterns strings.Builder
	for _, u := range c.ext.usages {
		patterns.WriteString(u.pattern)
	}
	s := &parsed{dialect: c.dialect, source: patterns.String(), agentLines: c.agentLines, agentRuns: c.agentRuns}
	rest := s.source
	for _, u := range c.ext.usages {
		pattern := rest[:len(u.pattern)]
		rest = rest[len(u.pattern):]
		s.blocks = u.block + 1
		s.addRule(pattern, u.Number, false)
		e.usages = append(e.usages, usage{setLine{u.UsageLine, int32(c.setOf[u.block])}, s.normalisePattern(pattern), s.rules[len(s.rules)-1].size})
	}
	s.blocks = c.blocks
	e.usageRules = compile(s)
	e.usageRules.names, e.usageRules.setRefs, e.usageRules.nameText = c.file.names, c.file.setRefs, c.file.nameText // equal, so shared
}

// nameSignals returns the signals of each name for all paths.
func (c *compiler) nameSignals(keys []nameKey) []Signals {
	blocks := make([]Signals, c.blocks)
	for _, s := range c.ext.signals {
		if s.pattern == "" {
			blocks[s.block].merge(s.Signals)
		}
	}
	names := make([]Signals, len(c.file.names))
	for _, k := range keys {
		if at := c.file.nameIndex(k.text); c.file.names[at].partial == k.partial {
			names[at].merge(blocks[k.block])
		}
	}
	return names
}
