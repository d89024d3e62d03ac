package robots

import "iter"

// A Kind is what a line is read as, to be shown.
type Kind uint8

// What a line can be.
const (
	KindOther    Kind = iota // a comment, nothing, or what is not read
	KindAgent                // User-agent
	KindAllow                // Allow
	KindDisallow             // Disallow
	KindDelay                // Crawl-delay
	KindExtra                // Sitemap, License, Content-Signal, Content-Usage
)

// kinds says what each field is.
var kinds = [...]Kind{
	fieldNone: KindOther, fieldUserAgent: KindAgent, fieldAllow: KindAllow, fieldDisallow: KindDisallow, fieldCrawlDelay: KindDelay,
	fieldSitemap: KindExtra, fieldLicense: KindExtra, fieldContentSignal: KindExtra, fieldContentUsage: KindExtra,
}

// An OutlineLine is a line with its place in the file.
type OutlineLine struct {
	Line
	Kind  Kind
	Value string // what follows the colon; "" of a line that is not read
	Group int    // the group that it stands in, from 1 in their order; 0: none yet
}

// Outline gives the lines of a text as Parse reads them. It is for explanations.
func Outline(text string, d Dialect) iter.Seq[OutlineLine] {
	return func(yield func(OutlineLine) bool) {
		s := statements{dialect: d, source: text}
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

// Rules is how many rules f holds, in all its groups together.
func (f *File) Rules() int {
	if f == nil {
		return 0
	}
	return len(f.rules)
}
