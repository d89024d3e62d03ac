package robots

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"
)

// Extension lines beyond these limits are not parsed. Real files stay far below them.
const (
	maxExtensions     = 1000     // lines of a file
	maxExtension      = 2 << 10  // bytes of a value
	maxExtensionsSize = 64 << 10 // bytes of all values of a file
)

// A Signal is what a site says about one use of its pages.
type Signal uint8

// The values of a Signal. The zero Signal says nothing.
const (
	Unsaid Signal = iota
	Yes
	No
)

// String returns "", "yes" or "no".
func (s Signal) String() string { return [...]string{Unsaid: "", Yes: "yes", No: "no"}[min(s, No)] }

// Signals are the Content-Signal lines of a group (contentsignals.org): whether its pages may be
// used in a search index, as input to a model that answers, and to train one. If lines
// contradict each other, No counts.
type Signals struct{ Search, AIInput, AITrain Signal }

// String returns the signals in the form of a line, "search=yes, ai-train=no"; "" if there are
// none.
func (s Signals) String() string {
	if s == (Signals{}) {
		return ""
	}
	var said []string
	for _, one := range []struct {
		key string
		Signal
	}{{"search", s.Search}, {"ai-input", s.AIInput}, {"ai-train", s.AITrain}} {
		if one.Signal != Unsaid {
			said = append(said, one.key+"="+one.Signal.String())
		}
	}
	return strings.Join(said, ", ")
}

// of returns the field that a key names, or nil.
func (s *Signals) of(key string) *Signal {
	switch key {
	case "search":
		return &s.Search
	case "ai-input":
		return &s.AIInput
	case "ai-train":
		return &s.AITrain
	}
	return nil
}

func (s *Signals) merge(t Signals) {
	s.Search = max(s.Search, t.Search)
	s.AIInput = max(s.AIInput, t.AIInput)
	s.AITrain = max(s.AITrain, t.AITrain)
}

// Sitemaps returns the values of the Sitemap lines, as written (sitemaps.org). They are
// untrusted text and apply to the whole site.
func (f *File) Sitemaps() []string {
	if f == nil || f.ext == nil {
		return nil
	}
	return slices.Clone(f.ext.sitemaps)
}

// Licenses returns the values of the License lines, as written: where the license terms for a
// site's pages are (Really Simple Licensing 1.0).
func (f *File) Licenses() []string {
	if f == nil || f.ext == nil {
		return nil
	}
	return slices.Clone(f.ext.licenses)
}

// ContentSignals returns the signals of the group's Content-Signal lines.
func (g Group) ContentSignals() Signals {
	if g.file == nil || g.name < 0 || g.file.ext == nil || g.file.ext.signals == nil {
		return Signals{}
	}
	return g.file.ext.signals[g.name]
}

// ContentUsage returns the preferences that the group states for a path, such as "train-ai=n",
// as written: those of the Content-Usage line with the longest matching pattern
// (draft-ietf-aipref-attach); "" if there are none. Lines with the same pattern are joined by
// commas. ContentUsage does not check whether the path is allowed.
func (g Group) ContentUsage(pathAndQuery string) string {
	if g.file == nil || g.name < 0 || g.file.ext == nil || g.file.ext.usageRules == nil {
		return ""
	}
	e := g.file.ext
	u := e.usageRules.group(g.name, g.token)
	line := u.Match(pathAndQuery).Line
	at, found := slices.BinarySearchFunc(e.usages, line, func(u usage, line int) int { return cmp.Compare(u.line, line) })
	if !found {
		return ""
	}
	var said []string
	for _, other := range e.usages {
		if other.form == e.usages[at].form && slices.Contains(u.setRefs(), other.set) {
			said = append(said, other.expression)
		}
	}
	return strings.Join(said, ", ")
}

// extensions are what a File keeps of its extension lines.
type extensions struct {
	sitemaps, licenses []string
	signals            []Signals // of each name in File.names; nil: none
	usageRules         *File     // a File with the same names whose rules are the patterns of Content-Usage; nil: none
	usages             []usage   // in the order of their lines
}

// A usage is a Content-Usage line of a File.
type usage struct {
	line             int
	form, expression string // its normalised pattern, and its preference
	set              uint32 // in File.ruleSets: that of its block
}

func (e *extensions) size() int {
	if e == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*e)) + len(e.signals)*int(unsafe.Sizeof(Signals{}))
	if e.usageRules != nil {
		n += e.usageRules.Size() - e.usageRules.namesSize() // they are the file's own
	}
	for _, u := range e.usages {
		n += len(u.form) + int(unsafe.Sizeof(u))
	}
	return n + (cap(e.sitemaps)+cap(e.licenses))*int(unsafe.Sizeof("")) // the text of all is part of the source
}

// extensionLines are the extension lines of a file.
type extensionLines struct {
	lines, size        int // accepted so far
	sitemaps, licenses []string
	signals            []blockSignals
	usages             []blockUsage
}

type blockSignals struct {
	block int
	Signals
}

type blockUsage struct {
	block, line         int
	pattern, expression string
}

// accept reports whether a value stays within the limits, and counts it.
func (e *extensionLines) accept(value string) bool {
	if len(value) == 0 || len(value) > maxExtension || e.lines == maxExtensions || e.size+len(value) > maxExtensionsSize {
		return false
	}
	e.lines++
	e.size += len(value)
	return true
}

func (e *extensionLines) addLink(f field, value string) {
	switch {
	case !e.accept(value):
	case f == fieldSitemap:
		e.sitemaps = append(e.sitemaps, value)
	default:
		e.licenses = append(e.licenses, value)
	}
}

// addSignals parses "search=yes, ai-train=no"; it ignores unknown signals.
func (e *extensionLines) addSignals(value string, block int) {
	if !e.accept(value) {
		return
	}
	signals, _ := parseSignals(value)
	e.signals = append(e.signals, blockSignals{block, signals})
}

// parseSignals parses the value of a Content-Signal line. whole reports whether it knows all of
// it.
func parseSignals(value string) (signals Signals, whole bool) {
	whole = true
	for part := range strings.SplitSeq(strings.ToLower(value), ",") {
		key, said, _ := strings.Cut(part, "=")
		s := signals.of(trimSpace(key))
		switch said = trimSpace(said); {
		case s != nil && said == "yes":
			*s = max(*s, Yes)
		case s != nil && said == "no":
			*s = No
		default:
			whole = false
		}
	}
	return signals, whole
}

// addUsage parses "train-ai=n", which applies to every path, or "/pattern train-ai=n".
func (e *extensionLines) addUsage(value string, line, block int) {
	if !e.accept(value) {
		return
	}
	u := blockUsage{block, line, "/", value}
	if value[0] == '/' || value[0] == '*' {
		end := strings.IndexAny(value, " \t")
		if end < 0 {
			return // no preference
		}
		u.pattern, u.expression = value[:end], trimSpace(value[end:])
	}
	e.usages = append(e.usages, u)
}

// addExtras compiles the extension lines, if there are any.
func (c *compiler) addExtras(keys []nameKey) {
	if c.ext.lines == 0 {
		return
	}
	e := &extensions{sitemaps: c.ext.sitemaps, licenses: c.ext.licenses}
	c.file.ext = e
	if len(c.ext.signals) > 0 {
		e.signals = c.nameSignals(keys)
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
		s.addRule(pattern, u.line, false)
		e.usages = append(e.usages, usage{u.line, s.normalisePattern(pattern), u.expression, uint32(c.setOf[u.block])})
	}
	s.blocks = c.blocks
	e.usageRules = compile(s)
	e.usageRules.names, e.usageRules.setRefs, e.usageRules.nameText = c.file.names, c.file.setRefs, c.file.nameText // the same again
}

// nameSignals returns the signals of each name.
func (c *compiler) nameSignals(keys []nameKey) []Signals {
	blocks := make([]Signals, c.blocks)
	for _, s := range c.ext.signals {
		blocks[s.block].merge(s.Signals)
	}
	names := make([]Signals, len(c.file.names))
	for _, k := range keys {
		if at := c.file.nameIndex(k.text); c.file.names[at].partial == k.partial {
			names[at].merge(blocks[k.block])
		}
	}
	return names
}
