// Package robots parses robots.txt files and matches paths against them as RFC 9309 defines. A
// [Dialect] selects the reading: RFC 9309 itself, one of Google's documented readings (2019,
// 2022, and today's with the verdicts of Google's open-source parser, byte for byte), or that of
// Cốc Cốc.
//
// Parse a text once, then match any number of paths:
//
//	file := robots.Parse(text, robots.Standard())
//	group := file.For(robots.ProductTokens(userAgent)...)
//	verdict := group.Match("/path?query")
//
// The package is pure: it uses no clock, no network and no locks. A [File] never changes after
// [Parse]; any number of goroutines may share it. Parse never fails: it ignores lines that it
// cannot read, as RFC 9309 2.2.4 and 2.4 require. The caller decides what a missing or
// unreachable file means (RFC 9309 2.3.1), allows "/robots.txt" itself (2.2.2), and limits the
// Crawl-delay.
//
// Zero values refuse: a nil File, a zero [Group], a zero [Verdict] and a zero Dialect allow
// nothing.
//
// The rules of a group form a trie, and Match takes one step for each byte of the path, however
// many rules there are. At a "*" it continues from every byte that is left, once for all rules
// that begin alike. It never backtracks and, for ordinary paths and rules, never allocates. If
// hostile rules make that too slow, Match indexes the suffixes of the path and takes a few steps
// for each node of the trie instead. After [MaxEffort] steps it gives up and refuses; see
// [Verdict]. The time of Parse and the memory of a File are proportional to the length of the
// text.
//
// Sitemap, License, Content-Signal and Content-Usage lines are parsed and returned, but never
// change a verdict. [Lint], [Outline], [Excerpt] and [Group.RelatedRules] explain a file or a
// verdict.
package robots

import (
	"math"
	"strings"
	"time"
	"unsafe"
)

// MaxBytes is the maximum number of bytes of a file that are parsed: the minimum that RFC 9309
// 2.5 requires a crawler to parse.
const MaxBytes = 500 << 10

// A File is one compiled robots.txt. A nil File refuses everything.
type File struct {
	source     string      // the parsed text; patterns as written are substrings of it
	labels     string      // what the labels of nodes are substrings of: source, or the normalised patterns
	nameText   string      // what the names are substrings of
	names      []agentName // sorted by their text
	setRefs    []uint32    // indices in ruleSets: the rule sets of each name
	ruleSets   []ruleSet   // the rules that the same agents have
	nodes      []node      // the tries of all rule sets, and a last node that ends the rules of the one before
	firstBytes string      // the first byte of each node's label
	rules      []rule      // in the order of their nodes

	ext *extensions // nil: none

	dialect                        *Dialect
	lettersOnly, family, asWritten bool // as in the Dialect
}

// An agentName is a name under which a client finds its group.
type agentName struct {
	start, size        uint32 // in File.nameText, lower case
	firstRef, refCount uint32 // the slice of File.setRefs
	delay              time.Duration
	partial            bool // no group has this name in full: it is the leading letters of longer names
}

// For returns the group that applies to a client with these product tokens, the most significant
// first (see [ProductTokens]). The first token that names a group wins, without regard to case
// (RFC 9309 2.2.1). If no token names a group, the group "*" applies. If there is no group "*"
// either, no group applies and everything is allowed.
//
// A User-agent line names a group by its whole word. If no line has the token as its whole word,
// the leading letters, "-" and "_" of a word name the group too: these are all the characters
// that RFC 9309 allows in a product token. So "User-agent: FooBot2" also applies to the client
// "FooBot", unless the client has the token "FooBot2" as well.
func (f *File) For(tokens ...string) Group {
	if f == nil {
		return Group{}
	}
	for i, token := range tokens {
		at := f.lookup(token)
		if at < 0 {
			continue
		}
		if f.names[at].partial {
			if g, found := f.exactGroup(f.nameAt(at), tokens[i+1:]); found {
				return g
			}
		}
		return f.group(at, token)
	}
	g := f.group(f.nameIndex("*"), "")
	if len(tokens) > 0 {
		g.token = tokens[0]
	}
	return g
}

// lookup returns the index of the name for a token, or -1. It is the token itself or, under a
// dialect with NamePrefixes, the longest name that the token continues with a "-", "_" or ".".
func (f *File) lookup(token string) int {
	full := leadingName(token[:min(len(token), maxLine)]) // a name is part of a line
	run := len(leadingLetters(full))
	for {
		if !f.lettersOnly || len(full) <= run {
			if at := f.nameIndex(full); at >= 0 {
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

// exactGroup returns the group that one of tokens names in full, if the leading letters of that
// token are run.
func (f *File) exactGroup(run string, tokens []string) (Group, bool) {
	for _, token := range tokens {
		full := leadingName(token)
		if at := f.nameIndex(full); at >= 0 && !f.names[at].partial && strings.EqualFold(leadingLetters(full), run) {
			return f.group(at, token), true
		}
	}
	return Group{}, false
}

// nameIndex returns the index of a name, or -1.
func (f *File) nameIndex(s string) int {
	lo, hi := 0, len(f.names)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := compareFold(f.nameAt(mid), s); {
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

func (f *File) nameAt(at int) string {
	n := &f.names[at]
	return f.nameText[n.start : n.start+n.size]
}

// compareFold compares lower, which is in lower case, with s, whose case does not matter.
func compareFold(lower, s string) int {
	for i := 0; i < len(lower) && i < len(s); i++ {
		if c := toLower(s[i]); lower[i] != c {
			return int(lower[i]) - int(c)
		}
	}
	return len(lower) - len(s)
}

// Size returns the number of bytes of memory that f takes, without the text it was parsed from.
func (f *File) Size() int {
	if f == nil {
		return 0
	}
	size := int(unsafe.Sizeof(*f)) + len(f.firstBytes) + f.namesSize() + f.ext.size() +
		cap(f.ruleSets)*int(unsafe.Sizeof(ruleSet{})) +
		cap(f.nodes)*int(unsafe.Sizeof(node{})) +
		cap(f.rules)*int(unsafe.Sizeof(rule{}))
	if unsafe.StringData(f.labels) != unsafe.StringData(f.source) {
		size += len(f.labels)
	}
	return size
}

func (f *File) namesSize() int {
	return len(f.nameText) + cap(f.names)*int(unsafe.Sizeof(agentName{})) + cap(f.setRefs)*int(unsafe.Sizeof(uint32(0)))
}

// A Group is the rules of one File for one client. It is a small value; any number of goroutines
// may share it. The zero Group refuses everything.
type Group struct {
	file  *File
	name  int // index in file.names; -1: no group applies
	token string
	root  uint32 // of the only rule set, which most groups have; severalSets: see setRefs
}

const severalSets = math.MaxUint32

// group returns the group of a name in f.names; -1 stands for no group.
func (f *File) group(name int, token string) Group {
	g := Group{file: f, name: name, token: token, root: severalSets}
	if name >= 0 && f.names[name].refCount == 1 {
		g.root = f.ruleSets[f.setRefs[f.names[name].firstRef]].root
	}
	return g
}

// Match matches a path with its query and without its fragment, as it stands in a URL, escaped
// or not. The longest matching rule decides; Allow wins among rules of equal length (RFC 9309
// 2.2.2). If no rule matches, the path is allowed. An empty path counts as "/".
func (g Group) Match(pathAndQuery string) Verdict {
	v, _ := g.matchPath(pathAndQuery, 0)
	return v
}

// MatchWithin is Match for one of several forms of a path. It adds the steps it takes to *spent,
// and gives up when *spent exceeds [MaxEffort].
func (g Group) MatchWithin(pathAndQuery string, spent *Effort) (v Verdict) {
	v, *spent = g.matchPath(pathAndQuery, *spent)
	return v
}

// matchPath returns the verdict, and spent plus the steps it took.
func (g Group) matchPath(pathAndQuery string, spent Effort) (Verdict, Effort) {
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

// Name returns the group's name in lower case, such as "foobot" or "*", or "" if no group
// applies.
func (g Group) Name() string {
	if g.file == nil || g.name < 0 {
		return ""
	}
	return g.file.nameAt(g.name)
}

// Token returns the product token that selected the group, as the caller wrote it. If "*" or no
// group applies, it is the first token; without tokens it is "".
func (g Group) Token() string { return g.token }

// CrawlDelay returns the delay that the file asks for, without a limit; 0 means none.
func (g Group) CrawlDelay() time.Duration {
	if g.file == nil || g.name < 0 {
		return 0
	}
	return g.file.names[g.name].delay
}

// DisallowsAll reports whether no path at all is allowed: a Disallow matches every path, and no
// Allow is long enough to win over it.
func (g Group) DisallowsAll() bool {
	if g.file == nil {
		return true
	}
	longest := ruleSet{longestDisallowAll: -1, longestAllow: -1}
	for _, in := range g.setRefs() {
		s := g.file.ruleSets[in]
		longest.longestDisallowAll = max(longest.longestDisallowAll, s.longestDisallowAll)
		longest.longestAllow = max(longest.longestAllow, s.longestAllow)
	}
	return longest.longestDisallowAll > longest.longestAllow
}

// setRefs returns the indices of the rule sets that make up the group.
func (g Group) setRefs() []uint32 {
	if g.name < 0 {
		return nil
	}
	n := &g.file.names[g.name]
	return g.file.setRefs[n.firstRef : n.firstRef+n.refCount]
}

// A Verdict says whether a path may be fetched, and which rule decided. The zero Verdict
// refuses.
type Verdict struct {
	Allow  bool
	GaveUp bool   // matching would take more than MaxEffort steps; Allow is false and Rule is ""
	Rule   string // the pattern as written, which shares the File's memory; "" if no rule matched
	Line   int    // line of the rule, from 1; 0 if no rule matched. With Dialect.EmptyRules it may be that of an empty rule.
}
