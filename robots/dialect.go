package robots

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Dialect is one reading of robots.txt: a value whose fields say where it
// departs from RFC 9309. Under the RFC they are all zero but the name, BusyIsNone
// and Literal, whose zero values are the careful ones. It is comparable, and a
// program may make its own. The zero Dialect has no name and reads nothing:
// Parse gives nil under it, which refuses.
type Dialect struct {
	Name string // as users write it; required

	// What a line says.
	Misspellings bool  // known misspellings of fields count, and two words without a colon between them
	Delay        Delay // what a Crawl-delay line is

	// Whose rules apply.
	LettersOnly bool // a name is its leading letters, "-" and "_" (RFC 9309 2.2.1), and no more
	Family      bool // "foobot" covers "foobot-images", where no group has the longer name

	// Which rule decides.
	AsWritten    bool // paths are not touched, escapes in patterns not decoded; every octet of a pattern counts, a last "*" too
	IndexPages   bool // an Allow of "/a/index.html" allows "/a/" as well
	JudgesItself bool // "/robots.txt" is judged like any other path; who fetches pages may fetch it all the same
	Literal      bool // a path is judged only as it was sent and without dot segments, not in other forms in which servers may read it; for package policy
	EmptyRules   bool // an empty rule, which matches nothing, is named where no other matches

	// What an answer to the request for the file means; robots/cache asks.
	OnlyOK     bool          // only 200 brings rules; any other status says that there are none
	BusyIsNone bool          // 429 says that there are none, as any other 4xx (RFC 9309 2.3.1.3)
	BarsAsNone bool          // a redirect to an address that the robots.txt there disallows says that there are none
	Forgets    bool          // a copy from before does not rule while the origin fails
	GivesUp    time.Duration // an origin that has failed for so long, with no copy held, has no rules; 0: never
	Stays      bool          // a file is good for its whole time, whatever its Cache-Control says
}

// A Delay says what a Crawl-delay line is. RFC 9309 has none.
type Delay uint8

// What it may be.
const (
	NoDelay       Delay = iota
	DelayOfAgents       // decimal seconds for the agents named since the last rule or delay; it ends no list of agents (RFC 9309 2.2.4)
	DelayOfGroup        // whole seconds, rounded up; a rule of its group like any other
)

// month is how long an unreachable file keeps Google away, by its documents.
const month = 30 * 24 * time.Hour

// dialects are all there are, the default first.
var dialects = [...]Dialect{
	{Name: "standard", Misspellings: true, Delay: DelayOfAgents},
	{Name: "rfc9309", BusyIsNone: true, Literal: true},
	{Name: "google", Misspellings: true, LettersOnly: true, AsWritten: true, Literal: true, IndexPages: true, EmptyRules: true, JudgesItself: true, BarsAsNone: true, GivesUp: month},
	{Name: "google-2022", LettersOnly: true, AsWritten: true, Literal: true, BusyIsNone: true, BarsAsNone: true, GivesUp: month},
	{Name: "google-2019", LettersOnly: true, Family: true, AsWritten: true, Literal: true, BusyIsNone: true, GivesUp: month},
	{Name: "coccoc", Delay: DelayOfGroup, Family: true, OnlyOK: true, Forgets: true, Stays: true},
}

// Dialects gives those that have a name here, the standard one first:
//
//	standard     RFC 9309, the misspellings that Google's open parser takes, and Crawl-delay
//	rfc9309      RFC 9309 to the letter
//	google       what Google documents today; verdict and line of its open parser, to the octet
//	google-2022  what it documented in 2022
//	google-2019  what it documented in 2019: "googlebot" covers "googlebot-images"
//	coccoc       what Cốc Cốc documents: families of names, whole seconds of Crawl-delay
func Dialects() []Dialect { return slices.Clone(dialects[:]) }

// Standard gives RFC 9309 with the tolerance for misspellings of Google's
// open parser, and Crawl-delay.
func Standard() Dialect { return dialects[0] }

// DialectByName finds one of Dialects; the error lists their names.
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
	return Dialect{}, fmt.Errorf("no robots.txt dialect is called %q; there are: %s", clip(name), strings.Join(names, ", "))
}
