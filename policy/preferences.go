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

// usagePolicy returns the usage.Policy for a request. An entry of Options.Hosts may have it ignored: then
// preferences are recorded, and refuse nothing.
func (e *Engine) usagePolicy(c *requestConfig) usage.Policy {
	p := e.o.Usage
	if c.client != nil && c.client.Purposes != 0 {
		p.Purposes = c.client.Purposes
	}
	if c.host != nil && c.host.IgnoreUsage {
		p.Refuse = false
	}
	return p
}

// applyPreferences sets in d what robots.txt states about uses of the content of a path, and refuses an
// allowed request if that disallows a purpose of the client.
func (e *Engine) applyPreferences(ctx context.Context, d *Decision, r *Request, c *requestConfig, g robots.Group, path string) {
	usages := g.ContentUsage(path)
	d.ContentUsage = joinLines(usages)
	d.Usage = e.usagePolicy(c)
	if d.Usage.Purposes == 0 {
		return
	}
	d.Statements = usage.Deciding(usage.FromRobots(g.ContentSignalLines(), usages))
	if e.o.TDMRep != nil && d.Verdict == Allow && r.Origin.Scheme != "ftp" && d.Usage.Purposes&usage.SetOf(usage.TDM, usage.TrainAI) != 0 {
		e.applyTDMRep(ctx, d, r, cmp.Or(path, pathWithoutDots(r.PathQuery)))
	}
	d.refuseUse()
}

// applyTDMRep adds to d what the origin's tdmrep.json states about a path. It fetches the file if it is not
// cached. A file that cannot be read, or gives no rule for the path, states nothing. The request is refused
// if the cache gives no file, or if preferences may refuse it and the match takes too many steps.
func (e *Engine) applyTDMRep(ctx context.Context, d *Decision, r *Request, path string) {
	entry, err := e.o.TDMRep.Lookup(ctx, cache.Query{Origin: r.Origin, Client: ShareKey(r.Client)}, tdmrep.Dialect())
	if err != nil {
		d.Verdict, d.Reason, d.Err = Refuse, ReasonUnreachable, err
		if ctx.Err() != nil {
			d.Reason = ReasonClient
		}
		return
	}
	d.TDMRep = entry.Under(tdmrep.Dialect())
	rule, found := d.TDMRep.TDMRep.Match(path)
	switch {
	case rule.GaveUp && d.Usage.Refuse:
		d.Verdict, d.Reason = Refuse, ReasonTooComplex
	case found && rule.Reservation != tdmrep.Unset:
		d.Statements = append(d.Statements, usage.FromTDMRep(rule.Location, rule.Reservation == tdmrep.Reserved))
	}
}

// pathWithoutDots returns a path and query without dot segments, which all origins remove.
func pathWithoutDots(pathQuery string) string {
	end := strings.IndexByte(pathQuery+"?", '?')
	return withoutDots(pathQuery[:end]) + pathQuery[end:]
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
	c := e.configFor(&r)
	if stated := usage.FromResponse(h, c.tokens); len(stated) > 0 {
		d.Statements = usage.Supersede(d.Statements, stated)
	}
	return d.refuseUse()
}

// maxLicenses is how many License lines a Decision names. Real files have one or two.
const maxLicenses = 4

func joinLicenses(all []string) string { return strings.Join(all[:min(len(all), maxLicenses)], " ") }

func joinLines(lines []robots.UsageLine) string {
	if len(lines) == 1 {
		return lines[0].Text
	}
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.Text)
	}
	return strings.Join(texts, ", ")
}
