package policy

import "robotsproxy/robots"

// A matchResult is the result of matching a group's rules with a request's path.
type matchResult struct {
	robots.Verdict

	// path is the form of the path and query that decided, and form the changes that lead to it.
	path string
	form Form

	// spent is the effort for all forms together.
	spent robots.Effort
}

// MatchLiteral matches a group's rules with a target as [LiteralReadings] does: as it was sent, and
// without dot segments. Of the origin, only the scheme matters.
func MatchLiteral(g robots.Group, t robots.Target) robots.Verdict {
	return matchForms(g, &Request{Target: t}, literalChanges).Verdict
}

// matchForms matches a group's rules with a request's path: as it was sent and, as long as
// each form is allowed, in the other forms in which its origin may read it. If all forms are
// allowed, the result is that of the path without dot segments, which all origins remove.
// counted are the changes that count.
func matchForms(g robots.Group, r *Request, counted Form) (j matchResult) {
	j.path = r.MatchPath()
	j.Verdict = g.MatchWithin(j.path, &j.spent)
	if found := r.changes(counted); found != 0 && j.Allow {
		return matchOtherForms(g, r, found, j)
	}
	return j
}

// matchOtherForms returns the result for all forms; j is that for the path as it was sent. It is a
// function of its own because its loop takes variables to the heap.
func matchOtherForms(g robots.Group, r *Request, found Form, j matchResult) matchResult {
	for path, form := range forms(r.MatchPath(), found, &j.spent) {
		v := g.MatchWithin(path, &j.spent)
		if !v.Allow || form == DotsRemoved || form == AsFTP {
			j.Verdict, j.path, j.form = v, path, form
		}
		if !v.Allow {
			break
		}
	}
	return j
}

// changes returns which of the counted changes the origin may make to the path.
func (r *Request) changes(counted Form) Form {
	if r.Origin.Scheme == "ftp" {
		return AsFTP
	}
	return changesOf(r.MatchPath()) & counted
}
