package robots

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Dialect is one reading of robots.txt. Its fields say where it departs from RFC 9309. For the
// RFC itself all are zero but Name, NoFileOn429 and Literal, whose zero values are more careful
// than the RFC. A Dialect is comparable, and a program may make its own. Under the zero Dialect,
// which has no name, Parse returns nil, and a nil File refuses.
//
// The fields stand in four groups: what a line means, which group applies, which rule decides, and,
// for package robots/cache, what the response to the request for the file means.
type Dialect struct {
	// Name is the dialect's name as users write it. It is required.
	Name string

	// Misspellings: known misspellings of field names count, and so do two words without a colon
	// between them.
	Misspellings bool

	// Delay is the meaning of a Crawl-delay line.
	Delay Delay

	// UsageRules: a Content-Usage line is a rule, which ends the list of agents before it
	// (draft-ietf-aipref-attach).
	UsageRules bool

	// Careful: what the author of a file evidently meant counts, although RFC 9309 has no such line.
	//   - The text may be UTF-16 with a byte order mark, or gzip; see [Decode].
	//   - A delay may be written as "5s" or "1,5", or as a Request-rate.
	//   - A User-agent line may have several names with commas between them.
	//   - The pattern of a rule may be a URL of the file's own origin.
	//   - A Content-Signal line before the first group applies to every agent whose own lines say nothing.
	Careful bool

	// LettersOnly: only the leading letters, "-" and "_" of a name count (RFC 9309 2.2.1).
	LettersOnly bool

	// NamePrefixes: "foobot" applies to "foobot-images" too, unless a group has the longer name.
	NamePrefixes bool

	// AsWritten: paths are not normalised, and escapes in patterns are not decoded. It requires
	// ReservedAsWritten.
	AsWritten bool

	// ReservedAsWritten: an escaped reserved character, such as "%3A", never matches the character
	// itself.
	ReservedAsWritten bool

	// IndexPages: an Allow of "/a/index.html" allows "/a/" too.
	IndexPages bool

	// MatchRobotsTxt: "/robots.txt" is matched like any other path. A crawler may still fetch it.
	MatchRobotsTxt bool

	// Literal: package policy matches a path without dot segments, but in no other form that servers
	// may read.
	Literal bool

	// EmptyRules: if no other rule matches, the Verdict names an empty rule, which matches nothing.
	EmptyRules bool

	// Only200: only status 200 brings rules. Any other status means no file.
	Only200 bool

	// NoFileOn429: status 429 means no file, as any other 4xx does (RFC 9309 2.3.1.3).
	NoFileOn429 bool

	// NoFileOnDisallowedRedirect: a redirect to a URL that the robots.txt of its origin disallows
	// means no file.
	NoFileOnDisallowedRedirect bool

	// NoFileOnDeadRedirect: a 3xx that cannot be followed means no file.
	NoFileOnDeadRedirect bool

	// NoStale: a cached file is not used while its origin fails.
	NoStale bool

	// IgnoreCacheControl: Cache-Control does not shorten the time for which a file is used.
	IgnoreCacheControl bool

	// NoFileAfter is how long an origin without a cached file must have failed, in whatever way, to count as one without
	// a file. A cached file is then used for as long as the origin fails. 0 means never, and a cached file is used for 30
	// days.
	NoFileAfter time.Duration
}

// A Delay is the meaning of a Crawl-delay line. RFC 9309 has none.
type Delay uint8

// The meanings of a Crawl-delay line.
const (
	// The line is ignored.
	NoDelay Delay = iota
	// The line has decimal seconds for the agents since the last rule or delay. It does not end the
	// list of agents (RFC 9309 2.2.4).
	DelayOfAgents
	// The line has seconds, which are rounded up to whole ones. It ends the list of agents as a rule
	// does.
	DelayOfGroup
)

// month is how long an unreachable file keeps Google away, as its documents say.
const month = 30 * 24 * time.Hour

// dialects are all named dialects, the default first.
var dialects = [...]Dialect{
	// RFC 9309 and, where a file departs from it, what its author evidently meant.
	{Name: "standard", Misspellings: true, Delay: DelayOfAgents, UsageRules: true, Careful: true},

	// RFC 9309 to the letter.
	{Name: "rfc9309", Literal: true, NoFileOn429: true},

	// Google's documents of today, with the verdicts and the lines of its open-source parser, byte for byte.
	{
		Name: "google", Misspellings: true, LettersOnly: true,
		AsWritten: true, ReservedAsWritten: true, IndexPages: true, MatchRobotsTxt: true, Literal: true, EmptyRules: true,
		NoFileOnDisallowedRedirect: true, NoFileOnDeadRedirect: true, NoFileAfter: month,
	},

	// Google's documents of 2022.
	{
		Name: "google-2022", LettersOnly: true,
		AsWritten: true, ReservedAsWritten: true, Literal: true,
		NoFileOn429: true, NoFileOnDisallowedRedirect: true, NoFileOnDeadRedirect: true, NoFileAfter: month,
	},

	// Google's documents of 2019: "googlebot" applies to "googlebot-images".
	{
		Name: "google-2019", LettersOnly: true, NamePrefixes: true,
		AsWritten: true, ReservedAsWritten: true, Literal: true,
		NoFileOn429: true, NoFileOnDeadRedirect: true, NoFileAfter: month,
	},

	// The documents of Cốc Cốc, a Vietnamese search engine.
	{
		Name: "coccoc", Delay: DelayOfGroup, NamePrefixes: true,
		ReservedAsWritten: true, Only200: true, NoStale: true, IgnoreCacheControl: true,
	},
}

// Dialects returns the named dialects, the standard one first. docs/how-it-decides.md compares them.
func Dialects() []Dialect { return slices.Clone(dialects[:]) }

// Standard returns RFC 9309 and, where a file departs from it, what its author evidently meant:
// misspellings, Crawl-delay, and what [Dialect] calls Careful.
func Standard() Dialect { return dialects[0] }

// DialectByName returns the dialect of [Dialects] with that name. The error lists the names.
func DialectByName(name string) (Dialect, error) {
	for _, d := range dialects {
		if d.Name == name {
			return d, nil
		}
	}
	var names []string
	for _, d := range dialects {
		names = append(names, d.Name)
	}
	return Dialect{}, fmt.Errorf("unknown robots.txt dialect %q: use one of %s", clip(name), strings.Join(names, ", "))
}
