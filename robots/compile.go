package robots

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// Parse compiles a robots.txt. It ignores lines that it cannot read. It parses at most [MaxBytes]
// bytes and drops a last line that this limit may have cut. It keeps no reference to text. It
// returns nil if d has no name, and if [Decode] gives an error.
func Parse(text []byte, d Dialect) *File {
	return ParseFor(Origin{}, string(text[:min(len(text), MaxBytes)]), d)
}

// ParseFor is Parse for the file of an origin, which the zero Origin leaves open, and for a text that
// the caller keeps anyway: the File refers to text, and so keeps it in memory.
func ParseFor(origin Origin, text string, d Dialect) *File {
	decoded, coding, err := Decode(text, d)
	if d.Name == "" || err != nil {
		return nil
	}
	s := parseText(decoded, d, origin)
	s.coding = coding
	return compile(s)
}

// A nameKey is a name under which an agent finds a block.
type nameKey struct {
	// text is in lower case.
	text string

	// agent is an index in parsed.agents.
	agent int32

	// partial says that text is the leading letters of the word in the file, which is longer.
	partial bool
}

// A compiler turns parsed lines into a File.
type compiler struct {
	*parsed
	file *File

	// setOf has the index of the rule set of each block; -1: the block names nobody.
	setOf []int

	// nameText and firstBytes are those of the File.
	nameText, firstBytes []byte

	// spans has one for each node of the trie that is being built.
	spans []span
}

func compile(s *parsed) *File {
	c := compiler{parsed: s}
	c.build()
	return c.file
}

// build makes the File.
func (c *compiler) build() {
	c.file = &File{dialect: sharedDialect(&c.dialect), source: c.source}
	keys := c.keys()
	c.groupBlocks(keys)
	c.addNames(keys)
	c.file.nameText = string(c.nameText)
	c.buildTries()
	c.file.firstBytes = string(c.firstBytes)
	c.addExtensions(keys)
}

// sharedDialect returns a pointer to the named dialect that d equals, or to a copy of d.
func sharedDialect(d *Dialect) *Dialect {
	for i := range dialects {
		if dialects[i] == *d {
			return &dialects[i]
		}
	}
	other := *d
	return &other
}

// keys returns all names in order; of equal names the full ones come first.
func (p *parsed) keys() []nameKey {
	if p.names != nil {
		return p.names
	}
	keys := make([]nameKey, 0, len(p.agents))
	for i, a := range p.agents {
		if isStar(a.value) {
			keys = append(keys, nameKey{"*", int32(i), false})
			continue
		}
		full := lower(leadingName(a.value))
		run := leadingLetters(full)
		if p.dialect.LettersOnly {
			full = run
		}
		if full == "" {
			continue
		}
		keys = append(keys, nameKey{full, int32(i), false})
		if run != "" && len(run) < len(full) {
			keys = append(keys, nameKey{run, int32(i), true})
		}
	}
	slices.SortFunc(keys, func(a, b nameKey) int {
		return cmp.Or(strings.Compare(a.text, b.text), falseFirst(a.partial, b.partial), cmp.Compare(a.agent, b.agent))
	})
	p.names = keys
	return keys
}

// falseFirst compares two values for an order in which false comes first.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// agentOf returns the agent that has the name k.
func (p *parsed) agentOf(k nameKey) *agentLine { return &p.agents[k.agent] }

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
		m := member{int(c.agentOf(k).block), i}
		if n := len(members); n > 0 && keys[members[n-1].name].text == k.text {
			// All keys of a name have the index of its first key.
			m.name = members[n-1].name
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
			if keys[0].partial != first.partial {
				continue
			}
			a := c.agentOf(keys[0])
			if a.delay > 0 && c.delays[a.delay-1].asked > n.delay {
				n.delay, n.delayLine = c.delays[a.delay-1].asked, c.delays[a.delay-1].line
			}
			c.file.setRefs = append(c.file.setRefs, uint32(c.setOf[a.block]))
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
	// This is usually enough: a rule adds a leaf and may split a label.
	f.nodes = make([]node, 0, 2*len(items)+len(f.ruleSets)+1)
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
func (p *parsedRule) matchesAll(text string) bool {
	path := p.pattern(text)
	if p.is(flagAnchored) && !strings.HasSuffix(path, "*") {
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

// addNodeRule adds a rule that ends at the current node, whose rules begin at from, unless one of
// those always decides rather than r.
func (c *compiler) addNodeRule(from uint32, r rule) {
	for i := range c.file.rules[from:] {
		if c.file.rules[int(from)+i].covers(&r) {
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

// addExtensions compiles what a file has beside groups and rules, if there is anything.
func (c *compiler) addExtensions(keys []nameKey) {
	joins := c.joins(keys)
	if c.ext.links.lines+c.ext.preferences.lines+c.ext.times.lines+len(joins) == 0 && c.coding == "" && !c.ownURLs {
		return
	}
	e := &extensions{coding: c.coding, joins: joins, sitemaps: c.ext.sitemaps, licenses: c.ext.licenses}
	if c.ownURLs {
		e.origin = c.origin
	}
	c.file.ext = e
	e.signals = c.preferences(c.ext.signals, c.ext.signalRuns)
	e.usages = c.preferences(c.ext.usages, c.ext.usageRuns)
	e.visits = c.preferences(c.ext.visits, c.ext.visitRuns)
}

// joins returns the names that a block lists only before a line that divides its list.
func (c *compiler) joins(keys []nameKey) (all []join) {
	if !c.joined {
		return nil
	}
	// The last part of each block, the line after each block, and the line after each part.
	lastPart, nextBlock := make([]int32, c.blocks), make([]uint32, c.blocks)
	nextPart := make([]uint32, c.parts+1)
	for i, a := range c.agents {
		lastPart[a.block], nextBlock[a.block] = a.part, math.MaxUint32
		if i+1 == len(c.agents) {
			break
		}
		switch next := c.agents[i+1]; {
		case next.block != a.block:
			nextBlock[a.block] = next.line
		case next.part != a.part:
			nextPart[a.part] = next.line
		}
	}
	for len(keys) > 0 {
		first, last := keys[0], keys[0]
		agent := c.agentOf(first)
		for len(keys) > 0 && keys[0].text == first.text && keys[0].partial == first.partial && c.agentOf(keys[0]).block == agent.block {
			last, keys = keys[0], keys[1:]
		}
		at, part := c.file.nameIndex(first.text), c.agentOf(last).part
		if part != lastPart[agent.block] && c.file.names[at].partial == first.partial {
			all = append(all, join{uint32(at), agent.line, nextPart[part], nextBlock[agent.block]})
		}
	}
	return all
}

// preferences compiles preference lines. Their groups have one block for each run, and a last one for
// the agents of no run.
func (c *compiler) preferences(lines []preferenceLine, runs []agentRun) (p preferences) {
	if len(lines) == 0 {
		return p
	}
	s := &parsed{dialect: c.dialect, blocks: len(runs) + 1, agents: slices.Clone(c.agents), names: c.keys()}
	for i := range s.agents {
		s.agents[i].block, s.agents[i].delay = int32(len(runs)), 0
	}
	for block, run := range runs {
		for i := run.from; i < run.to; i++ {
			s.agents[i].block = int32(block)
		}
	}
	groups := compiler{parsed: s}
	groups.build()
	// The names are equal, so one copy of their text is enough.
	groups.file.nameText = c.file.nameText
	p.groups = groups.file
	for _, l := range lines {
		set := int32(everySet)
		if l.run != everyRun {
			set = int32(groups.setOf[l.run])
		}
		pattern := c.formsOf(l.pattern)
		p.lines = append(p.lines, preference{l.UsageLine, set, c.patternSize(pattern.normalised), pattern, l.Signals})
	}
	return p
}
