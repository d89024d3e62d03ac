package robots

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"
)

// Extensions say nothing about what may be fetched. They are kept within
// these bounds, which real files stay far below, and the rest is not read.
const (
	maxExtensions     = 1000     // lines of a file
	maxExtension      = 2 << 10  // octets of a value
	maxExtensionsSize = 64 << 10 // octets of all values of a file
)

// A Signal is what a site says of one use of its pages.
type Signal uint8

// What it may say. The zero Signal says nothing.
const (
	Unsaid Signal = iota
	Yes
	No
)

// String gives "", "yes" or "no".
func (s Signal) String() string { return [...]string{Unsaid: "", Yes: "yes", No: "no"}[min(s, No)] }

// Signals are a group's Content-Signal lines (contentsignals.org): whether its
// pages may be used in a search index, as input to a model that answers, and
// to train one. Where lines contradict each other, No counts.
type Signals struct{ Search, AIInput, AITrain Signal }

// String gives what is said as in a line, "search=yes, ai-train=no"; "" for nothing.
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

// of gives the field that a key names, or nil.
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

// Sitemaps gives the values of the Sitemap lines, as written (sitemaps.org).
// They are a stranger's text, and speak of the whole site.
func (f *File) Sitemaps() []string {
	if f == nil || f.extras == nil {
		return nil
	}
	return slices.Clone(f.extras.sitemaps)
}

// Licenses gives the values of the License lines, as written: where the terms
// for a site's pages are (Really Simple Licensing 1.0).
func (f *File) Licenses() []string {
	if f == nil || f.extras == nil {
		return nil
	}
	return slices.Clone(f.extras.licenses)
}

// ContentSignals gives what the group's Content-Signal lines say.
func (g Group) ContentSignals() Signals {
	if g.file == nil || g.name < 0 || g.file.extras == nil || g.file.extras.signals == nil {
		return Signals{}
	}
	return g.file.extras.signals[g.name]
}

// ContentUsage gives the preferences that the group states for a path, such as
// "train-ai=n", as written: those of the Content-Usage line whose pattern
// matches with the most octets (draft-ietf-aipref-attach); "" for none. Several
// lines of one pattern are joined by commas. Whether the path may be fetched is
// not asked.
func (g Group) ContentUsage(pathAndQuery string) string {
	if g.file == nil || g.name < 0 || g.file.extras == nil || g.file.extras.usage == nil {
		return ""
	}
	e := g.file.extras
	u := e.usage.group(g.name, g.token)
	line := u.Match(pathAndQuery).Line
	at, found := slices.BinarySearchFunc(e.usages, line, func(u usage, line int) int { return cmp.Compare(u.line, line) })
	if !found {
		return ""
	}
	var said []string
	for _, other := range e.usages {
		if other.form == e.usages[at].form && slices.Contains(u.sets(), other.set) {
			said = append(said, other.expression)
		}
	}
	return strings.Join(said, ", ")
}

// extras are what a File keeps of its extensions.
type extras struct {
	sitemaps, licenses []string
	signals            []Signals // of each name in File.names; nil: none
	usage              *File     // has the same names, and patterns of Content-Usage for rules; nil: none
	usages             []usage   // in order of their lines
}

// A usage is a Content-Usage line of a File.
type usage struct {
	line             int
	form, expression string // its pattern in the one form, and what it prefers
	set              uint32 // in File.sets: that of its block
}

func (e *extras) size() int {
	if e == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*e)) + len(e.signals)*int(unsafe.Sizeof(Signals{}))
	if e.usage != nil {
		n += e.usage.Size() - e.usage.namesSize() // they are the file's own
	}
	for _, u := range e.usages {
		n += len(u.form) + int(unsafe.Sizeof(u))
	}
	return n + (cap(e.sitemaps)+cap(e.licenses))*int(unsafe.Sizeof("")) // the text of all is part of the source
}

// extensions are what the lines of a file say beside its rules.
type extensions struct {
	lines, octets      int // taken so far
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

// take reports whether a value stays within bounds.
func (e *extensions) take(value string) bool {
	if len(value) == 0 || len(value) > maxExtension || e.lines == maxExtensions || e.octets+len(value) > maxExtensionsSize {
		return false
	}
	e.lines++
	e.octets += len(value)
	return true
}

func (e *extensions) addLink(f field, value string) {
	switch {
	case !e.take(value):
	case f == fieldSitemap:
		e.sitemaps = append(e.sitemaps, value)
	default:
		e.licenses = append(e.licenses, value)
	}
}

// addSignals reads "search=yes, ai-train=no"; what it does not know says nothing.
func (e *extensions) addSignals(value string, block int) {
	if !e.take(value) {
		return
	}
	signals, _ := parseSignals(value)
	e.signals = append(e.signals, blockSignals{block, signals})
}

// parseSignals also gives whether all of the value was understood.
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

// addUsage reads "train-ai=n", for every path, or "/pattern train-ai=n".
func (e *extensions) addUsage(value string, line, block int) {
	if !e.take(value) {
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

// addExtras compiles the extensions, if there are any.
func (c *compiler) addExtras(keys []key) {
	if c.extra.lines == 0 {
		return
	}
	e := &extras{sitemaps: c.extra.sitemaps, licenses: c.extra.licenses}
	c.file.extras = e
	if len(c.extra.signals) > 0 {
		e.signals = c.nameSignals(keys)
	}
	if len(c.extra.usages) > 0 {
		c.addUsages(e)
	}
}

// addUsages compiles the patterns of Content-Usage as a File of its own, whose
// names are those of the file.
func (c *compiler) addUsages(e *extras) {
	var patterns strings.Builder
	for _, u := range c.extra.usages {
		patterns.WriteString(u.pattern)
	}
	s := &statements{dialect: c.dialect, source: patterns.String(), agents: c.agents, runs: c.runs}
	rest := s.source
	for _, u := range c.extra.usages {
		pattern := rest[:len(u.pattern)]
		rest = rest[len(u.pattern):]
		s.blocks = u.block + 1
		s.addRule(pattern, u.line, false)
		e.usages = append(e.usages, usage{u.line, s.oneForm(pattern), u.expression, uint32(c.sets[u.block])})
	}
	s.blocks = c.blocks
	e.usage = compile(s)
	e.usage.names, e.usage.refs, e.usage.words = c.file.names, c.file.refs, c.file.words // the same again
}

// nameSignals gives the signals of each name.
func (c *compiler) nameSignals(keys []key) []Signals {
	blocks := make([]Signals, c.blocks)
	for _, s := range c.extra.signals {
		blocks[s.block].merge(s.Signals)
	}
	names := make([]Signals, len(c.file.names))
	for _, k := range keys {
		if at := c.file.find(k.text); c.file.names[at].cut == k.cut {
			names[at].merge(blocks[k.block])
		}
	}
	return names
}
