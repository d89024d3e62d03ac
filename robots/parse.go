package robots

import (
	"iter"
	"strings"
	"time"
	"unsafe"
)

// MaxBytes is the maximum number of bytes of a file that are parsed: the minimum that RFC 9309
// 2.5 requires a crawler to parse.
const MaxBytes = 500 << 10

// maxLine is the maximum number of bytes of a line that are parsed. Google's open-source parser
// has the same limit: eight times the longest URL of an old browser.
const maxLine = 16663

// parseText parses a text that is decoded, at most MaxBytes of it. origin is that of the file, or
// zero if it is not known.
func parseText(text string, d Dialect, origin Origin) *parsed {
	text = text[:min(len(text), MaxBytes)]
	s := &parsed{
		dialect: d,
		origin:  origin,
		source:  text,
		// This is enough for most large files, so that append need not grow it.
		rules: make([]parsedRule, 0, len(text)/24),
	}
	for number, line := range lines(text) {
		f, value := splitLine(line, &s.dialect)
		s.addLine(f, value, number)
	}
	return s
}

// lines yields the lines of text with their numbers, from 1. A line ends at CR, LF or CRLF (RFC
// 9309 2.2, EOL).
func lines(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if len(text) >= MaxBytes {
			text = text[:MaxBytes]
			text = text[:strings.LastIndexAny(text, "\r\n")+1]
		}
		number := 0
		for rest := trimBOM(text); len(rest) > 0; {
			// Two steps search a file without any LF for LF only once.
			var part string
			var found bool
			part, rest, found = strings.Cut(rest, "\n")
			if found {
				part = strings.TrimSuffix(part, "\r")
			}
			for more := true; more; {
				var line string
				line, part, more = strings.Cut(part, "\r")
				number++
				if !yield(number, line) {
					return
				}
			}
		}
	}
}

// trimBOM removes a UTF-8 byte order mark, or the beginning of one.
func trimBOM(text string) string {
	const bom = "\xEF\xBB\xBF"
	i := 0
	for i < len(bom) && i < len(text) && text[i] == bom[i] {
		i++
	}
	return text[i:]
}

// A field is the kind of a line.
type field uint8

const (
	// The line has no content.
	fieldNone field = iota
	// The line is not parsed.
	fieldUnknown
	fieldUserAgent
	fieldAllow
	fieldDisallow
	fieldCrawlDelay
	fieldRequestRate
	fieldSitemap
	fieldLicense
	fieldContentSignal
	fieldContentUsage
	fieldVisitTime
)

// spellings are the field names, in lower case. A line has a field if it begins with its name.
var spellings = [...]struct {
	text  string
	field field

	// misspelt names count only with Dialect.Misspellings.
	misspelt bool

	// careful names count only with Dialect.Careful.
	careful bool
}{
	{text: "disallow", field: fieldDisallow},
	{text: "allow", field: fieldAllow},
	{text: "user-agent", field: fieldUserAgent},
	{text: "crawl-delay", field: fieldCrawlDelay},
	{text: "sitemap", field: fieldSitemap},
	{text: "license", field: fieldLicense},
	{text: "content-signal", field: fieldContentSignal},
	{text: "content-usage", field: fieldContentUsage},
	{text: "visit-time", field: fieldVisitTime},
	{text: "request-rate", field: fieldRequestRate, careful: true},
	{text: "crawldelay", field: fieldCrawlDelay, misspelt: true},
	{text: "crawl delay", field: fieldCrawlDelay, misspelt: true, careful: true},
	{text: "useragent", field: fieldUserAgent, misspelt: true},
	{text: "user agent", field: fieldUserAgent, misspelt: true},
	{text: "dissallow", field: fieldDisallow, misspelt: true},
	{text: "dissalow", field: fieldDisallow, misspelt: true},
	{text: "disalow", field: fieldDisallow, misspelt: true},
	{text: "diasllow", field: fieldDisallow, misspelt: true},
	{text: "disallaw", field: fieldDisallow, misspelt: true},
	{text: "site-map", field: fieldSitemap, misspelt: true},
}

// maxListed is how many names that follow a comma are read in a file. Real files have a few.
const maxListed = 1000

// splitLine splits a line as Google's open-source parser does: a field, a colon and a value.
// With Dialect.Misspellings, misspelt field names count, and so do two words without a colon between
// them.
func splitLine(line string, d *Dialect) (field, string) {
	line = lineContent(line)
	if line == "" {
		return fieldNone, ""
	}
	if i := strings.IndexByte(line, ':'); i >= 0 {
		return fieldOf(line[:i], d), trimSpace(line[i+1:])
	}
	if !d.Misspellings {
		return fieldUnknown, ""
	}
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		if value := strings.TrimLeft(line[i:], " \t"); !strings.ContainsAny(value, " \t") {
			return fieldOf(line[:i], d), trimSpace(value)
		}
	}
	return fieldUnknown, ""
}

// lineContent returns the part of a line that is parsed: up to NUL, without its comment.
func lineContent(line string) string {
	line = line[:min(len(line), maxLine)]
	if i := strings.IndexByte(line, 0); i >= 0 {
		line = line[:i]
	}
	if i := strings.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	return trimSpace(line)
}

// fieldOf returns the field that key begins with, or fieldUnknown.
func fieldOf(key string, d *Dialect) field {
	for i := range spellings {
		if s := &spellings[i]; hasPrefixFold(key, s.text) && (d.Misspellings || !s.misspelt) && (d.Careful || !s.careful) {
			return s.field
		}
	}
	return fieldUnknown
}

// A parsed is the content of the lines of a file.
type parsed struct {
	dialect Dialect
	origin  Origin

	// coding is how the text was encoded; see Decode.
	coding string

	// source is the text.
	source string

	// agents are the names in User-agent lines, in their order, and blocks is how many lists of
	// agents there are.
	agents []agentLine
	blocks int

	// blockStart is the index in agents of the first agent of the current block.
	blockStart int

	// parts counts those of all blocks together; see agentLine.
	parts int

	// listed counts the names that follow a comma, up to maxListed.
	listed int

	// names are what the method keys returns, once it was called.
	names []nameKey
	rules []parsedRule

	// formText has the forms of patterns that differ from the patterns as written.
	formText []byte

	// delays has one delay for each of delayRuns.
	delays    []delay
	delayRuns []agentRun
	ext       extensionLines

	// hasRule says that the current block has a rule: the next User-agent line begins another block.
	hasRule bool

	// parted says that the last line with content was no User-agent line: the next one begins
	// another part.
	parted bool

	// joined says that a block has several parts.
	joined bool

	// ownURLs says that a rule is a URL of origin.
	ownURLs bool
}

// An agentLine is one name in a User-agent line. A block is a list of agents and the rules that follow
// it (RFC 9309 2.2, group). A part of the list is what stands between lines that do not end the list
// (RFC 9309 2.2.4), such as Crawl-delay and Sitemap lines.
type agentLine struct {
	value string
	line  uint32
	block int32
	part  int32

	// delay is an index in parsed.delays, from 1; 0: none.
	delay int32
}

// An agentRun is the agents to which lines of one kind apply that do not end the list of agents:
// those named since the last rule or the last line of the kind. from and to are indices of
// parsed.agents. The runs of a kind follow one another.
type agentRun struct{ from, to int }

// A delay is what Crawl-delay and Request-rate lines say of a run. The slowest one counts.
type delay struct {
	asked time.Duration
	line  uint32
}

// addLine adds a line with its field and value.
func (p *parsed) addLine(f field, value string, line int) {
	grouped := len(p.agents) > 0
	switch f {
	case fieldNone:
		return
	case fieldUserAgent:
		p.addAgents(value, line)
		return
	case fieldAllow, fieldDisallow:
		if grouped {
			p.hasRule = true
			if canMatch(value) {
				p.addRule(value, value, line, f == fieldAllow)
			} else {
				p.addOddRule(value, line, f == fieldAllow)
			}
		}
	case fieldSitemap:
		p.ext.addLink(&p.ext.sitemaps, value)
	case fieldLicense:
		p.ext.addLink(&p.ext.licenses, value)
	case fieldContentSignal:
		switch {
		case grouped:
			p.ext.signalRuns = p.extend(p.ext.signalRuns)
			p.ext.addSignals(value, line, len(p.ext.signalRuns)-1)
		case p.dialect.Careful:
			p.ext.addSignals(value, line, everyRun)
		}
	case fieldContentUsage:
		if grouped {
			p.ext.usageRuns = p.extend(p.ext.usageRuns)
			p.ext.addUsage(value, line, len(p.ext.usageRuns)-1)
			p.hasRule = p.hasRule || p.dialect.UsageRules
		}
	case fieldVisitTime:
		if grouped {
			p.ext.visitRuns = p.extend(p.ext.visitRuns)
			p.ext.addVisit(value, line, len(p.ext.visitRuns)-1)
		}
	case fieldCrawlDelay, fieldRequestRate:
		if grouped && p.dialect.Delay != NoDelay {
			p.addDelay(f, value, line)
		}
	}
	p.parted = true
}

// addAgents adds the names of a User-agent line.
func (p *parsed) addAgents(names string, line int) {
	if len(p.agents) == 0 || p.hasRule {
		p.blocks++
		p.blockStart = len(p.agents)
	} else if p.parted {
		p.joined = true
	}
	if p.parted || len(p.agents) == 0 {
		p.parts++
	}
	p.hasRule, p.parted = false, false
	further := false
	for name := range agentNames(names, &p.dialect) {
		if further {
			if p.listed == maxListed {
				return
			}
			p.listed++
		}
		further = true
		p.agents = append(p.agents, agentLine{value: name, line: uint32(line), block: int32(p.blocks - 1), part: int32(p.parts)})
	}
}

// agentNames yields the names in a User-agent line. A comma in a comment, as whole headers have them,
// divides no names.
func agentNames(value string, d *Dialect) iter.Seq[string] {
	return func(yield func(string) bool) {
		list, _, _ := strings.Cut(value, "(")
		if !d.Careful || strings.IndexByte(list, ',') < 0 {
			yield(value)
			return
		}
		for name := range strings.SplitSeq(list, ",") {
			if name = trimSpace(name); name != "" && !yield(name) {
				return
			}
		}
	}
}

// extend returns runs with the run to which a line of their kind applies as its last one. A second
// line of the kind, without a User-agent line in between, applies to the same agents.
func (p *parsed) extend(runs []agentRun) []agentRun {
	from := p.blockStart
	if n := len(runs); n > 0 {
		if runs[n-1].to == len(p.agents) {
			return runs
		}
		from = max(from, runs[n-1].to)
	}
	return append(runs, agentRun{from, len(p.agents)})
}

// addDelay adds a Crawl-delay or Request-rate line to the agents that it applies to.
func (p *parsed) addDelay(f field, value string, line int) {
	asked, _ := parseDelay(value, &p.dialect)
	if f == fieldRequestRate {
		asked, _, _ = parseRate(value)
	}
	p.delayRuns = p.extend(p.delayRuns)
	if len(p.delays) < len(p.delayRuns) {
		p.delays = append(p.delays, delay{})
		run := p.delayRuns[len(p.delays)-1]
		for i := run.from; i < run.to; i++ {
			p.agents[i].delay = int32(len(p.delays))
		}
	}
	if p.dialect.Delay == DelayOfGroup {
		p.hasRule = true
		asked = (asked + time.Second - 1).Truncate(time.Second)
	}
	if last := &p.delays[len(p.delays)-1]; asked > last.asked {
		*last = delay{asked, uint32(line)}
	}
}

// A parsedRule is a rule before it is in a trie, for one form or for both.
type parsedRule struct {
	rule

	// start and end say where the text is that goes into the trie: the pattern in its form, without
	// its anchor and trailing "*"s. See finalText.
	start, end uint32
	block      uint32
}

// inFormText is set in parsedRule.start if the offset is in parsed.formText, not in source.
const inFormText uint32 = 1 << 31

// addOddRule adds a rule whose value is no pattern, if the dialect reads it nevertheless: an empty
// value, which matches nothing, or a URL.
func (p *parsed) addOddRule(value string, line int, allow bool) {
	switch {
	case value == "" && p.dialect.EmptyRules:
		p.addRule(value, value, line, allow)
	case p.dialect.Careful:
		if pattern, own := ownPath(value, p.origin); own {
			p.ownURLs = true
			p.addRule(value, pattern, line, allow)
		}
	}
}

// ownPath returns the path and query of a URL, as a substring of it, and whether the URL is one of
// the origin.
func ownPath(value string, origin Origin) (pattern string, own bool) {
	scheme, authority, pattern, ok := SplitURL(value)
	if !ok {
		return "", false
	}
	if o, err := ParseOrigin(scheme, authority); err != nil || o != origin {
		return "", false
	}
	if pattern == "" {
		pattern = value[len(scheme)+len(":"):][:len("/")]
	}
	return pattern, pattern[0] == '/'
}

// addRule adds a rule to the current block, once for each form of its pattern. written, the value of
// its line, and pattern are substrings of source.
func (p *parsed) addRule(written, pattern string, line int, allow bool) {
	it := parsedRule{block: uint32(p.blocks - 1), rule: rule{
		text: offsetIn(p.source, written), meta: uint32(line), written: uint16(len(written)),
	}}
	if allow {
		it.meta |= flagAllow
	}
	text, differs := p.patternIn(formNormalised, pattern)
	it.size = p.patternSize(text)
	if differs {
		it.meta |= flagNormalisedOnly
	}
	for {
		if text == pattern {
			it.start = offsetIn(p.source, pattern)
		} else {
			it.start = uint32(len(p.formText)) | inFormText
			p.formText = append(p.formText, text...)
		}
		path := strings.TrimRight(text, "*")
		if len(path) > 0 && pattern[len(pattern)-1] == '$' {
			it.meta |= flagAnchored
			path = path[:len(path)-1]
		}
		it.end = it.start + uint32(len(path))
		p.rules = append(p.rules, it)
		if !differs {
			break
		}
		text, _ = p.patternIn(formUnified, pattern)
		differs = false
		it.meta = it.meta&^flagNormalisedOnly | flagUnifiedOnly
	}
	if allow && p.dialect.IndexPages {
		if slash := strings.LastIndexByte(text, '/'); slash >= 0 && strings.HasPrefix(text[slash:], "/index.htm") {
			it.meta |= flagAnchored
			it.size = uint16(slash + len("/$"))
			it.end = it.start + uint32(slash+1)
			p.rules = append(p.rules, it)
		}
	}
}

// patternSize returns the length of a pattern in its normalised form, by which rules are ranked. A
// "$" counts alike with and without a meaning.
func (p *parsed) patternSize(normalised string) uint16 {
	size := len(normalised)
	if strings.IndexByte(normalised, '%') >= 0 && !p.dialect.AsWritten {
		size -= strings.Count(normalised, literalDollar) * (len(literalDollar) - len("$"))
	}
	return uint16(size)
}

// patternIn returns a pattern in a form for comparison with paths, with its wildcards as "*" and
// its anchor as "$". differs reports whether the two forms differ.
func (p *parsed) patternIn(f form, pattern string) (_ string, differs bool) {
	path, anchored := strings.CutSuffix(pattern, "$")
	switch {
	case p.dialect.AsWritten && isASCII(pattern) && strings.IndexByte(pattern, '%') < 0:
		return pattern, false
	case p.dialect.AsWritten:
		return string(appendEscaped(nil, pattern)), false
	case isNormalPattern(path):
		return pattern, false
	}
	normal, differs := appendForm(nil, path, "*", f)
	if anchored {
		normal = append(normal, '$')
	}
	return string(normal), differs && !p.dialect.ReservedAsWritten
}

func (p *parsed) formsOf(pattern string) forms {
	normalised, differs := p.patternIn(formNormalised, pattern)
	unified := normalised
	if differs {
		unified, _ = p.patternIn(formUnified, pattern)
	}
	return forms{normalised, unified}
}

// finalText returns the text that the offsets of all rules refer to from then on. It is the
// source or, if a pattern differs from its normalised form, a copy of all that goes into tries.
func (p *parsed) finalText() string {
	if len(p.formText) == 0 {
		return p.source
	}
	var text []byte
	for i := range p.rules {
		it := &p.rules[i]
		at, size := it.start, it.end-it.start
		it.start = uint32(len(text))
		if at&inFormText != 0 {
			at &^= inFormText
			text = append(text, p.formText[at:at+size]...)
		} else {
			text = append(text, p.source[at:at+size]...)
		}
		it.end = it.start + size
	}
	p.formText = nil
	return string(text)
}

// pattern returns what goes into the trie; text is that of finalText.
func (p *parsedRule) pattern(text string) string { return text[p.start:p.end] }

// offsetIn returns where in whole its substring part begins.
func offsetIn(whole, part string) uint32 {
	if part == "" {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(part))) - uintptr(unsafe.Pointer(unsafe.StringData(whole))))
}
