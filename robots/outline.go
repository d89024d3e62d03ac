package robots

import "iter"

// A Kind is the kind of a line, for display.
type Kind uint8

// The kinds of lines.
const (
	KindOther    Kind = iota // a comment, an empty line, or a line that is not parsed
	KindAgent                // User-agent
	KindAllow                // Allow
	KindDisallow             // Disallow
	KindDelay                // Crawl-delay, Request-rate
	KindExtra                // Sitemap, License, Content-Signal, Content-Usage
)

// kinds are the kinds of fields.
var kinds = [...]Kind{
	fieldNone: KindOther, fieldUnknown: KindOther, fieldUserAgent: KindAgent, fieldAllow: KindAllow, fieldDisallow: KindDisallow,
	fieldCrawlDelay: KindDelay, fieldRequestRate: KindDelay,
	fieldSitemap: KindExtra, fieldLicense: KindExtra, fieldContentSignal: KindExtra, fieldContentUsage: KindExtra,
}

// An OutlineLine is a line with its kind and its group.
type OutlineLine struct {
	Line
	Kind Kind

	// Value is what follows the colon. It is "" if the line is not parsed.
	Value string

	// Group is the group that the line is in, from 1 in the order of the file; 0: none.
	Group int
}

// Outline yields the lines of a text as Parse reads them; none if [Decode] gives an error. It is for
// explanations.
func Outline(text string, d Dialect) iter.Seq[OutlineLine] {
	text, _, _ = Decode(text, d)
	return func(yield func(OutlineLine) bool) {
		s := parsed{dialect: d, source: text}
		for number, content := range lines(text) {
			f, value := splitLine(content, &d)
			s.addLine(f, value, number)
			if !yield(OutlineLine{Line{number, content}, kinds[f], value, s.blocks}) {
				return
			}
		}
	}
}

// A Line is one line of a text as written, without its line end.
type Line struct {
	// Number counts from 1.
	Number int
	Text   string
}

// Excerpt returns the lines near one: it, and up to around lines before and after. It also
// returns the User-agent lines of the group that the line is in; none if the line is in no
// group. Excerpt is for explanations.
func Excerpt(text string, d Dialect, line, around int) (near, agents []Line) {
	group := 0
	for l := range Outline(text, d) {
		if l.Number > line+around {
			break
		}
		if l.Number >= line-around {
			near = append(near, l.Line)
		}
		if l.Number > line {
			continue
		}
		if l.Group != group {
			group, agents = l.Group, nil
		}
		if l.Kind == KindAgent {
			agents = append(agents, l.Line)
		}
	}
	return near, agents
}
