package robots

import (
	"iter"
	"math"
	"strings"
	"time"
)

// maxLine is how many octets of a line are read: as many as Google's open
// parser reads, eight times the longest URL of an old browser.
const maxLine = 16663

// Parse compiles a robots.txt. It never fails: what cannot be read says
// nothing. It reads at most MaxBytes, and drops a last line that this limit
// may have cut. It keeps no reference to text.
func Parse(text []byte, d Dialect) *File {
	return ParseString(string(text[:min(len(text), MaxBytes)]), d)
}

// ParseString is Parse for a text that is kept anyway: the File points into it,
// and so keeps all of it.
func ParseString(text string, d Dialect) *File {
	if d.Name == "" {
		return nil
	}
	return compile(read(text, d))
}

func read(text string, d Dialect) *statements {
	text = text[:min(len(text), MaxBytes)]
	s := &statements{
		dialect: d,
		source:  text,
		rules:   make([]item, 0, len(text)/24), // a guess that large files keep to: no growing on the way
	}
	for number, line := range lines(text) {
		if f, value := splitLine(line, d.Misspellings); f != fieldNone {
			s.add(f, value, number)
		}
	}
	return s
}

// lines gives the lines of text with their numbers, from 1. A line ends at
// CR, LF or CRLF (RFC 9309 2.2, EOL).
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

// trimBOM drops a byte order mark, or as much of one as there is.
func trimBOM(text string) string {
	const bom = "\xEF\xBB\xBF"
	i := 0
	for i < len(bom) && i < len(text) && text[i] == bom[i] {
		i++
	}
	return text[i:]
}

// A field is what a line is about.
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

// spellings are the beginnings of field names that count, in lower case.
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

// splitLine reads one line as Google's open parser does: a field, a colon, a
// value. Misspellings of fields count where they are asked for, as do two
// words without a colon.
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

// content gives what is read of a line: up to NUL, without its comment.
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

// trimSpace trims ASCII white space alone, unlike strings.TrimSpace.
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

// statements are what the lines of a file say.
type statements struct {
	dialect Dialect
	source  string // what they were read from

	agents []agent
	runs   []run
	blocks int
	rules  []item
	forms  []byte // patterns whose one form is not how they are written

	extra extensions

	ruled   bool // the current block has an Allow or Disallow line: the next User-agent line begins another
	delayed bool // the current run has a Crawl-delay line: the next User-agent line begins another
}

// An agent is a User-agent line.
type agent struct {
	value string
	run   int
}

// A block is a list of agents and the rules that follow it (RFC 9309 2.2,
// group). A run is a part of that list, which a Crawl-delay line cuts into
// several: it belongs to the agents named since the last Allow, Disallow or
// Crawl-delay, but does not end the list (RFC 9309 2.2.4).
type run struct {
	block int
	delay time.Duration
}

func (s *statements) add(f field, value string, line int) {
	switch {
	case f == fieldUserAgent:
		if len(s.runs) == 0 || s.ruled {
			s.blocks++
		}
		if len(s.runs) == 0 || s.ruled || s.delayed {
			s.runs = append(s.runs, run{block: s.blocks - 1})
		}
		s.ruled, s.delayed = false, false
		s.agents = append(s.agents, agent{value, len(s.runs) - 1})
	case f == fieldSitemap || f == fieldLicense:
		s.extra.addLink(f, value)
	case len(s.runs) == 0: // RFC 9309 2.2.1: no group yet
	case f == fieldContentSignal:
		s.extra.addSignals(value, s.blocks-1)
	case f == fieldContentUsage:
		s.extra.addUsage(value, line, s.blocks-1)
	case f == fieldCrawlDelay:
		s.addDelay(value)
	default:
		s.ruled = true
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

func (s *statements) addDelay(value string) {
	delay, over, _ := parseDelay(value)
	switch s.dialect.Delay {
	case DelayOfAgents:
		s.delayed = true
	case DelayOfGroup:
		s.ruled = true
		if over {
			delay = delay.Truncate(time.Second) + time.Second
		}
	default:
		return
	}
	last := &s.runs[len(s.runs)-1]
	last.delay = max(last.delay, delay)
}

// parseDelay reads decimal seconds, digits and at most one point; anything
// else is no delay. Beyond 26 years it stops counting. over: it is more than
// whole seconds, by whatever fraction.
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
