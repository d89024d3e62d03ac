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
type Dialect struct {
	// As users write it; required.
	Name string

	// What a line means.
	// Known misspellings of field names count, and so do two words without a colon between them.
	Misspellings bool

	// The meaning of a Crawl-delay line.
	Delay Delay

	// A Content-Usage line is a rule, which ends the list of agents before it (draft-ietf-aipref-attach).
	UsageRules bool

	// Careful: what the author of a file evidently meant counts, although RFC 9309 has no such line.
	//   - The text may be UTF-16 with a byte order mark, or gzip; see [Decode].
	//   - A delay may be written as "5s" or "1,5", or as a Request-rate.
	//   - A User-agent line may have several names with commas between them.
	//   - The pattern of a rule may be a URL of the file's own origin.
	//   - A Content-Signal line before the first group applies to every agent whose own lines say nothing.
	Careful bool

	// Which group applies.
	// Only the leading letters, "-" and "_" of a name count (RFC 9309 2.2.1).
	LettersOnly bool

	// "foobot" applies to "foobot-images" too, unless a group has the longer name.
	NamePrefixes bool

	// Which rule decides.
	// Paths are not normalised, and escapes in patterns not decoded; only with ReservedAsWritten.
	AsWritten bool

	// An escaped reserved character, such as "%3A", never matches the character itself.
	ReservedAsWritten bool

	// An Allow of "/a/index.html" allows "/a/" too.
	IndexPages bool

	// "/robots.txt" is matched like any other path; a crawler may still fetch it.
	MatchRobotsTxt bool

	// A path is matched without dot segments, but in no other form that servers may read; for package policy.
	Literal bool

	// An empty rule, which matches nothing, is named in the Verdict if no other rule matches.
	EmptyRules bool

	// What the response to the request for the file means; for robots/cache.
	// Only status 200 brings rules; any other status means no file.
	Only200 bool

	// Status 429 means no file, as any other 4xx does (RFC 9309 2.3.1.3).
	NoFileOn429 bool

	// A redirect to a URL that the robots.txt of its origin disallows means no file.
	NoFileOnDisallowedRedirect bool

	// A 3xx that cannot be followed means no file.
	NoFileOnDeadRedirect bool

	// A cached file is not used while its origin fails.
	NoStale bool

	// Cache-Control does not shorten the time for which a file is used.
	IgnoreCacheControl bool

	// An origin that has failed for so long, without a cached file, has no file; 0: never.
	NoFileAfter time.Duration
}

// A Delay is the meaning of a Crawl-delay line. RFC 9309 has none.
type Delay uint8

// The meanings of a Crawl-delay line.
const (
	NoDelay Delay = iota
	// Decimal seconds for the agents since the last rule or delay; the line does not end the list of agents (RFC 9309
	// 2.2.4).
	DelayOfAgents
	// Whole seconds, rounded up; the line ends the list of agents as a rule does.
	DelayOfGroup
)

// month is how long an unreachable file keeps Google away, as its documents say.
const month = 30 * 24 * time.Hour

// dialects are all named dialects, the default first.
var dialects = [...]Dialect{
	{Name: "standard", Misspellings: true, Delay: DelayOfAgents, UsageRules: true, Careful: true},
	{Name: "rfc9309", NoFileOn429: true, Literal: true},
	{
		Name: "google", Misspellings: true, LettersOnly: true, AsWritten: true, ReservedAsWritten: true, Literal: true,
		IndexPages: true, EmptyRules: true, MatchRobotsTxt: true,
		NoFileOnDisallowedRedirect: true, NoFileOnDeadRedirect: true, NoFileAfter: month,
	},
	{
		Name: "google-2022", LettersOnly: true, AsWritten: true, ReservedAsWritten: true, Literal: true,
		NoFileOn429: true, NoFileOnDisallowedRedirect: true, NoFileOnDeadRedirect: true, NoFileAfter: month,
	},
	{
		Name: "google-2019", LettersOnly: true, NamePrefixes: true, AsWritten: true, ReservedAsWritten: true, Literal: true,
		NoFileOn429: true, NoFileOnDeadRedirect: true, NoFileAfter: month,
	},
	{
		Name: "coccoc", Delay: DelayOfGroup, NamePrefixes: true, ReservedAsWritten: true,
		Only200: true, NoStale: true, IgnoreCacheControl: true,
	},
}

// Dialects returns the named dialects, the standard one first:
//
//	standard     RFC 9309 and, where a file departs from it, what its author evidently meant
//	rfc9309      RFC 9309 to the letter
//	google       Google's documents of today; verdicts and lines of its open-source parser
//	google-2022  Google's documents of 2022
//	google-2019  Google's documents of 2019: "googlebot" applies to "googlebot-images"
//	coccoc       Cốc Cốc's documents: name prefixes, whole seconds of Crawl-delay
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
