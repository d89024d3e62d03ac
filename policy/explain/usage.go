package explain

import (
	"fmt"
	"strings"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/usage"
)

// usageOf returns the member usage of the record of a decision.
func usageOf(d *policy.Decision) (all map[string]trail.Usage) {
	for c := range d.Usage.Purposes.All {
		said, by := usage.Decide(c, d.Statements)
		u := trail.Usage{Outcome: said.String()}
		if by != nil {
			u.Statement, u.Source, u.Line = by.String(), by.Source, by.Line
		}
		if all == nil {
			all = make(map[string]trail.Usage)
		}
		all[c.String()] = u
	}
	return all
}

// forbids returns the statement that disallows the first of the client's purposes that is disallowed, and
// that purpose; the zero values: none is.
func forbids(stated map[string]trail.Usage) (u trail.Usage, purpose string) {
	for c := range usage.Everything.All {
		if u := stated[c.String()]; u.Outcome == usage.Disallowed.String() {
			return u, c.String()
		}
	}
	return trail.Usage{}, ""
}

// forbiddenUse says which purpose the site does not permit, and where it says so.
func forbiddenUse(stated map[string]trail.Usage) string {
	if u, purpose := forbids(stated); purpose != "" {
		return fmt.Sprintf("%s does not permit the use of this content for %s (%s)", whereStated(u), purpose, humanize.Brief(u.Statement))
	}
	for c := range usage.Everything.All {
		if stated[c.String()].Outcome == usage.Unknown.String() {
			return fmt.Sprintf("The site does not say whether this content may be used for %s, "+
				"and the operator requires that it does (usage.on_unknown: refuse)", c)
		}
	}
	return policy.ReasonUsage.Info().Text
}

// Disallowed lists the purposes for which a site does not permit the use of content, each with where it
// says so; "": there is none. It is printable.
func Disallowed(stated map[string]trail.Usage) string {
	var all []string
	for c := range usage.Everything.All {
		if u := stated[c.String()]; u.Outcome == usage.Disallowed.String() {
			all = append(all, fmt.Sprintf("%s (%s)", c, humanize.Brief(source(u))))
		}
	}
	if all == nil {
		return ""
	}
	return "not for " + strings.Join(all, ", ")
}

// source names the source of a statement, with its line if it has one.
func source(u trail.Usage) string {
	if u.Line > 0 {
		return fmt.Sprintf("%s line %d", u.Source, u.Line)
	}
	return u.Source
}

// whereStated names the source of a statement at the beginning of a sentence.
func whereStated(u trail.Usage) string {
	if header, found := strings.CutPrefix(u.Source, "header "); found {
		return "The header " + humanize.Brief(header) + " of the site's response"
	}
	where := "The site's " + humanize.Brief(u.Source)
	if u.Line > 0 {
		where += fmt.Sprintf(" (line %d)", u.Line)
	}
	return where
}

// uses gives a fact for each purpose of the client.
func uses(stated map[string]trail.Usage) []Fact {
	var f facts
	for c := range usage.Everything.All {
		u := stated[c.String()]
		text, where := u.Outcome, source(u)
		// The statement begins with the name of the header.
		if strings.HasPrefix(u.Source, "header ") {
			where = "response header"
		}
		if u.Statement != "" {
			text += fmt.Sprintf(" (%s: %s)", where, u.Statement)
		}
		f.add("use "+c.String(), humanize.Brief(text))
	}
	return f
}
