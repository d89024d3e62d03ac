package robots

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxRemarks is the maximum number of remarks that Lint returns for one file.
const MaxRemarks = 1000

// A Fault is the kind of a remark.
type Fault string

// The kinds of remarks.
const (
	NotRead   Fault = "not-read"   // the line is not parsed, by nobody or not under this dialect
	Misspelt  Fault = "misspelt"   // the dialect takes it, RFC 9309 does not
	NoGroup   Fault = "no-group"   // a rule before any User-agent line applies to nobody (RFC 9309 2.2.1)
	Nobody    Fault = "nobody"     // no client can have the name of this group
	NeverWins Fault = "never-wins" // the rule matches no path, or always loses to another
	TooLong   Fault = "too-long"   // the file or the line has more bytes than are parsed
)

// A Remark is something that a file's author may not have meant.
type Remark struct {
	Line   int
	Fault  Fault
	Text   string // one line for people; it quotes what it shows of the file
	Source string // the part of the line that is parsed: text of a stranger
}

// IsHTML reports whether a robots.txt begins as an HTML page does. Servers often send one instead
// of the status 404; its lines are no rules.
func IsHTML(text []byte) bool {
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	return len(text) > 1 && text[0] == '<' && (text[1] == '!' || text[1] == '?' || 'a' <= text[1]|0x20 && text[1]|0x20 <= 'z')
}

// Lint returns what is probably wrong with a robots.txt as a dialect reads it, in the order of
// the lines, at most [MaxRemarks] remarks. In a hostile file it stops looking for rules that
// never win.
func Lint(text []byte, d Dialect) []Remark {
	l := linter{dialect: d}
	source, last := string(text[:min(len(text), MaxBytes)]), 0
	if IsHTML(text) {
		l.remark(1, NotRead, "this is an HTML page, not a robots.txt")
	}
	for number, line := range lines(source) {
		l.checkLine(number, line)
		last = number
	}
	if d.Name != "" {
		l.count = 0 // the limit holds for both kinds of checks, so that the first remarks of all are kept
		l.checkNeverWins(source)
	}
	slices.SortStableFunc(l.remarks, func(a, b Remark) int { return cmp.Compare(a.Line, b.Line) })
	l.remarks = l.remarks[:min(len(l.remarks), MaxRemarks)]
	if len(text) > MaxBytes {
		l.remarks = l.remarks[:min(len(l.remarks), MaxRemarks-1)] // the next remark is the most important one
		l.count = 0
		l.remark(last+1, TooLong, "the file has more than %d bytes: the rest is not read", MaxBytes)
	}
	l.addSources(source)
	return l.remarks
}

func (l *linter) addSources(source string) {
	rest := l.remarks
	for number, line := range lines(source) {
		for len(rest) > 0 && rest[0].Line == number {
			rest[0].Source = lineContent(line)
			rest = rest[1:]
		}
	}
}

type linter struct {
	dialect Dialect
	grouped bool // there was a User-agent line
	count   int  // remarks since the last reset
	remarks []Remark
}

func (l *linter) remark(line int, f Fault, format string, args ...any) {
	if l.count++; l.count <= MaxRemarks {
		l.remarks = append(l.remarks, Remark{Line: line, Fault: f, Text: fmt.Sprintf(format, args...)})
	}
}

// checkLine remarks on a line by itself.
func (l *linter) checkLine(number int, line string) {
	if len(line) > maxLine {
		l.remark(number, TooLong, "only the first %d bytes of this line are read", maxLine)
	}
	if strings.IndexByte(line, 0) >= 0 {
		l.remark(number, NotRead, "the text after a NUL byte is not read; is this UTF-16?")
	}
	f, value := splitLine(line, true)
	strict, _ := splitLine(line, false)
	switch {
	case f == fieldNone:
		l.checkUnread(number, line)
		return
	case strict == fieldNone && l.dialect.Misspellings:
		l.remark(number, Misspelt, "%s accepts this spelling, RFC 9309 does not", l.dialect.Name)
	case strict == fieldNone:
		l.remark(number, NotRead, "%s does not accept this spelling", l.dialect.Name)
		return
	}
	switch f {
	case fieldUserAgent:
		l.grouped = true
		l.checkAgent(number, value)
		return
	case fieldSitemap, fieldLicense:
		return
	case fieldCrawlDelay:
		l.checkDelay(number, value)
	case fieldContentSignal:
		_, signals := cutPattern(value)
		if _, whole := ParseSignals(signals); !whole {
			l.remark(number, NotRead, "%q is not a list of search, ai-input and ai-train, each with =yes or =no", clip(value))
		}
	case fieldContentUsage:
		if pattern, preferences := cutPattern(value); pattern != "" && preferences == "" {
			l.remark(number, NotRead, "%q has a path but no preference", clip(value))
		}
	default:
		l.checkPattern(number, value)
	}
	if !l.grouped {
		l.remark(number, NoGroup, "applies to no client: no User-agent line precedes it")
	}
}

func (l *linter) checkDelay(number int, value string) {
	_, _, ok := parseDelay(value)
	switch {
	case l.dialect.Delay == NoDelay:
		l.remark(number, NotRead, "%s ignores Crawl-delay", l.dialect.Name)
	case !ok:
		l.remark(number, NotRead, "%q is not a number of seconds", clip(value))
	}
}

func (l *linter) checkUnread(number int, line string) {
	line = lineContent(line)
	if line == "" {
		return
	}
	if field, _, found := strings.Cut(line, ":"); found {
		l.remark(number, NotRead, "unknown field %q", clip(trimSpace(field)))
		return
	}
	l.remark(number, NotRead, "not a field: %q", clip(line))
}

// checkAgent remarks on a User-agent line whose name no client can have.
func (l *linter) checkAgent(number int, value string) {
	if isStar(value) {
		return
	}
	name := leadingName(value)
	run := leadingLetters(name)
	switch {
	case name == "" || l.dialect.LettersOnly && run == "":
		l.remark(number, Nobody, "%q is not a product token", clip(value))
	case commonWords[strings.ToLower(name)]:
		l.remark(number, Nobody, "%q is in the header of every browser, so it names no client", clip(name))
	case l.dialect.LettersOnly && run != name:
		l.remark(number, Misspelt, "read as %q under %s", clip(run), l.dialect.Name)
	}
}

func (l *linter) checkPattern(number int, value string) {
	switch {
	case len(value) == 0: // the usual way to allow everything
	case value[0] != '/' && value[0] != '*':
		l.remark(number, NeverWins, "%q matches nothing: a path must begin with a slash", clip(value))
	case l.dialect.AsWritten && strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		l.remark(number, NeverWins, "%q matches nothing: a URL has no spaces or control characters", clip(value))
	}
}

const (
	// maxAgentsTried is how many names of a group are tried to find a rule that wins.
	maxAgentsTried = 16

	// maxTries is how many tries are searched for rules that never win.
	maxTries = 1 << 20
)

// checkNeverWins remarks on rules that can never decide: another rule decides even on a path
// made for the rule alone, where each of its wildcards stands for a byte that no pattern has.
// Such a rule matches whatever the first one does.
func (l *linter) checkNeverWins(text string) {
	s := parseText(text, l.dialect)
	file := compile(s)
	names, more := make(map[uint32][]Group), make(map[uint32]bool)
	for _, k := range s.keys() {
		block := uint32(k.block)
		at := file.nameIndex(k.text)
		switch {
		case file.names[at].partial != k.partial:
		case len(names[block]) == maxAgentsTried:
			more[block] = true // the rule may win for an agent that is not tried
		default:
			names[block] = append(names[block], file.group(at, ""))
		}
	}
	wins, winner, tries := make(map[int]bool), make(map[int]int), 0
	for i := range s.rules {
		if tries > maxTries {
			return
		}
		it := &s.rules[i]
		line, path := int(it.meta&maskLine), it.samplePath(file.labels)
		for _, g := range names[it.block] {
			tries += len(g.setRefs())
			v, _ := g.match(path, 0)
			if by := v.Line; by == line || by == 0 || more[it.block] {
				wins[line] = true
			} else {
				winner[line] = by
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(winner)) {
		if !wins[line] {
			l.remark(line, NeverWins, "line %d always decides instead", winner[line])
		}
	}
}

// samplePath returns a normalised path that another rule matches only if it matches all paths
// that this rule matches.
func (it *parsedRule) samplePath(text string) string {
	const unused = "\x01"
	path := strings.ReplaceAll(it.pattern(text), "*", unused)
	if !it.is(flagAnchored) {
		path += unused
	}
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}
