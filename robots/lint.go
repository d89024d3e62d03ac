package robots

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxRemarks is the maximum number of remarks that Lint returns for one file.
const MaxRemarks = 1000

// A Fault is the kind of a remark.
type Fault string

// The kinds of remarks.
const (
	// The line is not parsed, under any dialect or under this one.
	NotRead Fault = "not-read"
	// The dialect accepts the line, and RFC 9309 does not.
	Misspelt Fault = "misspelt"
	// A rule before any User-agent line applies to nobody (RFC 9309 2.2.1).
	NoGroup Fault = "no-group"
	// No client can have the name of this group.
	Nobody Fault = "nobody"
	// The rule matches no path, or always loses to another.
	NeverWins Fault = "never-wins"
	// The rule applies to agents of an earlier list too, because the lines in between do not end that
	// list (RFC 9309 2.2.4).
	Joined Fault = "joined"
	// The line counts, but perhaps not as it is meant.
	Suspect Fault = "suspect"
	// The file or the line has more bytes than are parsed.
	TooLong Fault = "too-long"
)

// A Remark is something that a file's author may not have meant.
type Remark struct {
	Line  int
	Fault Fault

	// Text is one line for people, which quotes what it shows of the file.
	Text string

	// Source is the part of the line that is parsed: text of a stranger.
	Source string
}

// IsHTML reports whether a robots.txt begins as an HTML page does. Servers often send one instead
// of the status 404; its lines are no rules.
func IsHTML(text []byte) bool {
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	return len(text) > 1 && text[0] == '<' && (text[1] == '!' || text[1] == '?' || 'a' <= text[1]|0x20 && text[1]|0x20 <= 'z')
}

// Lint returns what is probably wrong with the robots.txt of an origin as a dialect reads it, in the
// order of the lines, at most [MaxRemarks] remarks. In a hostile file it stops looking for rules that
// never win. The zero Origin stands for one that is not known.
func Lint(text []byte, d Dialect, origin Origin) []Remark {
	l := linter{dialect: d, origin: origin}
	source, read := l.decode(string(text[:min(len(text), MaxBytes)]))
	if !read {
		return l.remarks
	}
	last := 0
	if l.html = IsHTML([]byte(source)); l.html {
		l.remark(1, NotRead, "this is an HTML page, not a robots.txt")
	}
	for number, line := range lines(source) {
		l.checkLine(number, line)
		last = number
	}
	if d.Name != "" {
		// The limit holds for each kind of checks, so that the first remarks of each are kept.
		l.count = 0
		l.checkJoins(source)
		l.count = 0
		l.checkNeverWins(source)
	}
	slices.SortStableFunc(l.remarks, func(a, b Remark) int { return cmp.Compare(a.Line, b.Line) })
	l.remarks = l.remarks[:min(len(l.remarks), MaxRemarks)]
	if len(text) > MaxBytes {
		// The next remark is the most important one, so there must be room for it.
		l.remarks = l.remarks[:min(len(l.remarks), MaxRemarks-1)]
		l.count = 0
		l.remark(last+1, TooLong, "the file has more than %d bytes: the rest is not read", MaxBytes)
	}
	l.addSources(source)
	return l.remarks
}

// decode returns the text as the dialect reads it, and remarks on its coding. read is false if the
// dialect reads no line of it.
func (l *linter) decode(text string) (decoded string, read bool) {
	_, coding, err := Decode(text, Dialect{Careful: true})
	decoded, done, _ := Decode(text, l.dialect)
	switch {
	case err != nil:
		l.remark(1, NotRead, "the file cannot be read: %v", err)
		return "", false
	case coding == "":
	case done == "":
		l.remark(1, NotRead, "the file is %s, which %s does not decode: send plain UTF-8", codingWords.Replace(coding), l.dialect.Name)
		return text, coding == codingMark
	default:
		l.remark(1, Misspelt, "the file is %s: %s decodes it, other crawlers may not", codingWords.Replace(coding), l.dialect.Name)
	}
	return decoded, true
}

// codingWords has words for the codings that Decode undoes.
var codingWords = strings.NewReplacer(
	codingMark, "text after a byte order mark of UTF-16", codingUTF16LE, "UTF-16", codingUTF16BE, "UTF-16",
	codingGzip, "gzip without Content-Encoding", "+", ", in it ",
)

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
	origin  Origin

	// html says that the file is an HTML page.
	html bool

	// grouped says that there was a User-agent line.
	grouped bool

	// count is the number of remarks since the last reset, also of those over the limit.
	count   int
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
	f, value := splitLine(line, &Dialect{Misspellings: true, Careful: true})
	own, _ := splitLine(line, &l.dialect)
	strict, _ := splitLine(line, &Dialect{})
	switch {
	case f == fieldNone:
		return
	case f == fieldUnknown:
		l.checkUnread(number, line)
		return
	case own == fieldUnknown && f == fieldRequestRate:
		l.remark(number, NotRead, "%s ignores Request-rate", l.dialect.Name)
		return
	case own == fieldUnknown:
		l.remark(number, NotRead, "%s does not accept this spelling", l.dialect.Name)
		return
	case strict == fieldUnknown && f != fieldRequestRate:
		l.remark(number, Misspelt, "%s accepts this spelling, RFC 9309 does not", l.dialect.Name)
	}
	switch f {
	case fieldUserAgent:
		l.grouped = true
		l.checkAgents(number, value)
		return
	case fieldSitemap, fieldLicense:
		return
	case fieldCrawlDelay:
		l.checkDelay(number, value)
	case fieldRequestRate:
		l.checkRate(number, value)
	case fieldVisitTime:
		if _, ok := parseVisitTime(value); !ok {
			l.remark(number, NotRead, "%q is not a time of the day in UTC, as in 0600-0845", clip(value))
		}
	case fieldContentSignal:
		_, signals := cutPattern(value)
		if _, whole := ParseSignals(signals); !whole {
			l.remark(number, NotRead, "%q is not a list of search, ai-input and ai-train, each with =yes or =no", clip(value))
		}
		if l.dialect.Careful {
			// A line before the first group applies to every client.
			return
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
	asked, ok := parseDelay(value, &l.dialect)
	_, plain := parseDelay(value, &Dialect{})
	switch {
	case l.dialect.Delay == NoDelay:
		l.remark(number, NotRead, "%s ignores Crawl-delay", l.dialect.Name)
	case !ok:
		l.remark(number, NotRead, "%q is not a number of seconds", clip(value))
	case !plain:
		l.remark(number, Misspelt, "%s reads this as %g s, other crawlers may not: write a number of seconds",
			l.dialect.Name, asked.Seconds())
	}
}

func (l *linter) checkRate(number int, value string) {
	switch _, hours, ok := parseRate(value); {
	case !ok:
		l.remark(number, NotRead, "%q is not a number of pages, a slash and a time", clip(value))
	case hours != "":
		l.remark(number, Suspect, "the rate applies at all times, not only %q", clip(hours))
	}
}

func (l *linter) checkUnread(number int, line string) {
	line = lineContent(line)
	if line == "" || l.html {
		return
	}
	if field, _, found := strings.Cut(line, ":"); found {
		l.remark(number, NotRead, "unknown field %q", clip(trimSpace(field)))
		return
	}
	l.remark(number, NotRead, "not a field: %q", clip(line))
}

// checkAgents remarks on the names of a User-agent line.
func (l *linter) checkAgents(number int, value string) {
	names := slices.Collect(agentNames(value, &Dialect{Careful: true}))
	switch {
	case len(names) < 2:
	case l.dialect.Careful:
		l.remark(number, Misspelt, "%s reads each name, RFC 9309 only the first: write one User-agent line for each", l.dialect.Name)
	default:
		l.remark(number, NotRead, "%s reads only the first name: write one User-agent line for each", l.dialect.Name)
		names = names[:1]
	}
	for _, name := range names {
		l.checkAgent(number, name)
	}
}

// checkAgent remarks on a name that no client can have.
func (l *linter) checkAgent(number int, value string) {
	if isStar(value) {
		return
	}
	name := leadingName(value)
	run := leadingLetters(name)
	next := strings.TrimLeft(value[len(name):], " \t")
	switch {
	case hasUnicodeBlank(name):
		l.remark(number, Suspect, "%q has a blank that is not ASCII, or an invisible character, which is part of the name", clip(name))
	case name == "" || l.dialect.LettersOnly && run == "":
		l.remark(number, Nobody, "%q is not a product token", clip(value))
	case commonWords[strings.ToLower(name)]:
		l.remark(number, Nobody, "%q is in the header of every browser, so it names no client", clip(name))
	case l.dialect.LettersOnly && run != name:
		l.remark(number, Misspelt, "read as %q under %s", clip(run), l.dialect.Name)
	case len(next) < len(value)-len(name) && leadingName(next) != "":
		l.remark(number, NotRead, "only %q is read: a name ends at the first blank", clip(name))
	}
}

func (l *linter) checkPattern(number int, value string) {
	if hasUnicodeBlank(value) {
		l.remark(number, Suspect, "%q has a blank that is not ASCII, or an invisible character, which is part of the path",
			clip(value))
	}
	_, _, _, isURL := SplitURL(value)
	switch {
	// An empty value is the usual way to allow everything.
	case len(value) == 0:
	case canMatch(value):
		if l.dialect.AsWritten && strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			l.remark(number, NeverWins, "%q matches nothing: a URL has no spaces or control characters", clip(value))
		}
	case !isURL:
		l.remark(number, NeverWins, "%q matches nothing: a path must begin with a slash", clip(value))
	case l.dialect.Careful && l.origin == (Origin{}):
		l.remark(number, Suspect, "%q is a full URL: %s reads its path if it is one of this site, RFC 9309 does not",
			clip(value), l.dialect.Name)
	default:
		if pattern, own := ownPath(value, l.origin); own && l.dialect.Careful {
			l.remark(number, Misspelt, "%q is a full URL: %s reads it as %q, RFC 9309 does not", clip(value), l.dialect.Name, clip(pattern))
			return
		}
		l.remark(number, NeverWins, "%q matches nothing: write the path alone, without scheme and host", clip(value))
	}
}

// hasUnicodeBlank reports whether a text has white space that is not ASCII, or a character without
// width, in UTF-8 or Latin-1.
func hasUnicodeBlank(s string) bool {
	for i, r := range s {
		switch {
		case r == utf8.RuneError && s[i] == 0xA0,
			r > unicode.MaxASCII && unicode.IsSpace(r),
			r >= 0x200B && r <= 0x200D, r == 0x2060, r == 0xFEFF:
			return true
		}
	}
	return false
}

// checkJoins remarks on the first rule of each block that reaches agents which the file names before a
// line that does not end their list.
func (l *linter) checkJoins(source string) {
	s := parsed{dialect: l.dialect, origin: l.origin, source: source}
	// between is the first line that divides the current list of agents; checked says that the first
	// rule of the list was checked.
	between, checked := "", false
	for number, line := range lines(source) {
		f, value := splitLine(line, &l.dialect)
		switch {
		case f == fieldUserAgent && s.hasRule:
			between, checked = "", false
		case f != fieldUserAgent && f != fieldNone && between == "" && len(s.agents) > 0 && !s.hasRule:
			between = fmt.Sprintf("line %d (%q)", number, clip(lineContent(line)))
		}
		s.addLine(f, value, number)
		isRule := f == fieldAllow || f == fieldDisallow || f == fieldContentUsage
		if checked || !isRule || !s.hasRule || value == "" || len(s.agents) == 0 {
			continue
		}
		checked = true
		if early := earlierAgents(s.agents[s.blockStart:]); len(early) > 0 {
			more := ""
			if len(early) > 1 {
				more = fmt.Sprintf(" and %d more", len(early)-1)
			}
			const text = "%q (line %d) also applies to %q (line %d)%s, because %s does not end the list of agents (RFC 9309 2.2.4)"
			l.remark(number, Joined, text,
				clip(lineContent(line)), number, clip(early[0].value), early[0].line, more, between)
		}
	}
}

// earlierAgents returns the agents of a list that its last part does not name.
func earlierAgents(list []agentLine) (early []agentLine) {
	last := list[len(list)-1].part
	if list[0].part == last {
		return nil
	}
	named := make(map[string]bool)
	for _, a := range list {
		if a.part == last {
			named[lower(a.value)] = true
		}
	}
	for _, a := range list {
		if a.part != last && !named[lower(a.value)] {
			early = append(early, a)
		}
	}
	return early
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
	s := parseText(text, l.dialect, l.origin)
	file := compile(s)
	names, more := make(map[uint32][]Group), make(map[uint32]bool)
	for _, k := range s.keys() {
		block := uint32(s.agentOf(k).block)
		at := file.nameIndex(k.text)
		switch {
		case file.names[at].partial != k.partial:
		case len(names[block]) == maxAgentsTried:
			// The rule may win for an agent that is not tried.
			more[block] = true
		default:
			names[block] = append(names[block], Group{file: file, name: at})
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
			if by := it.winner(g, path); by == line || by == 0 || more[it.block] {
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

// samplePath returns a normalised path that another rule matches only if p matches all paths
// that this rule matches.
func (p *parsedRule) samplePath(text string) string {
	const unused = "\x01"
	path := strings.ReplaceAll(p.pattern(text), "*", unused)
	if !p.is(flagAnchored) {
		path += unused
	}
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}

// winner returns the line of the rule that decides about a sample path of p; 0: none does, or the
// search takes too many steps. A rule for one form of a path wins only over rules for that form.
func (p *parsedRule) winner(g Group, path string) int {
	m := matcher{tries: &g.file.tries, stepsLeft: int(MaxEffort)}
	switch {
	case p.is(flagNormalisedOnly):
		m.ignored = flagUnifiedOnly
	case p.is(flagUnifiedOnly):
		m.ignored = flagNormalisedOnly
	}
	m.matchTries(g, path)
	if m.best == nil || m.stepsLeft < 0 {
		return 0
	}
	return int(m.best.meta & maskLine)
}
