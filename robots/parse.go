package robots

import (
	"iter"
	"math"
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

// parseText parses a text, at most MaxBytes of it.
func parseText(text string, d Dialect) *parsed {
	text = text[:min(len(text), MaxBytes)]
	s := &parsed{
		dialect: d,
		source:  text,
		rules:   make([]parsedRule, 0, len(text)/24), // enough for most large files, so that append need not grow it
	}
	for number, line := range lines(text) {
		if f, value := splitLine(line, d.Misspellings); f != fieldNone {
			s.addLine(f, value, number)
		}
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
			// In two steps, so that a file without any LF is searched for LF only once.
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
	fieldNone field = iota
	fieldUserAgent
	fieldAllow
	fieldDisallow
	fieldCrawlDelay
	fieldSitemap
	fieldLicense
	fieldContentSignal
	fieldContentUsage
)

// spellings are the field names, in lower case. A line has a field if it begins with its name.
var spellings = [...]struct {
	text     string
	field    field
	misspelt bool
}{
	{"disallow", fieldDisallow, false},
	{"allow", fieldAllow, false},
	{"user-agent", fieldUserAgent, false},
	{"crawl-delay", fieldCrawlDelay, false},
	{"sitemap", fieldSitemap, false},
	{"license", fieldLicense, false},
	{"content-signal", fieldContentSignal, false},
	{"content-usage", fieldContentUsage, false},
	{"crawldelay", fieldCrawlDelay, true},
	{"useragent", fieldUserAgent, true},
	{"user agent", fieldUserAgent, true},
	{"dissallow", fieldDisallow, true},
	{"dissalow", fieldDisallow, true},
	{"disalow", fieldDisallow, true},
	{"diasllow", fieldDisallow, true},
	{"disallaw", fieldDisallow, true},
	{"site-map", fieldSitemap, true},
}

// splitLine splits a line as Google's open-source parser does: a field, a colon and a value.
// With misspellings, misspelt field names count, and so do two words without a colon between
// them.
func splitLine(line string, misspellings bool) (field, string) {
	line = lineContent(line)
	if i := strings.IndexByte(line, ':'); i >= 0 {
		return fieldOf(line[:i], misspellings), trimSpace(line[i+1:])
	}
	if !misspellings {
		return fieldNone, ""
	}
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		if value := strings.TrimLeft(line[i:], " \t"); !strings.ContainsAny(value, " \t") {
			return fieldOf(line[:i], true), trimSpace(value)
		}
	}
	return fieldNone, ""
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

// fieldOf returns the field that key begins with, or fieldNone.
func fieldOf(key string, misspellings bool) field {
	for i := range spellings {
		if s := &spellings[i]; hasPrefixFold(key, s.text) && (misspellings || !s.misspelt) {
			return s.field
		}
	}
	return fieldNone
}

// A parsed is the content of the lines of a file.
type parsed struct {
	dialect Dialect
	source  string // the text

	agentLines []agentLine
	agentRuns  []agentRun
	blocks     int
	rules      []parsedRule
	normalised []byte // patterns whose normalised form differs from their text

	ext extensionLines

	hasRule  bool // the current block has an Allow or Disallow line: the next User-agent line begins another block
	hasDelay bool // the current run has a Crawl-delay line: the next User-agent line begins another run
}

// An agentLine is a User-agent line.
type agentLine struct {
	value string
	run   int
}

// An agentRun is a part of the agents of a block. A block is a list of agents and the rules that
// follow it (RFC 9309 2.2, group). A Crawl-delay line divides the list into runs: it applies to
// the agents since the last Allow, Disallow or Crawl-delay line, but does not end the list (RFC
// 9309 2.2.4).
type agentRun struct {
	block int
	delay time.Duration
}

// addLine adds a line with its field and value.
func (s *parsed) addLine(f field, value string, line int) {
	switch {
	case f == fieldUserAgent:
		if len(s.agentRuns) == 0 || s.hasRule {
			s.blocks++
		}
		if len(s.agentRuns) == 0 || s.hasRule || s.hasDelay {
			s.agentRuns = append(s.agentRuns, agentRun{block: s.blocks - 1})
		}
		s.hasRule, s.hasDelay = false, false
		s.agentLines = append(s.agentLines, agentLine{value, len(s.agentRuns) - 1})
	case f == fieldSitemap:
		s.ext.addLink(&s.ext.sitemaps, value)
	case f == fieldLicense:
		s.ext.addLink(&s.ext.licenses, value)
	case len(s.agentRuns) == 0: // no group yet: the line applies to nobody (RFC 9309 2.2.1)
	case f == fieldContentSignal:
		s.ext.addSignals(value, line, s.blocks-1)
	case f == fieldContentUsage:
		s.ext.addUsage(value, line, s.blocks-1)
	case f == fieldCrawlDelay:
		s.addDelay(value)
	default:
		s.hasRule = true
		switch {
		case len(value) == 0: // an empty pattern matches nothing
			if s.dialect.EmptyRules {
				s.addRule(value, line, f == fieldAllow)
			}
		case canMatch(value):
			s.addRule(value, line, f == fieldAllow)
		}
	}
}

// addDelay adds a Crawl-delay line to the agents that it applies to.
func (s *parsed) addDelay(value string) {
	delay, fractional, _ := parseDelay(value)
	switch s.dialect.Delay {
	case DelayOfAgents:
		s.hasDelay = true
	case DelayOfGroup:
		s.hasRule = true
		if fractional {
			delay = delay.Truncate(time.Second) + time.Second
		}
	default:
		return
	}
	last := &s.agentRuns[len(s.agentRuns)-1]
	last.delay = max(last.delay, delay)
}

// parseDelay parses decimal seconds: digits and at most one point. ok is false for anything
// else. Delays over 26 years are cut to that. fractional reports whether the delay is not a
// whole number of seconds.
func parseDelay(s string) (delay time.Duration, fractional, ok bool) {
	const limit = math.MaxInt64 / 11 // ten times the limit and one digit more still fit a Duration
	whole, fraction, _ := strings.Cut(s, ".")
	if len(whole)+len(fraction) == 0 {
		return 0, false, false
	}
	for _, c := range []byte(whole) {
		if !isDigit(c) {
			return 0, false, false
		}
		delay = min(delay*10+time.Duration(c-'0')*time.Second, limit)
	}
	unit := time.Second
	for _, c := range []byte(fraction) {
		if !isDigit(c) {
			return 0, false, false
		}
		unit /= 10
		delay += time.Duration(c-'0') * unit
		fractional = fractional || c != '0'
	}
	return delay, fractional, true
}

// A parsedRule is a rule before it is in a trie.
type parsedRule struct {
	rule
	start, end uint32 // what goes into the trie: the normalised pattern without its anchor and trailing "*"s; see finalText
	block      uint32
}

// inNormalised is set in parsedRule.start if the offset is in parsed.normalised, not in source.
const inNormalised uint32 = 1 << 31

// addRule adds a rule to the current block. pattern is a substring of source.
func (s *parsed) addRule(pattern string, line int, allow bool) {
	at := offsetIn(s.source, pattern)
	it := parsedRule{start: at, block: uint32(s.blocks - 1), rule: rule{
		text: at, meta: uint32(line), written: uint16(len(pattern)),
	}}
	if allow {
		it.meta |= flagAllow
	}
	form := s.normalisePattern(pattern)
	if form != pattern {
		it.start = uint32(len(s.normalised)) | inNormalised
		s.normalised = append(s.normalised, form...)
	}
	path := strings.TrimRight(form, "*")
	it.size = uint16(len(path) - strings.Count(path, literalDollar)*(len(literalDollar)-len("$"))) // a "$" counts alike with and without a meaning
	if s.dialect.AsWritten {
		it.size = uint16(len(form))
	}
	if len(path) > 0 && pattern[len(pattern)-1] == '$' {
		it.meta |= flagAnchored
		path = path[:len(path)-1]
	}
	it.end = it.start + uint32(len(path))
	s.rules = append(s.rules, it)
	if allow && s.dialect.IndexPages {
		if slash := strings.LastIndexByte(form, '/'); slash >= 0 && strings.HasPrefix(form[slash:], "/index.htm") {
			it.meta |= flagAnchored
			it.size = uint16(slash + len("/$"))
			it.end = it.start + uint32(slash+1)
			s.rules = append(s.rules, it)
		}
	}
}

// normalisePattern returns a pattern in the form for comparison with paths, with its wildcards
// as "*" and its anchor as "$".
func (s *parsed) normalisePattern(pattern string) string {
	path, anchored := strings.CutSuffix(pattern, "$")
	switch {
	case s.dialect.AsWritten && isASCII(pattern) && strings.IndexByte(pattern, '%') < 0:
		return pattern
	case s.dialect.AsWritten:
		return string(appendEscaped(nil, pattern))
	case isNormalPattern(path):
		return pattern
	}
	normal := appendNormal(nil, path, "*")
	if anchored {
		normal = append(normal, '$')
	}
	return string(normal)
}

// finalText returns the text that the offsets of all rules refer to from then on. It is the
// source or, if a pattern differs from its normalised form, a copy of all that goes into tries.
func (s *parsed) finalText() string {
	if len(s.normalised) == 0 {
		return s.source
	}
	var text []byte
	for i := range s.rules {
		it := &s.rules[i]
		at, size := it.start, it.end-it.start
		it.start = uint32(len(text))
		if at&inNormalised != 0 {
			at &^= inNormalised
			text = append(text, s.normalised[at:at+size]...)
		} else {
			text = append(text, s.source[at:at+size]...)
		}
		it.end = it.start + size
	}
	s.normalised = nil
	return string(text)
}

// pattern returns what goes into the trie; text is that of finalText.
func (it *parsedRule) pattern(text string) string { return text[it.start:it.end] }

// offsetIn returns where in whole its substring part begins.
func offsetIn(whole, part string) uint32 {
	if part == "" {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(part))) - uintptr(unsafe.Pointer(unsafe.StringData(whole))))
}
