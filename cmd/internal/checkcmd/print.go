package checkcmd

import (
	"fmt"
	"strings"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// maxLinks is how many of a file's sitemaps are shown to people, and of its licenses. JSON has
// them all.
const maxLinks = 5

// text is the finding for people. Strangers' words are quoted where they are
// not plain.
func (f *Finding) text(colours bool) string {
	s := &cli.Sheet{Colours: colours}
	word, colour := "unknown", cli.Yellow
	switch f.status() {
	case 0:
		word, colour = "allowed", cli.Green
	case exitDisallowed:
		word, colour = "disallowed", cli.Red
	}
	fmt.Fprintf(&s.Text, "%s %s\n", s.Paint(colour, fmt.Sprintf("%-10s", word)), cli.Printable(f.URL))
	if f.Rule != "" {
		s.Row("rule", RuleText(f.Allow, f.Rule, f.Line))
	} else {
		s.Row("why", f.Why())
	}
	if f.Reading != "" {
		s.Row("read as", cli.Printable(cli.Clip(f.Read))+" ("+f.Reading+")")
	}
	s.Row("entry", cli.Printable(f.Match))
	s.Row("reason", f.Because)
	s.Row("error", cli.Harmless(f.Error))
	s.Row("group", cli.Printable(cli.Clip(f.Group)))
	f.Asker.print(s)
	s.Row("dialect", f.Dialect)
	f.Source.print(s)
	if f.Asked > 0 {
		s.Row("crawl-delay", fmt.Sprintf("%g s (asked: %g s)", f.Delay, f.Asked))
	}
	f.wishes.print(s)
	var matching, alike []string
	for _, o := range f.Others {
		if text := RuleText(o.Allow, o.Rule, o.Line); o.Matches {
			matching = append(matching, text)
		} else {
			alike = append(alike, text)
		}
	}
	s.Row("outranked", matching...)
	s.Row("begins alike", alike...)
	return s.Text.String()
}

func RuleText(allow bool, rule string, line int) string {
	field := "Disallow"
	if allow {
		field = "Allow"
	}
	return fmt.Sprintf("%s: %s (line %d)", field, cli.Word(rule), line)
}

// why puts into words what no rule decided.
func (f *Finding) Why() string {
	switch policy.Reason(f.Reason) {
	case policy.ReasonNoRule:
		if f.Group == "" {
			return "no group of the file applies"
		}
		return "no rule of the group matches"
	case policy.ReasonNoFile:
		return f.whyNone()
	case policy.ReasonTunnel:
		return "an HTTPS connection that is not opened (tls.intercept, tls.tunnel): only the site as a whole is judged"
	case policy.ReasonOverride:
		return "an entry of hosts says that robots.txt is not to be asked (robots: ignore)"
	case policy.ReasonDenied:
		return "an entry of hosts says that nothing is to go there (robots: deny)"
	case policy.ReasonIdentity:
		return "who asks does not say so in its headers (identity.require); -A and identity.user_agent are the User-Agent, identity.from is From"
	case policy.ReasonRobotsTxt:
		return "/robots.txt itself may always be fetched (RFC 9309 2.2.2)"
	case policy.ReasonUnreachable:
		return "the site was reached but gave no usable robots.txt, so nothing of it may be fetched (RFC 9309 2.3.1.4)"
	case policy.ReasonOrigin:
		return "the site was not reached"
	case policy.ReasonCrawlDelay:
		return "the site asks for a longer Crawl-delay than robots.max_crawl_delay (robots.over_max: refuse)"
	case policy.ReasonTooComplex:
		return "the file has too many rules with \"*\" for an address of this length: the proxy gives up matching and refuses the request"
	case policy.ReasonAddress:
		return "the address that it leads to is a forbidden destination (egress.allow_private)"
	case policy.ReasonPort:
		return "the port that it leads to is a forbidden destination (egress.ports)"
	}
	return f.Reason
}

// whyNone puts into words why there are no rules.
func (f *Finding) whyNone() string {
	switch {
	case f.Error != "":
		return "robots.txt has failed for so long that " + f.Dialect + " takes it that there is none: everything is allowed"
	case f.Barred:
		return "robots.txt is redirected to an address that the robots.txt there disallows: under " + f.Dialect + " there are no rules then, and everything is allowed"
	case f.Status == 429 || f.Status < 300 || f.Status >= 500:
		return fmt.Sprintf("under %s status %d says that there are no rules: everything is allowed", f.Dialect, f.Status)
	case f.Status < 400:
		return "the redirects of robots.txt lead to no file: everything is allowed (RFC 9309 2.3.1.2)"
	}
	return fmt.Sprintf("status %d says that there is no robots.txt to be had: everything is allowed (RFC 9309 2.3.1.3)", f.Status)
}

func (a *Asker) print(s *cli.Sheet) {
	switch a.AgentFrom {
	case fromConfig:
		s.Row("agent", cli.Printable(a.Agent)+", from identity.product_token")
	case fromHeader:
		var considered []string
		for _, token := range a.Agents {
			considered = append(considered, cli.Printable(token))
		}
		s.Row("agent", cli.Printable(a.Agent)+", from the User-Agent header")
		s.Row("considered", strings.Join(considered, ", "))
	case fromNobody:
		why := "the User-Agent header names no product but a browser's"
		if a.Header == "" {
			why = "no User-Agent header (-A gives one)"
		}
		s.Row("agent", "none: "+why)
	}
}

func (o *Source) print(s *cli.Sheet) {
	s.Row("robots.txt", cli.Printable(cli.Clip(o.Robots)))
	s.Row("fetched", o.Fetched)
	s.Row("fetched as", cli.Printable(cli.Clip(o.Agent)))
	switch {
	case o.Status > 0:
		s.Row("answer", fmt.Sprintf("status %d: %s", o.Status, o.Means))
	case o.SHA256 == "":
		s.Row("answer", o.Means)
	}
	s.Row("sha256", o.SHA256)
	s.Row("note", cli.Harmless(cli.Clip(o.Note)))
	if o.Cut {
		s.Row("note", fmt.Sprintf("no more than the first %d octets of the file are read", robots.MaxBytes))
	}
}

// meaning says what came of the fetch of a robots.txt.
func meaning(r cache.Ruling) string {
	text := r.Outcome.String()
	switch {
	case r.Stale:
		text += " of an older copy, as the site fails now"
	case r.Outcome == cache.NoFile && r.Result.BadRedirect:
		text += ": its redirects lead nowhere"
	case r.Outcome == cache.NoFile && r.Result.RedirectDisallowed:
		text += ": a redirect is disallowed"
	case r.Outcome == cache.Unreachable && r.Result.Status == 0:
		text += ": no whole answer"
	}
	if n := r.Result.Redirects; n > 0 {
		text += ", after " + cli.Count(int64(n), "redirect")
	}
	return text
}

func (w *wishes) print(s *cli.Sheet) {
	s.Row("sitemaps", links(w.Sitemaps)...)
	s.Row("licenses", links(w.Licenses)...)
	var said []string
	for _, signal := range []struct{ name, value string }{
		{"search", w.Signals.Search}, {"ai-input", w.Signals.AIInput}, {"ai-train", w.Signals.AITrain},
	} {
		if signal.value != "" {
			said = append(said, signal.name+"="+signal.value)
		}
	}
	s.Row("content-signal", strings.Join(said, ", "))
	s.Row("content-usage", cli.Printable(cli.Clip(w.Usage)))
}

// links are the first of a list, and how many more there are.
func links(list []string) []string {
	var shown []string
	for i, link := range list {
		if i == maxLinks {
			return append(shown, fmt.Sprintf("and %d more", len(list)-i))
		}
		shown = append(shown, cli.Printable(cli.Clip(link)))
	}
	return shown
}
