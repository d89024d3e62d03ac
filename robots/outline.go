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
	KindDelay                // Crawl-delay
	KindExtra                // Sitemap, License, Content-Signal, Content-Usage
)

// kinds are the kinds of fields.
var kinds = [...]Kind{
	fieldNone: KindOther, fieldUserAgent: KindAgent, fieldAllow: KindAllow, fieldDisallow: KindDisallow, fieldCrawlDelay: KindDelay,
	fieldSitemap: KindExtra, fieldLicense: KindExtra, fieldContentSignal: KindExtra, fieldContentUsage: KindExtra,
}

// An OutlineLine is a line with its kind and its group.
type OutlineLine struct {
	Line
	Kind  Kind
	Value string // what follows the colon; "" if the line is not parsed
	Group int    // the group that the line is in, from 1 in the order of the file; 0: none
}

// Outline yields the lines of a text as Parse reads them. It is for explanations.
func Outline(text string, d Dialect) iter.Seq[OutlineLine] {
	return func(yield func(OutlineLine) bool) {
		s := parsed{dialect: d, source: text}
		for number, content := range lines(text) {
			f, value := splitLine(content, d.Misspellings)
			if f != fieldNone {
				s.add(f, value, number)
			}
			if !yield(OutlineLine{Line{number, content}, kinds[f], value, s.blocks}) {
				return
			}
		}
	}
}

// Rules returns how many rules f has, in all its groups together.
func (f *File) Rules() int {
	if f == nil {
		return 0
	}
	return len(f.rules)
}
