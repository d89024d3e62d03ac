package robots

import (
	"bytes"
	"iter"
	"math"
	"time"
)

// maxLine is how many octets of a line are read: as many as Google's open
// parser reads, eight times the longest URL of an old browser.
const maxLine = 16663

// Parse compiles a robots.txt. It never fails: what cannot be read says
// nothing. It reads at most MaxBytes, and drops a last line that this limit
// may have cut. It keeps no reference to text.
func Parse(text []byte, d Dialect) *File {
	if d != Standard() {
		return nil
	}
	s := statements{
		// A guess that large files keep to: no growing on the way.
		rules: make([]item, 0, len(text)/24),
		text:  make([]byte, 0, len(text)),
	}
	for number, line := range lines(text) {
		if f, value := splitLine(line); f != fieldNone {
			s.add(f, value, number)
		}
	}
	return compile(s)
}

// lines gives the lines of text with their numbers, from 1. A line ends at
// CR, LF or CRLF (RFC 9309 2.2, EOL).
func lines(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if len(text) >= MaxBytes {
			text = text[:MaxBytes]
			text = text[:bytes.LastIndexAny(text, "\r\n")+1]
		}
		number := 0
		for rest := trimBOM(text); len(rest) > 0; {
			// Two steps, so that a file without any LF is searched for one only once.
			var part []byte
			var found bool
			part, rest, found = bytes.Cut(rest, []byte{'\n'})
			if found {
				part = bytes.TrimSuffix(part, []byte{'\r'})
			}
			for more := true; more; {
				var line []byte
				line, part, more = bytes.Cut(part, []byte{'\r'})
				number++
				if !yield(number, line) {
					return
				}
			}
		}
	}
}

// trimBOM drops a byte order mark, or as much of one as there is.
func trimBOM(text []byte) []byte {
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
)

// spellings are the beginnings of field names that count, in lower case.
var spellings = [...]struct {
	text  string
	field field
}{
	{"disallow", fieldDisallow},
	{"allow", fieldAllow},
	{"user-agent", fieldUserAgent},
	{"crawl-delay", fieldCrawlDelay},
	{"crawldelay", fieldCrawlDelay},
	{"useragent", fieldUserAgent},
	{"user agent", fieldUserAgent},
	{"dissallow", fieldDisallow},
	{"dissalow", fieldDisallow},
	{"disalow", fieldDisallow},
	{"diasllow", fieldDisallow},
	{"disallaw", fieldDisallow},
}

// splitLine reads one line as Google's open parser does. Without a colon, a
// line counts if it is two words.
func splitLine(line []byte) (field, []byte) {
	line = line[:min(len(line), maxLine)]
	if i := bytes.IndexByte(line, 0); i >= 0 {
		line = line[:i]
	}
	if i := bytes.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	line = trimSpace(line)
	if i := bytes.IndexByte(line, ':'); i >= 0 {
		return fieldOf(line[:i]), trimSpace(line[i+1:])
	}
	if i := bytes.IndexAny(line, " \t"); i >= 0 {
		if value := bytes.TrimLeft(line[i:], " \t"); !bytes.ContainsAny(value, " \t") {
			return fieldOf(line[:i]), value
		}
	}
	return fieldNone, nil
}

func fieldOf(key []byte) field {
	for i := range spellings {
		if s := &spellings[i]; hasPrefixFold(key, s.text) {
			return s.field
		}
	}
	return fieldNone
}

func hasPrefixFold(s []byte, lower string) bool {
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

// trimSpace trims ASCII white space alone, unlike bytes.TrimSpace.
func trimSpace(s []byte) []byte {
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
	agents []agent
	runs   []run
	blocks int
	rules  []item
	text   []byte // the patterns of the rules

	ruled   bool // the current block has an Allow or Disallow line: the next User-agent line begins another
	delayed bool // the current run has a Crawl-delay line: the next User-agent line begins another
}

// An agent is a User-agent line.
type agent struct {
	value []byte
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

func (s *statements) add(f field, value []byte, line int) {
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
	case len(s.runs) == 0: // RFC 9309 2.2.1: no group yet
	case f == fieldCrawlDelay:
		s.delayed = true
		last := &s.runs[len(s.runs)-1]
		last.delay = max(last.delay, parseDelay(value))
	default:
		s.ruled = true
		// An empty pattern matches nothing, and one that begins as no path does.
		if len(value) > 0 && (value[0] == '/' || value[0] == '*') {
			s.addRule(value, line, f == fieldAllow)
		}
	}
}

// parseDelay reads decimal seconds, digits and at most one point; anything
// else is no delay. Beyond 26 years it stops counting.
func parseDelay(s []byte) time.Duration {
	const most = math.MaxInt64 / 11 // times ten, and a digit more, is a Duration still
	whole, fraction, _ := bytes.Cut(s, []byte{'.'})
	if len(whole)+len(fraction) == 0 {
		return 0
	}
	var delay time.Duration
	for _, c := range whole {
		if !isDigit(c) {
			return 0
		}
		delay = min(delay*10+time.Duration(c-'0')*time.Second, most)
	}
	unit := time.Second
	for _, c := range fraction {
		if !isDigit(c) {
			return 0
		}
		unit /= 10
		delay += time.Duration(c-'0') * unit
	}
	return delay
}
