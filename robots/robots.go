// Package robots parses robots.txt files and matches paths against them as RFC 9309 defines. A
// [Dialect] selects the reading: RFC 9309 itself, or what a search engine makes of it; see
// [Dialects].
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
// hostile rules take more than [MaxEffort] steps, it gives up and refuses; see [Verdict]. The time
// of Parse and the memory of a File are proportional to the length of the text.
//
// Sitemap, License, Content-Signal and Content-Usage lines are parsed and returned, but never
// change a verdict. [Lint], [Outline], [Excerpt] and [Group.RelatedRules] explain a file or a
// verdict.
package robots

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"
	"time"
	"unsafe"
)

// A File is one compiled robots.txt. A nil File refuses everything.
type File struct {
	// source is the parsed text. Patterns as written are substrings of it.
	source string

	// nameText is what the names are substrings of.
	nameText string

	// names are sorted by their text.
	names []agentName

	// setRefs has for each name the indices of its ruleSets, in order.
	setRefs  []uint32
	ruleSets []ruleSet

	// tries are those of ruleSets.
	tries

	// ext is nil in most files.
	ext     *extensions
	dialect *Dialect
}

// An agentName is a name under which a client finds its group.
type agentName struct {
	// start and size say where the name is in File.nameText, in lower case.
	start, size uint32

	// firstRef and refCount say where its rule sets are in File.setRefs.
	firstRef, refCount uint32

	// delay is the longest one that the file asks of the agent, and delayLine the line that does.
	// Both are 0 if none does.
	delay     time.Duration
	delayLine uint32

	// partial says that no group has this name in full: it is the leading letters of longer names.
	partial bool
}

// A ruleSet is the rules of all blocks that name the same agents. Most files have one for each
// block. An agent that several blocks name together with different agents has several rule sets:
// to merge these for each agent would let a small file take memory for the product of its agents
// and its rules.
type ruleSet struct {
	// root is an index in File.nodes.
	root uint32

	// longestDisallowAll is the size of the longest Disallow that matches every path; -1: none does.
	longestDisallowAll int32

	// longestAllow is the size of the longest Allow; -1: there is none.
	longestAllow int32
}

// A join is a name that a block lists only before a line that divides its list of agents. The lines
// between from and until apply to it nevertheless.
type join struct {
	// name is an index in File.names.
	name uint32

	// line is that of the block's first User-agent line with the name.
	line uint32

	// from is the line of the first agent after the last part with the name.
	from uint32

	// until is the line where the next block begins.
	until uint32
}

// extensions are what a File has beside groups and rules. Most files have none of it.
type extensions struct {
	// coding is how the text was encoded; see Decode.
	coding string

	// origin is that of the file if a rule is a URL of it. Otherwise it is zero.
	origin Origin

	// joins are sorted by name and line.
	joins                   []join
	sitemaps, licenses      []string
	signals, usages, visits preferences
}

// preferences are the Content-Signal, Content-Usage or Visit-time lines of a File.
type preferences struct {
	// The lines are in the order of the file.
	lines []preference

	// groups has the names of the File. Its rule sets, which are empty, tell which lines apply to a
	// name. It is nil if there are no lines.
	groups *File
}

// A preference is a Content-Usage, Content-Signal or Visit-time line of a File.
type preference struct {
	UsageLine

	// set is an index in preferences.groups.ruleSets, or everySet. It is -1 if the line applies to
	// nobody.
	set int32

	// size is that of the pattern; see rule.
	size uint16

	// pattern is "" in both forms if the line applies to all paths.
	pattern forms

	// signals are what a Content-Signal line says.
	signals Signals
}

// everySet is the set of a line that applies to every agent.
const everySet = -2

// all yields the lines for a group.
func (p *preferences) all(g Group) iter.Seq[*preference] {
	return func(yield func(*preference) bool) {
		if len(p.lines) == 0 {
			return
		}
		sets := Group{file: p.groups, name: g.name}.setRefs()
		for i := range p.lines {
			l := &p.lines[i]
			if _, found := slices.BinarySearch(sets, uint32(l.set)); !found && l.set != everySet {
				continue
			}
			if !yield(l) {
				return
			}
		}
	}
}

// linesFor returns the lines for a group that apply to a path, and adds the steps it takes to
// *spent. If *spent exceeds MaxEffort, it returns all lines for the group.
func (p *preferences) linesFor(g Group, pathAndQuery string, spent *Effort) []*preference {
	var all, applying []*preference
	var path forms
	for l := range p.all(g) {
		all = append(all, l)
		if l.pattern.normalised == "" {
			applying = append(applying, l)
			continue
		}
		if path.normalised == "" {
			path = g.file.forms(pathAndQuery)
		}
		if *spent <= MaxEffort {
			*spent += Effort(1 + (len(path.normalised)+len(path.unified))/scanPerStep)
		}
		if *spent <= MaxEffort && l.pattern.match(path) {
			applying = append(applying, l)
		}
	}
	if *spent > MaxEffort {
		return all
	}
	return applying
}

func (p *preferences) size(nameText int) (n int) {
	if p.groups != nil {
		n = p.groups.Size() - nameText
	}
	for i := range p.lines {
		pattern := &p.lines[i].pattern
		n += int(unsafe.Sizeof(p.lines[i])) + len(pattern.normalised)
		if pattern.unified != pattern.normalised {
			n += len(pattern.unified)
		}
	}
	return n
}

func (e *extensions) size(nameText int) int {
	if e == nil {
		return 0
	}
	return int(unsafe.Sizeof(*e)) + cap(e.joins)*int(unsafe.Sizeof(join{})) +
		e.signals.size(nameText) + e.usages.size(nameText) + e.visits.size(nameText) +
		// The text of links is part of the source.
		(cap(e.sitemaps)+cap(e.licenses))*int(unsafe.Sizeof(""))
}

// For returns the group that applies to a client with these product tokens, the most significant
// first (see [ProductTokens]). The first token that names a group wins, without regard to case.
// If no token names a group, the group "*" applies. If there is no group "*" either, no group
// applies and everything is allowed. Groups of the same name are combined (RFC 9309 2.2.1).
//
// A User-agent line names a group by its whole word. If no line has the token as its whole word,
// the leading letters, "-" and "_" of a word name the group too: these are all the characters
// that RFC 9309 allows in a product token. So "User-agent: FooBot2" also applies to the client
// "FooBot". If another token of the client is such a whole word, only the group of that word
// applies.
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
		return Group{f, at, token}
	}
	g := Group{file: f, name: f.nameIndex("*")}
	if len(tokens) > 0 {
		g.token = tokens[0]
	}
	return g
}

// lookup returns the index of the name for a token, or -1. It is the token itself or, under a
// dialect with NamePrefixes, the longest name that the token continues with a "-", "_" or ".".
func (f *File) lookup(token string) int {
	// No name is longer than a line.
	full := leadingName(token[:min(len(token), maxLine)])
	run := len(leadingLetters(full))
	for {
		if !f.dialect.LettersOnly || len(full) <= run {
			if at := f.nameIndex(full); at >= 0 {
				return at
			}
		}
		if !f.dialect.NamePrefixes {
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
			return Group{f, at, token}, true
		}
	}
	return Group{}, false
}

// nameIndex returns the index of a name, whose case does not matter, or -1.
func (f *File) nameIndex(s string) int {
	at, found := sort.Find(len(f.names), func(i int) int { return -compareFold(f.nameAt(i), s) })
	if !found {
		return -1
	}
	return at
}

func (f *File) nameAt(at int) string {
	n := &f.names[at]
	return f.nameText[n.start : n.start+n.size]
}

// written returns the pattern of a rule as the file contains it.
func (f *File) written(r *rule) string { return f.source[r.text : r.text+uint32(r.written)] }

// forms returns the forms in which a path is compared with patterns.
func (f *File) forms(pathAndQuery string) forms {
	normalised, unified := f.dialect.appendForms(nil, pathAndQuery)
	if unified == nil {
		unified = normalised
	}
	return forms{string(normalised), string(unified)}
}

// Dialect returns the dialect in which f was parsed; the zero Dialect of a nil File.
func (f *File) Dialect() Dialect {
	if f == nil {
		return Dialect{}
	}
	return *f.dialect
}

// Coding returns how the text was encoded; see [Decode].
func (f *File) Coding() string { return f.extensions().coding }

// Size returns the number of bytes of memory that f takes, without the text it was parsed from.
func (f *File) Size() int {
	if f == nil {
		return 0
	}
	size := int(unsafe.Sizeof(*f)) + len(f.firstBytes) + f.ext.size(len(f.nameText)) + len(f.nameText) +
		cap(f.names)*int(unsafe.Sizeof(agentName{})) +
		cap(f.setRefs)*int(unsafe.Sizeof(uint32(0))) +
		cap(f.ruleSets)*int(unsafe.Sizeof(ruleSet{})) +
		cap(f.nodes)*int(unsafe.Sizeof(node{})) +
		cap(f.rules)*int(unsafe.Sizeof(rule{}))
	if unsafe.StringData(f.labels) != unsafe.StringData(f.source) {
		size += len(f.labels)
	}
	if f.Coding() != "" {
		size += len(f.source)
	}
	return size
}

// Rules returns how many rules f has, in all its groups together.
func (f *File) Rules() int {
	if f == nil {
		return 0
	}
	n := 0
	for i := range f.rules {
		// A rule whose forms differ is there once for each form.
		if !f.rules[i].is(flagUnifiedOnly) {
			n++
		}
	}
	return n
}

// Sitemaps returns the values of the Sitemap lines, as written (sitemaps.org). They are
// untrusted text and apply to the whole site.
func (f *File) Sitemaps() []string { return slices.Clone(f.extensions().sitemaps) }

// Licenses returns the values of the License lines, as written: where the license terms for a
// site's pages are (Really Simple Licensing 1.0).
func (f *File) Licenses() []string { return slices.Clone(f.extensions().licenses) }

// extensions returns what a File, which may be nil, has beside groups and rules.
func (f *File) extensions() *extensions {
	if f == nil || f.ext == nil {
		return &noExtensions
	}
	return f.ext
}

// noExtensions is what most files have beside groups and rules. It never changes.
var noExtensions extensions

// A Group is the rules of one File for one client. It is a small value; any number of goroutines
// may share it. The zero Group refuses everything.
type Group struct {
	file *File

	// name is an index in file.names; -1: no group applies.
	name int

	// token is what Token returns.
	token string
}

// Match matches a path with its query and without its fragment, as it is in a URL, escaped or
// not. The longest matching rule decides; Allow wins among rules of equal length (RFC 9309
// 2.2.2). If no rule matches, the path is allowed. An empty path counts as "/".
func (g Group) Match(pathAndQuery string) Verdict {
	var spent Effort
	return g.MatchWithin(pathAndQuery, &spent)
}

// MatchWithin is Match for one of several forms of a path. It adds the steps it takes to *spent,
// and gives up when *spent exceeds [MaxEffort]. The bytes of the forms in which the path is compared
// count as steps, so that a byte costs as much as its percent-encoding, and gets the same verdict.
func (g Group) MatchWithin(pathAndQuery string, spent *Effort) Verdict {
	if g.file == nil {
		return Verdict{}
	}
	d := g.file.dialect
	if d.AsWritten && isWritten(pathAndQuery) || !d.AsWritten && isNormal(pathAndQuery) {
		return g.match(pathAndQuery, "", spent)
	}
	var buf [1 << 10]byte
	normalised, unified := d.appendForms(buf[:0], pathAndQuery)
	*spent += Effort(len(normalised)/normalisePerStep + len(unified)/normalisePerStep)
	return g.match(stringOf(normalised), stringOf(unified), spent)
}

// stringOf returns bytes as a string without a copy. Nobody may change them while it is used.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// match matches the normalised form of a path and then, unless it is "", the unified form. It keeps
// neither.
func (g Group) match(path, unified string, spent *Effort) Verdict {
	m := matcher{tries: &g.file.tries, stepsLeft: int(MaxEffort - *spent)}
	if unified != "" {
		m.ignored = flagUnifiedOnly
	}
	m.matchTries(g, path)
	if unified != "" && m.stepsLeft >= 0 {
		m.ignored = flagNormalisedOnly
		m.matchTries(g, unified)
	}
	*spent = MaxEffort - Effort(m.stepsLeft)
	switch {
	case m.stepsLeft < 0:
		return Verdict{GaveUp: true}
	case m.best == nil:
		return Verdict{Allow: true}
	}
	return Verdict{
		Allow: m.best.is(flagAllow) || m.best.written == 0,
		Rule:  g.file.written(m.best),
		Line:  int(m.best.meta & maskLine),
	}
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

// CrawlDelay returns the delay that the file asks for, without a limit. 0 means none.
func (g Group) CrawlDelay() time.Duration { return g.agent().delay }

// DelayLine returns the line that sets CrawlDelay, from 1; 0 without a delay.
func (g Group) DelayLine() int { return int(g.agent().delayLine) }

// agent returns the entry of the group's name, which is zero if no group applies.
func (g Group) agent() agentName {
	if g.file == nil || g.name < 0 {
		return agentName{}
	}
	return g.file.names[g.name]
}

// JoinedAgent returns the first User-agent line that names the group in the list of agents of a rule or
// preference, if the list names the group only before a line that does not end it, such as Crawl-delay
// (RFC 9309 2.2.4): the author may not have meant that. It returns 0 otherwise. line is that of the rule.
func (g Group) JoinedAgent(line int) int {
	joins := g.file.extensions().joins
	if g.name < 0 || len(joins) == 0 {
		return 0
	}
	after, _ := slices.BinarySearchFunc(joins, join{name: uint32(g.name), line: uint32(line)}, func(a, b join) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.line, b.line))
	})
	if after == 0 {
		return 0
	}
	if j := joins[after-1]; j.name == uint32(g.name) && j.from < uint32(line) && uint32(line) < j.until {
		return int(j.line)
	}
	return 0
}

// ContentSignals returns the signals of the group's Content-Signal lines for all paths, combined, and
// of what they say nothing those of the lines before the first group.
func (g Group) ContentSignals() Signals {
	var own, every Signals
	for l := range g.file.extensions().signals.all(g) {
		switch {
		case l.pattern.normalised != "":
		case l.set == everySet:
			every.merge(l.signals)
		default:
			own.merge(l.signals)
		}
	}
	own.fill(every)
	return own
}

// ContentSignalLines returns the Content-Signal lines for the group that apply to a path, in their order:
// those for all paths, and those that begin with a pattern that matches. It adds the steps it takes to
// *spent. If *spent exceeds [MaxEffort], it returns all lines for the group.
func (g Group) ContentSignalLines(pathAndQuery string, spent *Effort) (lines []UsageLine) {
	for _, l := range g.file.extensions().signals.linesFor(g, pathAndQuery, spent) {
		lines = append(lines, l.UsageLine)
	}
	return lines
}

// HasPathPreferences reports whether the file has preferences for some paths, of whatever groups.
func (g Group) HasPathPreferences() bool {
	e := g.file.extensions()
	return len(e.usages.lines) > 0 || slices.ContainsFunc(e.signals.lines, func(l preference) bool { return l.pattern.normalised != "" })
}

// ContentUsage returns the Content-Usage lines that apply to a path: those with the longest matching
// pattern, in their order (draft-ietf-aipref-attach, Content-Usage Rule Semantics). Each is a statement
// of its own. Of different patterns that are equally long, all count. ContentUsage does not check whether
// the path is allowed.
func (g Group) ContentUsage(pathAndQuery string) []UsageLine {
	var spent Effort
	return g.ContentUsageWithin(pathAndQuery, &spent)
}

// ContentUsageWithin is ContentUsage for one of several forms of a path. It adds the steps it takes to
// *spent. If *spent exceeds [MaxEffort], it returns all lines of the group, any of which may apply.
func (g Group) ContentUsageWithin(pathAndQuery string, spent *Effort) (lines []UsageLine) {
	applying := g.file.extensions().usages.linesFor(g, pathAndQuery, spent)
	longest := uint16(0)
	for _, l := range applying {
		longest = max(longest, l.size)
	}
	for _, l := range applying {
		if l.size == longest || *spent > MaxEffort {
			lines = append(lines, l.UsageLine)
		}
	}
	return lines
}

// DisallowsAll reports whether no path at all is allowed: a Disallow matches every path, and no
// Allow is long enough to win over it.
func (g Group) DisallowsAll() bool {
	if g.file == nil {
		return true
	}
	longest := ruleSet{longestDisallowAll: -1, longestAllow: -1}
	for _, set := range g.setRefs() {
		s := g.file.ruleSets[set]
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
	Allow bool

	// GaveUp says that matching would take more than MaxEffort steps. Allow is then false and Rule
	// is "".
	GaveUp bool

	// Rule is the pattern as written, which shares the File's memory. It is "" if no rule matched.
	Rule string

	// Line is that of the rule, from 1. It is 0 if no rule matched, except that with
	// Dialect.EmptyRules it may be that of an empty rule.
	Line int
}
