// Package robots reads and matches robots.txt as RFC 9309 defines it, in the
// reading that a [Dialect] names: the RFC's own, those of Google's documents
// from 2019, 2022 and today with its open parser's verdicts to the octet, and
// that of Cốc Cốc.
//
// A text is compiled once and asked often:
//
//	file := robots.Parse(text, robots.Standard())
//	group := file.For(robots.ProductTokens(userAgent)...)
//	verdict := group.Match("/path?query")
//
// It is pure: no clock, no network, no locks. A [File] never changes after
// [Parse]; any number of goroutines may share it. Parse never fails: what it
// cannot read says nothing, as the RFC asks (2.2.4, 2.4). What it means that
// a file is missing or broken, that "/robots.txt" itself may always be
// fetched, and how long a Crawl-delay may be, is the business of others.
//
// Whatever is left out refuses: a nil File, a zero [Group], a zero [Verdict],
// a zero Dialect.
//
// A match goes down a trie, a step an octet of the path, whatever the number
// of rules. Where a "*" stands it does so from every octet that is left, once
// for all rules that say the same before it. It never backtracks and, for
// ordinary paths and rules, never allocates. Where rules are made to hurt it
// indexes the path instead, and takes a few steps for each of their nodes. After
// [MaxEffort] steps it gives up, which refuses: see [Verdict]. What Parse and a
// File take is proportional to the text.
//
// Sitemap, License, Content-Signal and Content-Usage lines are read and
// offered; they never change a verdict. [Lint] and [Group.Rivals] are for people who
// want to know why.
package robots

import (
	"math"
	"strings"
	"time"
	"unsafe"
)

// MaxBytes is how much of a file is read: the least that RFC 9309 2.5 allows.
const MaxBytes = 500 << 10

// A File is one robots.txt, compiled. A nil File refuses everything.
type File struct {
	source string   // what it was read from; patterns as written are parts of it
	text   string   // what labels are parts of: the source, or the patterns in the one form
	words  string   // the names
	names  []name   // in order of their text
	refs   []uint32 // the rule sets of each name
	sets   []set    // a rule set: what one set of agents has in common
	nodes  []node   // the tries of all sets, and one node more that ends the last one's rules
	heads  string   // the first octet of each node's label
	rules  []rule   // in order of their nodes

	extras *extras // nil: none

	dialect                        *Dialect
	lettersOnly, family, asWritten bool // as in the Dialect
}

// A name is what a client is found by.
type name struct {
	text, size uint32 // in File.words, lower case
	refs, sets uint32 // in File.refs: from where, and how many
	delay      time.Duration
	cut        bool // no group is called this in full: it is the leading run of longer names
}

// For chooses the group for a client that goes by these product tokens, the
// most significant first (see [ProductTokens]). The first that names a group
// wins, without regard to case (RFC 9309 2.2.1); else the group "*" applies;
// else none, and everything is allowed.
//
// A group's name counts as the whole word written and, where no group is
// called so in full, as the letters, "-" and "_" that it begins with, all
// that RFC 9309 knows in a name: "FooBot2" means FooBot too, but for a client
// that is also called FooBot2.
func (f *File) For(tokens ...string) Group {
	if f == nil {
		return Group{}
	}
	for i, token := range tokens {
		at := f.closest(token)
		if at < 0 {
			continue
		}
		if f.names[at].cut {
			if g, found := f.inFull(f.nameText(at), tokens[i+1:]); found {
				return g
			}
		}
		return f.group(at, token)
	}
	g := f.group(f.find("*"), "")
	if len(tokens) > 0 {
		g.token = tokens[0]
	}
	return g
}

// closest gives the index of the name that a token goes by, or -1: its own, or
// under a dialect with families the longest one before a "-", "_" or ".".
func (f *File) closest(token string) int {
	full := word(token[:min(len(token), maxLine)]) // a name is part of a line
	run := len(letters(full))
	for {
		if !f.lettersOnly || len(full) <= run {
			if at := f.find(full); at >= 0 {
				return at
			}
		}
		if !f.family {
			return -1
		}
		end := strings.LastIndexAny(full, "-_.")
		if end < 0 {
			return -1
		}
		full = full[:end]
	}
}

// inFull finds the group that one of tokens names in full, where that name
// begins with the letters of run.
func (f *File) inFull(run string, tokens []string) (Group, bool) {
	for _, token := range tokens {
		full := word(token)
		if at := f.find(full); at >= 0 && !f.names[at].cut && strings.EqualFold(letters(full), run) {
			return f.group(at, token), true
		}
	}
	return Group{}, false
}

// find gives the index of a name, or -1.
func (f *File) find(s string) int {
	lo, hi := 0, len(f.names)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := compareFold(f.nameText(mid), s); {
		case c == 0:
			return mid
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return -1
}

func (f *File) nameText(at int) string {
	n := &f.names[at]
	return f.words[n.text : n.text+n.size]
}

// compareFold compares lower, which is in lower case, with s, which need not be.
func compareFold(lower, s string) int {
	for i := 0; i < len(lower) && i < len(s); i++ {
		if c := toLower(s[i]); lower[i] != c {
			return int(lower[i]) - int(c)
		}
	}
	return len(lower) - len(s)
}

// Size gives the octets of memory that f holds beside the text it was read from.
func (f *File) Size() int {
	if f == nil {
		return 0
	}
	size := int(unsafe.Sizeof(*f)) + len(f.heads) + f.namesSize() + f.extras.size() +
		cap(f.sets)*int(unsafe.Sizeof(set{})) +
		cap(f.nodes)*int(unsafe.Sizeof(node{})) +
		cap(f.rules)*int(unsafe.Sizeof(rule{}))
	if unsafe.StringData(f.text) != unsafe.StringData(f.source) {
		size += len(f.text)
	}
	return size
}

func (f *File) namesSize() int {
	return len(f.words) + cap(f.names)*int(unsafe.Sizeof(name{})) + cap(f.refs)*int(unsafe.Sizeof(uint32(0)))
}

// A Group is the rules of one File for one client. It is a small value; any
// number of goroutines may share it. The zero Group refuses everything.
type Group struct {
	file  *File
	name  int // in file.names; -1 where no group applies
	token string
	root  uint32 // of its one set, as most groups have it; manySets: see sets
}

const manySets = math.MaxUint32

// group gives that of a name in f.names, or of none: -1.
func (f *File) group(name int, token string) Group {
	g := Group{file: f, name: name, token: token, root: manySets}
	if name >= 0 && f.names[name].sets == 1 {
		g.root = f.sets[f.refs[f.names[name].refs]].root
	}
	return g
}

// Match judges a path with its query and without a fragment, as it stands in
// a URL: escaped or not. The longest rule that matches decides, Allow among
// equals (RFC 9309 2.2.2); where none does, the path is allowed. An empty
// path counts as "/".
func (g Group) Match(pathAndQuery string) Verdict {
	v, _ := g.matchAfter(pathAndQuery, 0)
	return v
}

// MatchWithin is Match for one of several forms of a path. It adds the steps that
// it takes to spent, and gives up when spent exceeds [MaxEffort].
func (g Group) MatchWithin(pathAndQuery string, spent *Effort) (v Verdict) {
	v, *spent = g.matchAfter(pathAndQuery, *spent)
	return v
}

// matchAfter gives the verdict, and the effort spent so far: that of before and its own.
func (g Group) matchAfter(pathAndQuery string, spent Effort) (Verdict, Effort) {
	if g.file == nil {
		return Verdict{}, spent
	}
	if g.file.asWritten {
		return g.matchAsWritten(pathAndQuery, spent)
	}
	if isNormal(pathAndQuery) {
		return g.match(pathAndQuery, spent)
	}
	return g.matchNormalised(pathAndQuery, spent)
}

// Name gives the group's name in lower case: "foobot", "*"; "" where no group applies.
func (g Group) Name() string {
	if g.file == nil || g.name < 0 {
		return ""
	}
	return g.file.nameText(g.name)
}

// Token gives the product token, as it was given, that chose the group; the
// first one where "*" or no group applies; "" without tokens.
func (g Group) Token() string { return g.token }

// CrawlDelay gives the delay that the file asks for, uncapped; 0 for none.
func (g Group) CrawlDelay() time.Duration {
	if g.file == nil || g.name < 0 {
		return 0
	}
	return g.file.names[g.name].delay
}

// DisallowsAll reports whether nothing at all may be fetched: a Disallow
// matches every path, and no Allow is long enough to outrank it.
func (g Group) DisallowsAll() bool {
	if g.file == nil {
		return true
	}
	longest := set{barrier: -1, allow: -1}
	for _, in := range g.sets() {
		s := g.file.sets[in]
		longest.barrier = max(longest.barrier, s.barrier)
		longest.allow = max(longest.allow, s.allow)
	}
	return longest.barrier > longest.allow
}

// sets gives the indices of the rule sets that make up the group.
func (g Group) sets() []uint32 {
	if g.name < 0 {
		return nil
	}
	n := &g.file.names[g.name]
	return g.file.refs[n.refs : n.refs+n.sets]
}

// A Verdict says whether a path may be fetched, and which rule said so. The
// zero Verdict refuses.
type Verdict struct {
	Allow  bool
	GaveUp bool   // matching would have taken more than MaxEffort; Allow is false, and no rule is named
	Rule   string // the pattern as written, part of the File's memory; "" where no rule matched
	Line   int    // the rule's line, from 1; 0 without one; without a Rule, that of an empty one (Dialect.EmptyRules)
}
