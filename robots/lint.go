package robots

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxRemarks is how many Lint makes about one file.
const MaxRemarks = 1000

// A Fault says what kind of thing is wrong with a line.
type Fault string

// The faults there are.
const (
	NotRead   Fault = "not-read"   // nobody reads the line, or this dialect does not
	Misspelt  Fault = "misspelt"   // the dialect takes it, RFC 9309 does not
	NoGroup   Fault = "no-group"   // a rule before any User-agent line applies to nobody (RFC 9309 2.2.1)
	Nobody    Fault = "nobody"     // a group that no client goes by the name of
	NeverWins Fault = "never-wins" // a rule that matches no path, or always loses to another
	TooLong   Fault = "too-long"   // the file or the line has more octets than are read
)

// A Remark is something that a file's author may not have meant.
type Remark struct {
	Line   int
	Fault  Fault
	Text   string // one line for people; it quotes what it shows of the file
	Source string // what is read of the line, as it stands: a stranger's text
}

// Lint gives what is likely wrong with a robots.txt as a dialect reads it, in
// the order of its lines; at most MaxRemarks. In a file made to hurt it gives
// up looking for rules that always lose.
func Lint(text []byte, d Dialect) []Remark {
	l := linter{dialect: d}
	source, last := string(text[:min(len(text), MaxBytes)]), 0
	for number, line := range lines(source) {
		l.line(number, line)
		last = number
	}
	if d.Name != "" {
		l.made = 0 // of each kind the first ones: so those of both together are the first of all
		l.losers(source)
	}
	slices.SortStableFunc(l.remarks, func(a, b Remark) int { return cmp.Compare(a.Line, b.Line) })
	l.remarks = l.remarks[:min(len(l.remarks), MaxRemarks)]
	if len(text) > MaxBytes {
		l.remarks = l.remarks[:min(len(l.remarks), MaxRemarks-1)] // this one counts most
		l.made = 0
		l.remark(last+1, TooLong, "the file has more than %d octets: nothing is read from here on", MaxBytes)
	}
	l.addSources(source)
	return l.remarks
}

func (l *linter) addSources(source string) {
	rest := l.remarks
	for number, line := range lines(source) {
		for len(rest) > 0 && rest[0].Line == number {
			rest[0].Source = content(line)
			rest = rest[1:]
		}
	}
}

type linter struct {
	dialect Dialect
	grouped bool // there was a User-agent line
	made    int  // remarks since the last cut
	remarks []Remark
}

func (l *linter) remark(line int, f Fault, format string, args ...any) {
	if l.made++; l.made <= MaxRemarks {
		l.remarks = append(l.remarks, Remark{Line: line, Fault: f, Text: fmt.Sprintf(format, args...)})
	}
}

// line says what is wrong with a line by itself.
func (l *linter) line(number int, line string) {
	if len(line) > maxLine {
		l.remark(number, TooLong, "only the first %d octets of this line are read", maxLine)
	}
	if strings.IndexByte(line, 0) >= 0 {
		l.remark(number, NotRead, "what follows a NUL is not read; is this UTF-16?")
	}
	f, value := splitLine(line, true)
	strict, _ := splitLine(line, false)
	switch {
	case f == fieldNone:
		l.unread(number, line)
		return
	case strict == fieldNone && l.dialect.Misspellings:
		l.remark(number, Misspelt, "counts under %s, but not by RFC 9309", l.dialect.Name)
	case strict == fieldNone:
		l.remark(number, NotRead, "misspelt, which does not count under %s", l.dialect.Name)
		return
	}
	switch f {
	case fieldUserAgent:
		l.grouped = true
		l.agent(number, value)
		return
	case fieldSitemap, fieldLicense:
		return
	case fieldCrawlDelay:
		l.delay(number, value)
	case fieldContentSignal:
		if _, whole := parseSignals(value); !whole {
			l.remark(number, NotRead, "%q is no list of search, ai-input and ai-train, each =yes or =no", clip(value))
		}
	case fieldContentUsage:
		if value != "" && (value[0] == '/' || value[0] == '*') && !strings.ContainsAny(value, " \t") {
			l.remark(number, NotRead, "%q has a path and no preference", clip(value))
		}
	default:
		l.pattern(number, value)
	}
	if !l.grouped {
		l.remark(number, NoGroup, "applies to nobody: it stands before any User-agent line")
	}
}

func (l *linter) delay(number int, value string) {
	_, _, ok := parseDelay(value)
	switch {
	case l.dialect.Delay == NoDelay:
		l.remark(number, NotRead, "%s knows no Crawl-delay", l.dialect.Name)
	case !ok:
		l.remark(number, NotRead, "%q is no number of seconds", clip(value))
	}
}

func (l *linter) unread(number int, line string) {
	line = content(line)
	if line == "" {
		return
	}
	if field, _, found := strings.Cut(line, ":"); found {
		l.remark(number, NotRead, "no field is called %q", clip(trimSpace(field)))
		return
	}
	l.remark(number, NotRead, "no field: %q", clip(line))
}

// agent says who goes by no name that a User-agent line can give.
func (l *linter) agent(number int, value string) {
	if isStar(value) {
		return
	}
	name := word(value)
	run := letters(name)
	switch {
	case name == "" || l.dialect.LettersOnly && run == "":
		l.remark(number, Nobody, "%q is no name", clip(value))
	case commonWords[strings.ToLower(name)]:
		l.remark(number, Nobody, "%q is in the header of every browser, and nobody's name", clip(name))
	case l.dialect.LettersOnly && run != name:
		l.remark(number, Misspelt, "read as %q under %s", clip(run), l.dialect.Name)
	}
}

func (l *linter) pattern(number int, value string) {
	switch {
	case len(value) == 0: // the usual way to say nothing
	case value[0] != '/' && value[0] != '*':
		l.remark(number, NeverWins, "%q matches nothing: a path begins with a slash", clip(value))
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		l.remark(number, NeverWins, "%q matches nothing: no URL has a blank or a control octet", clip(value))
	}
}

const (
	// maxAgentsTried is how many names of a group are tried for a rule that wins.
	maxAgentsTried = 16

	// maxTries is how many tries are searched for rules that always lose.
	maxTries = 1 << 20
)

// losers says which rules can never decide: even on a path made for it alone,
// where each of its stars stands for an octet that no pattern has, another rule
// wins. Such a rule matches whatever the loser does.
func (l *linter) losers(text string) {
	s := read(text, l.dialect)
	file := compile(s)
	names, more := make(map[uint32][]Group), make(map[uint32]bool)
	for _, k := range s.keys() {
		block := uint32(k.block)
		at := file.find(k.text)
		switch {
		case file.names[at].cut != k.cut:
		case len(names[block]) == maxAgentsTried:
			more[block] = true // it may win for one of those
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
		line, path := int(it.meta&maskLine), it.ownPath(file.text)
		for _, g := range names[it.block] {
			tries += len(g.sets())
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
			l.remark(line, NeverWins, "line %d always decides in its place", winner[line])
		}
	}
}

// ownPath gives a path, in the one form, that only those rules match which match
// all that it does.
func (it *item) ownPath(text string) string {
	const nobodys = "\x01"
	path := strings.ReplaceAll(it.path(text), "*", nobodys)
	if !it.is(flagAnchored) {
		path += nobodys
	}
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}
