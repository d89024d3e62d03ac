package robots

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// A set is the rules of all blocks that name the same agents. Most files
// have one for each group. An agent that is named in several companies goes
// by several sets; to merge those for each agent would let a small file take
// the product of its agents and its rules.
type set struct {
	root    uint32 // in File.nodes
	barrier int32  // size of the longest Disallow that matches every path; -1: none
	allow   int32  // size of the longest Allow; -1: none
}

// A key is a name that an agent can be found by.
type key struct {
	text  string // lower case
	cut   bool   // the leading run of the word written, which is longer
	block int
	delay time.Duration
}

// A compiler turns statements into a File.
type compiler struct {
	*statements
	file  *File
	sets  []int  // of each block; -1: it names nobody
	words []byte // of the File
	heads []byte // of the File
	spans []span // one for each node of the trie being built
}

func compile(s *statements) *File {
	c := compiler{statements: s, file: &File{
		dialect:     shared(s.dialect),
		lettersOnly: s.dialect.LettersOnly, family: s.dialect.Family, asWritten: s.dialect.AsWritten,
	}}
	keys := c.keys()
	c.joinBlocks(keys)
	c.addNames(keys)
	c.file.source, c.file.words = c.source, string(c.words)
	c.addTries()
	c.file.heads = string(c.heads)
	c.addExtras(keys)
	return c.file
}

// shared gives a dialect that has a name here without a copy of its own.
func shared(d Dialect) *Dialect {
	for i := range dialects {
		if dialects[i] == d {
			return &dialects[i]
		}
	}
	return &d
}

// keys gives all names in order, and of the same name the full ones first.
func (s *statements) keys() []key {
	keys := make([]key, 0, len(s.agents))
	for _, a := range s.agents {
		r := s.runs[a.run]
		if isStar(a.value) {
			keys = append(keys, key{"*", false, r.block, r.delay})
			continue
		}
		full := lower(word(a.value))
		run := letters(full)
		if s.dialect.LettersOnly {
			full = run
		}
		if full == "" {
			continue
		}
		keys = append(keys, key{full, false, r.block, r.delay})
		if run != "" && len(run) < len(full) {
			keys = append(keys, key{run, true, r.block, r.delay})
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if c := strings.Compare(a.text, b.text); c != 0 {
			return c
		}
		if a.cut != b.cut {
			if b.cut {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.block, b.block)
	})
	return keys
}

// isStar reports whether a User-agent line speaks to everyone.
func isStar(value string) bool {
	return len(value) > 0 && value[0] == '*' && (len(value) == 1 || isSpace(value[1]))
}

// lower gives a name in lower case. Octets over 0x7F stay as they are.
func lower(s string) string {
	b := make([]byte, len(s))
	for i := range len(s) {
		b[i] = toLower(s[i])
	}
	return string(b)
}

// joinBlocks gives each block its set: blocks that name the same agents share one.
func (c *compiler) joinBlocks(keys []key) {
	type member struct{ block, name int }
	members := make([]member, 0, len(keys))
	for i, k := range keys {
		if k.cut {
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

	c.sets = slices.Repeat([]int{-1}, c.blocks)
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
		c.sets[block] = in
	}
	c.file.sets = make([]set, len(byNames))
}

// addNames makes the table of names: of each its sets and its longest delay.
func (c *compiler) addNames(keys []key) {
	for len(keys) > 0 {
		first := keys[0]
		n := name{
			text: uint32(len(c.words)), size: uint32(len(first.text)),
			refs: uint32(len(c.file.refs)), cut: first.cut,
		}
		c.words = append(c.words, first.text...)
		for ; len(keys) > 0 && keys[0].text == first.text; keys = keys[1:] {
			if keys[0].cut == first.cut {
				n.delay = max(n.delay, keys[0].delay)
				c.file.refs = append(c.file.refs, uint32(c.sets[keys[0].block]))
			}
		}
		own := c.file.refs[n.refs:]
		slices.Sort(own)
		own = slices.Compact(own)
		n.sets = uint32(len(own))
		c.file.refs = c.file.refs[:n.refs+n.sets]
		c.file.names = append(c.file.names, n)
	}
	c.file.names, c.file.refs = slices.Clone(c.file.names), slices.Clone(c.file.refs)
}
