package robots

import (
	"iter"
	"math"
	"strings"
	"time"
)

// maxLine is the maximum number of bytes of a line that are parsed. Google's open-source parser
// has the same limit: eight times the longest URL of an old browser.
const maxLine = 16663

// Parse compiles a robots.txt. It never fails: it ignores lines that it cannot read. It parses
// at most [MaxBytes] bytes and drops a last line that this limit may have cut. It keeps no
// reference to text. If d has no name, it returns nil.
func Parse(text []byte, d Dialect) *File {
	return ParseString(string(text[:min(len(text), MaxBytes)]), d)
}

// ParseString is Parse for a text that the caller keeps anyway: the File refers to text, and so
// keeps it in memory.
func ParseString(text string, d Dialect) *File {
	if d.Name == "" {
		return nil
	}
	return compile(read(text, d))
}

func read(text string, d Dialect) *parsed {
	text = text[:min(len(text), MaxBytes)]
	s := &parsed{
		dialect: d,
		source:  text,
		rules:   make([]parsedRule, 0, len(text)/24), // a guess that large files keep to: no growing on the way
	}
	for number, line := range lines(text) {
		if f, value := splitLine(line, d.Misspellings); f != fieldNone {
			s.add(f, value, number)
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
			// Two steps, so that a file without any LF is searched for one only once.
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
	line = content(line)
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

// content returns the part of a line that is parsed: up to NUL, without its comment.
func content(line string) string {
	line = line[:min(len(line), maxLine)]
	if i := strings.IndexByte(line, 0); i >= 0 {
		line = line[:i]
	}
	if i := strings.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	return trimSpace(line)
}

func fieldOf(key string, misspellings bool) field {
	for i := range spellings {
		if s := &spellings[i]; hasPrefixFold(key, s.text) && (misspellings || !s.misspelt) {
			return s.field
		}
	}
	return fieldNone
}

func hasPrefixFold(s, lower string) bool {
	if len(s) < len(lower) {
		return false
	}
	for i := range len(lower) {
		if toLower(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

// trimSpace trims only ASCII white space, unlike strings.TrimSpace.
func trimSpace(s string) string {
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

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

func (s *parsed) add(f field, value string, line int) {
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
	case f == fieldSitemap || f == fieldLicense:
		s.ext.addLink(f, value)
	case len(s.agentRuns) == 0: // RFC 9309 2.2.1: no group yet
	case f == fieldContentSignal:
		s.ext.addSignals(value, s.blocks-1)
	case f == fieldContentUsage:
		s.ext.addUsage(value, line, s.blocks-1)
	case f == fieldCrawlDelay:
		s.addDelay(value)
	default:
		s.hasRule = true
		switch {
		case len(value) == 0: // it matches nothing
			if s.dialect.EmptyRules {
				s.addRule(value, line, f == fieldAllow)
			}
		case value[0] == '/' || value[0] == '*': // others begin as no path does
			s.addRule(value, line, f == fieldAllow)
		}
	}
}

func (s *parsed) addDelay(value string) {
	delay, over, _ := parseDelay(value)
	switch s.dialect.Delay {
	case DelayOfAgents:
		s.hasDelay = true
	case DelayOfGroup:
		s.hasRule = true
		if over {
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
func parseDelay(s string) (delay time.Duration, over, ok bool) {
	const most = math.MaxInt64 / 11 // times ten, and a digit more, is a Duration still
	whole, fraction, _ := strings.Cut(s, ".")
	if len(whole)+len(fraction) == 0 {
		return 0, false, false
	}
	for _, c := range []byte(whole) {
		if !isDigit(c) {
			return 0, false, false
		}
		delay = min(delay*10+time.Duration(c-'0')*time.Second, most)
	}
	unit := time.Second
	for _, c := range []byte(fraction) {
		if !isDigit(c) {
			return 0, false, false
		}
		unit /= 10
		delay += time.Duration(c-'0') * unit
		over = over || c != '0'
	}
	return delay, over, true
}
