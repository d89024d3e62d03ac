package policy

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/tdmrep"
)

// applyPreferences sets in d what the site states about uses of the content of a path, and refuses an
// allowed request if that disallows a purpose of the client. Origins may read a path in several forms. The
// form counts whose preferences permit least; that of path, the one that robots.txt was matched with,
// if they permit the same. "" is the path of r without dot segments.
func (e *Engine) applyPreferences(ctx context.Context, d *Decision, r *Request, c *requestConfig, g robots.Group, path string) {
	d.Usage = e.o.Usage
	d.Usage.Purposes = cmp.Or(c.client.Purposes, d.Usage.Purposes)
	// With IgnoreUsage, preferences are recorded, and refuse nothing.
	d.Usage.Refuse = d.Usage.Refuse && !c.host.IgnoreUsage
	if d.Usage.Purposes == 0 {
		d.ContentUsage = joinLines(g.ContentUsage(path))
		return
	}
	if path == "" {
		path = pathWithoutDots(r.MatchPath())
	}
	if e.o.TDMRep != nil && d.Verdict == Allow && r.Origin.Scheme != "ftp" && d.Usage.Purposes&usage.SetOf(usage.TDM, usage.TrainAI) != 0 {
		e.lookUpTDMRep(ctx, d, r, c)
	}
	p := preferences{policy: d.Usage, group: g, tdmrep: d.TDMRep.TDMRep}
	s := p.of(path)
	if found := r.changes(e.countedChanges(c, c.client.dialect)); found != 0 && p.dependOnPath() {
		if other := p.ofOtherForms(r, found, s); other.refusal > s.refusal {
			s, d.Form, d.Read = other, other.form, other.path
		}
	}
	d.ContentUsage, d.Statements, d.TDMPolicy = joinLines(s.lines), s.statements, s.tdmPolicy
	if s.refusal == undecided && d.Usage.Refuse && d.Verdict == Allow {
		d.Verdict, d.Reason = Refuse, ReasonTooComplex
	}
	if by := d.Forbidding(); d.refuseUse() {
		d.JoinedLine = 0
		if by.Source == usage.RobotsTxt {
			d.JoinedLine = g.JoinedAgent(by.Line)
		}
	}
}

// lookUpTDMRep sets in d the origin's tdmrep.json. It fetches the file if it is not cached. A file that
// cannot be read states nothing. The request is refused if the cache gives no file, or if preferences may
// refuse it and the proxy itself failed to fetch the file.
func (e *Engine) lookUpTDMRep(ctx context.Context, d *Decision, r *Request, c *requestConfig) {
	entry, err := e.o.TDMRep.Lookup(ctx, e.query(r, c), tdmrep.Dialect())
	if err != nil {
		d.refuseUnread(ctx, err)
		return
	}
	d.TDMRep = entry.Under(tdmrep.Dialect())
	if d.Usage.Refuse && d.TDMRep.Meaning == cache.NoConnection && d.TDMRep.Result.OwnFailure {
		d.Verdict, d.Reason, d.Err = Refuse, ReasonOrigin, d.TDMRep.Err
	}
}

// parseSteps is how many steps of matching take at most as long as parsing a byte of a line with preferences.
const parseSteps = 5

// preferences are what a site states before a request.
type preferences struct {
	policy usage.Policy
	group  robots.Group

	// tdmrep is nil if the site has none.
	tdmrep *tdmrep.File

	// spent is the effort for all forms of the path together.
	spent robots.Effort
}

// dependOnPath reports whether the preferences may differ between paths.
func (p *preferences) dependOnPath() bool { return p.tdmrep != nil || p.group.HasPathPreferences() }

// A refusal is how much the preferences about one form of a path are a reason to refuse.
type refusal uint8

// The refusals, from the least to the greatest.
const (
	noRefusal    refusal = iota
	onlyRecorded         // a purpose is disallowed, and that is only recorded
	undecided            // the rule of tdmrep.json that counts is not known: matching takes too many steps
	useRefused           // the policy refuses the content
)

// formPreferences are the preferences about one form of a path.
type formPreferences struct {
	path    string
	form    Form
	refusal refusal

	// lines are the Content-Usage lines.
	lines []robots.UsageLine

	// statements are those that decide, of all sources.
	statements []usage.Statement

	// tdmPolicy is the URL of the terms in the rule of tdmrep.json; "": it has none.
	tdmPolicy string
}

// of returns what the site states about one form of a path. A tdmrep.json without a rule for it states
// nothing.
func (p *preferences) of(path string) (f formPreferences) {
	f.path, f.lines = path, p.group.ContentUsageWithin(path, &p.spent)
	signals := p.group.ContentSignalLines(path, &p.spent)
	for _, lines := range [...][]robots.UsageLine{signals, f.lines} {
		for _, l := range lines {
			p.spent += robots.Effort(len(l.Text) * parseSteps)
		}
	}
	f.statements = usage.Deciding(usage.FromRobots(signals, f.lines))
	rule, found := p.tdmrep.MatchWithin(path, &p.spent)
	if found && rule.Reservation != tdmrep.Unset {
		f.tdmPolicy = rule.Policy
		f.statements = append(f.statements, usage.FromTDMRep(rule.Location, rule.Reservation == tdmrep.Reserved))
	}
	switch {
	case p.policy.Refuses(f.statements):
		f.refusal = useRefused
	case rule.GaveUp:
		f.refusal = undecided
	case p.policy.Disallows(f.statements):
		f.refusal = onlyRecorded
	}
	return f
}

// ofOtherForms returns the preferences about the form of r's path that permit least, after those about
// the form that was looked at first. When it has taken too many steps, it looks at one more form, which
// then stands for all.
func (p preferences) ofOtherForms(r *Request, found Form, strictest formPreferences) formPreferences {
	for path, form := range forms(r.MatchPath(), found, &p.spent) {
		over := p.spent > robots.MaxEffort
		if f := p.of(path); f.refusal > strictest.refusal {
			strictest = f
			strictest.form = form
		}
		if over || strictest.refusal == useRefused {
			break
		}
	}
	return strictest
}

// refuseUse refuses an allowed request if d.Usage refuses the content.
func (d *Decision) refuseUse() (refused bool) {
	refused = d.Verdict == Allow && d.Usage.Refuses(d.Statements)
	if refused {
		d.Verdict, d.Reason = Refuse, ReasonUsage
	}
	return refused
}

// JudgeResponse adds to d, the Decision about r, what the header of the response states about uses of its
// content. It reports whether d, which allowed the request, refuses the content now. Only content is
// judged: responses of status 2xx, and 101, after which content follows.
func (e *Engine) JudgeResponse(r Request, d *Decision, status int, h http.Header) (refused bool) {
	if d.Usage.Purposes == 0 || status/100 != 2 && status != http.StatusSwitchingProtocols {
		return false
	}
	tokens, _ := e.tokens(e.clientState(r.Client), r.UserAgent)
	if stated := usage.FromResponse(h, tokens); len(stated) > 0 {
		d.Statements = usage.Supersede(d.Statements, stated)
	}
	return d.refuseUse()
}

// maxLicenses is how many License lines a Decision names. Real files have one or two.
const maxLicenses = 4

func joinLicenses(all []string) string { return strings.Join(all[:min(len(all), maxLicenses)], " ") }

func joinLines(lines []robots.UsageLine) string {
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.Text)
	}
	return strings.Join(texts, ", ")
}
