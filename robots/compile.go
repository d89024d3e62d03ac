package robots

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// A ruleSet is the rules of all blocks that name the same agents. Most files have one for each
// block. An agent that several blocks name together with different agents has several rule sets:
// to merge these for each agent would let a small file take memory for the product of its agents
// and its rules.
type ruleSet struct {
	root               uint32 // in File.nodes
	longestDisallowAll int32  // size of the longest Disallow that matches every path; -1: none
	longestAllow       int32  // size of the longest Allow; -1: none
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
	c := compiler{parsed: s, file: &File{
		dialect:     sharedDialect(s.dialect),
		lettersOnly: s.dialect.LettersOnly, family: s.dialect.Family, asWritten: s.dialect.AsWritten,
	}}
	keys := c.keys()
	c.groupBlocks(keys)
	c.addNames(keys)
	c.file.source, c.file.nameText = c.source, string(c.nameText)
	c.buildTries()
	c.file.firstBytes = string(c.firstBytes)
	c.addExtras(keys)
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

// lower returns a name with its ASCII letters in lower case. Bytes over 0x7F stay as they are.
func lower(s string) string {
	b := make([]byte, len(s))
	for i := range len(s) {
		b[i] = toLower(s[i])
	}
	return string(b)
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
			m.name = members[n-1].name // the first key of a name stands for it
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
