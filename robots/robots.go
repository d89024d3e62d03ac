// Package robots reads and matches robots.txt as RFC 9309 defines it, in the
// reading that a Dialect names.
//
// It is pure: no clock, no network, no locks. A [File] never changes after
// [Parse]; any number of goroutines may share it. Parse never fails: what it
// cannot read says nothing, as the RFC asks (2.2.4, 2.4). What it means that
// a file is missing or broken, that "/robots.txt" itself may always be
// fetched, and how long a Crawl-delay may be, is the business of others.
//
// Whatever is left out refuses: a nil File, a zero [Group], a zero [Verdict].
//
// A match goes down a trie, a step an octet of the path, whatever the number
// of rules. Where a "*" stands it does so from every octet that is left, once
// for all rules that say the same before it. It never backtracks and, for
// ordinary paths and rules, never allocates. What Parse and a File take is
// proportional to the text.
package robots

import (
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// MaxBytes is how much of a file is read: the least that RFC 9309 2.5 allows.
const MaxBytes = 500 << 10

// A Dialect is one reading of robots.txt. It is comparable. The zero Dialect
// reads nothing: Parse gives nil under it, which refuses.
type Dialect struct {
	Name string // as users write it
}

// Standard gives RFC 9309 with the tolerance for misspellings of Google's
// open parser, and Crawl-delay.
func Standard() Dialect { return Dialect{Name: "standard"} }

// DialectByName finds a dialect; the error lists the names there are.
func DialectByName(name string) (Dialect, error) {
	if d := Standard(); name == d.Name {
		return d, nil
	}
	return Dialect{}, fmt.Errorf("no robots.txt dialect is called %q; there is: %s", clip(name), Standard().Name)
}

// A File is one robots.txt, compiled. A nil File refuses everything.
type File struct {
	text  string   // names and patterns; all the rest points into it
	names []name   // in order of their text
	refs  []uint32 // the rule sets of each name
	sets  []set    // a rule set: what one set of agents has in common
	nodes []node   // the tries of all sets, and one node more that ends the last one's rules
	heads string   // the first octet of each node's label
	rules []rule   // in order of their nodes
}

// A name is what a client is found by.
type name struct {
	text, size uint32 // in File.text, lower case
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
		at := f.find(word(token))
		if at < 0 {
			continue
		}
		if f.names[at].cut {
			if g, found := f.inFull(word(token), tokens[i+1:]); found {
				return g
			}
		}
		return Group{file: f, name: at, token: token}
	}
	g := Group{file: f, name: f.find("*")}
	if len(tokens) > 0 {
		g.token = tokens[0]
	}
	return g
}

// inFull finds the group that one of tokens names in full, where that name
// begins with the letters of run.
func (f *File) inFull(run string, tokens []string) (Group, bool) {
	for _, token := range tokens {
		full := word(token)
		if at := f.find(full); at >= 0 && !f.names[at].cut && strings.EqualFold(letters(full), run) {
			return Group{file: f, name: at, token: token}, true
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
	return f.text[n.text : n.text+n.size]
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

// Size gives the octets of memory that f holds.
func (f *File) Size() int {
	if f == nil {
		return 0
	}
	return int(unsafe.Sizeof(*f)) + len(f.text) + len(f.heads) +
		cap(f.names)*int(unsafe.Sizeof(name{})) +
		cap(f.refs)*int(unsafe.Sizeof(uint32(0))) +
		cap(f.sets)*int(unsafe.Sizeof(set{})) +
		cap(f.nodes)*int(unsafe.Sizeof(node{})) +
		cap(f.rules)*int(unsafe.Sizeof(rule{}))
}

// A Group is the rules of one File for one client. It is a small value; any
// number of goroutines may share it. The zero Group refuses everything.
type Group struct {
	file  *File
	name  int // in file.names; -1 where no group applies
	token string
}

// Match judges a path with its query and without a fragment, as it stands in
// a URL: escaped or not. The longest rule that matches decides, Allow among
// equals (RFC 9309 2.2.2); where none does, the path is allowed. An empty
// path counts as "/".
func (g Group) Match(pathAndQuery string) Verdict {
	if g.file == nil {
		return Verdict{}
	}
	if isNormal(pathAndQuery) {
		return g.match(pathAndQuery)
	}
	return g.matchNormalised(pathAndQuery)
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
	Allow bool
	Rule  string // the pattern as written, part of the File's memory; "" where no rule matched
	Line  int    // the rule's line, from 1; 0 without a rule
}
