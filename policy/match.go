package policy

import "robotsproxy/robots"

// A matchResult is the result of matching a group's rules with a request's path.
type matchResult struct {
	robots.Verdict
	path  string        // the form of the path and query that decided
	form  Form          // the changes that lead to that form
	spent robots.Effort // for all forms together
}

// matchForms matches a group's rules with a request's path: as it was sent and, as long as
// each form is allowed, in the other forms in which its origin may read it. If all forms are
// allowed, the result is that of the path without dot segments, which all origins remove.
// With literal that is the only other form.
func matchForms(g robots.Group, r *Request, literal bool) (j matchResult) {
	j.path = r.PathQuery
	j.Verdict = g.MatchWithin(r.PathQuery, &j.spent)
	if r.Origin.Scheme == "ftp" {
		for _, path := range ftpForms(r.PathQuery) {
			if !j.Allow {
				break
			}
			j.Verdict, j.path, j.form = g.MatchWithin(path, &j.spent), path, AsFTP
		}
		return j
	}
	found := changesOf(r.PathQuery)
	if literal {
		found &= DotsRemoved
	}
	if found == 0 || !j.Allow {
		return j
	}
	for path, form := range forms(r.PathQuery, found, &j.spent) {
		v := g.MatchWithin(path, &j.spent)
		if !v.Allow || form == DotsRemoved {
			j.Verdict, j.path, j.form = v, path, form
		}
		if !v.Allow {
			break
		}
	}
	return j
}
