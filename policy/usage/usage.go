// Package usage tells for which purposes a site permits or forbids that its content is used.
//
// A site states its preferences in several vocabularies: Content-Usage (draft-ietf-aipref-vocab),
// Content-Signal (contentsignals.org), the TDM Reservation Protocol (W3C Community Group report of
// 10 May 2024) and X-Robots-Tag. [Mappings] says what each of their terms means for a [Category].
// [FromRobots] and [FromResponse] read the statements, and [Deciding] combines them.
//
// The package fetches nothing, decides about no request and cannot fail: what it does not understand
// says nothing, so the preference stays unknown. All functions are pure; any number of goroutines may
// call them.
package usage

import (
	"slices"
	"strings"
)

// The fields that state preferences.
const (
	usageField  = "Content-Usage"
	signalField = "Content-Signal"
	tdmField    = "tdm-reservation"
	tagField    = "X-Robots-Tag"
)

// A Category is a class of uses of content.
type Category uint8

// The categories.
const (
	TrainAI    Category = iota // training a model that generates content (draft-ietf-aipref-vocab, AI Model Training)
	AIInput                    // as input of a model that answers (contentsignals.org)
	Search                     // in a search application that directs users to the content (draft-ietf-aipref-vocab, Search)
	TDM                        // text and data mining (Directive (EU) 2019/790, Article 2(2))
	categories = iota
)

var names = [categories]string{TrainAI: "train-ai", AIInput: "ai-input", Search: "search", TDM: "tdm"}

// String returns the name that configuration and records use.
func (c Category) String() string { return names[c] }

// ParseCategory returns the Category with a name.
func ParseCategory(name string) (c Category, known bool) {
	i := slices.Index(names[:], name)
	return Category(max(i, 0)), i >= 0
}

// A Set is a set of categories. The zero Set is empty.
type Set uint8

// Everything has all categories.
const Everything Set = 1<<categories - 1

// SetOf returns the Set of some categories.
func SetOf(cs ...Category) (s Set) {
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

// Has reports whether c is in s.
func (s Set) Has(c Category) bool { return s&(1<<c) != 0 }

// All yields the categories in s, in their order.
func (s Set) All(yield func(Category) bool) {
	for c := range Category(categories) {
		if s.Has(c) && !yield(c) {
			return
		}
	}
}

// String returns the names of the categories, separated by commas.
func (s Set) String() string {
	var all []string
	for c := range s.All {
		all = append(all, c.String())
	}
	return strings.Join(all, ", ")
}

// A Preference is what a site says of one Category (draft-ietf-aipref-vocab, Statements of Preference).
type Preference uint8

// The preferences.
const (
	Unknown Preference = iota
	Allowed
	Disallowed
)

// String returns the word that records use.
func (p Preference) String() string {
	return [...]string{Unknown: "unknown", Allowed: "allowed", Disallowed: "disallowed"}[p]
}

// The sources of statements, as records name them. That of a response header is "header " and the
// field's name.
const (
	RobotsTxt = "robots.txt"
	TDMRep    = "tdmrep.json"
)

// A Statement is one statement of a site. Its strings are as the site sent them.
type Statement struct {
	// Source is RobotsTxt, TDMRep or "header NAME".
	Source string

	// Field is Content-Usage, Content-Signal, tdm-reservation or X-Robots-Tag.
	Field string

	// Line is the line in robots.txt, from 1; 0: the statement is of another source.
	Line int

	// Text is the value of the field, of which the first 2 KiB are kept.
	Text string

	// Says has the preference for each Category.
	Says [categories]Preference
}

// String returns the statement as the site wrote it: its field and value.
func (s *Statement) String() string { return s.Field + ": " + s.Text }

// Decide returns the preference that statements combined state for a category, and the statement that
// decides: one that disallows, else one that allows (draft-ietf-aipref-vocab, Combining Preferences). It
// is nil with Unknown.
func Decide(c Category, statements []Statement) (Preference, *Statement) {
	var allows *Statement
	for i := range statements {
		switch statements[i].Says[c] {
		case Disallowed:
			return Disallowed, &statements[i]
		case Allowed:
			if allows == nil {
				allows = &statements[i]
			}
		}
	}
	if allows == nil {
		return Unknown, nil
	}
	return Allowed, allows
}

// Deciding returns those of the statements that decide a category, at most one for each. Decide gives
// for them what it gives for all.
func Deciding(statements []Statement) []Statement {
	var deciding [categories]*Statement
	for c := range Category(categories) {
		_, deciding[c] = Decide(c, statements)
	}
	var kept []Statement
	for i := range statements {
		if slices.Contains(deciding[:], &statements[i]) {
			kept = append(kept, statements[i])
		}
	}
	return kept
}

// Supersede returns the statements before a response together with those in its header. A
// tdm-reservation in the header takes the place of that in tdmrep.json (TDM Reservation Protocol,
// Processing priority).
func Supersede(before, header []Statement) []Statement {
	var reserved bool
	for _, s := range header {
		reserved = reserved || s.Field == tdmField
	}
	var all []Statement
	for _, s := range before {
		if !reserved || s.Source != TDMRep {
			all = append(all, s)
		}
	}
	return Deciding(append(all, header...))
}

// A Policy says for what purposes content is fetched, and what the preferences of sites mean for that.
// The zero Policy has no purposes: it looks at no statement.
type Policy struct {
	Purposes Set

	// Refuse has content refused that a site disallows for one of the Purposes; false: that is only recorded.
	Refuse bool

	// RefuseUnknown, with Refuse, has content refused of which a site says nothing, too.
	RefuseUnknown bool
}

// Disallows reports whether the site disallows one of the Purposes of p.
func (p Policy) Disallows(statements []Statement) bool {
	return Policy{Purposes: p.Purposes, Refuse: true}.Refuses(statements)
}

// Refuses reports whether p refuses content about which a site makes these statements.
func (p Policy) Refuses(statements []Statement) bool {
	if !p.Refuse {
		return false
	}
	for c := range p.Purposes.All {
		if said, _ := Decide(c, statements); said == Disallowed || said == Unknown && p.RefuseUnknown {
			return true
		}
	}
	return false
}
