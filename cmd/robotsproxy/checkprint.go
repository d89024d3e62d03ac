package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// maxLinks is how many of a file's sitemaps are shown to people, and of its licenses. JSON has
// them all.
const maxLinks = 5

// maxWords is how many bytes of a text of a file's own are shown to people.
const maxWords = 300

// A sheet is the answer for one address in several lines.
type sheet struct {
	text    strings.Builder
	colours bool
}

// The colours of a terminal (ECMA-48, SGR).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
)

func (s *sheet) paint(colour, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// row adds a label and its values, one below the other; nothing where there
// is none. The values are fit for a terminal.
func (s *sheet) row(label string, values ...string) {
	for i, value := range values {
		if value == "" {
			continue
		}
		label += ":"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(&s.text, "  %s %s\n", s.paint(dim, fmt.Sprintf("%-15s", label)), value)
	}
}

// text is the finding for people. Strangers' words are quoted where they are
// not plain.
func (f *finding) text(colours bool) string {
	s := &sheet{colours: colours}
	word, colour := "unknown", yellow
	switch f.status() {
	case 0:
		word, colour = "allowed", green
	case exitDisallowed:
		word, colour = "disallowed", red
	}
	fmt.Fprintf(&s.text, "%s %s\n", s.paint(colour, fmt.Sprintf("%-10s", word)), printable(f.URL))
	if f.Rule != "" {
		s.row("rule", ruleText(f.Allow, f.Rule, f.Line))
	} else {
		s.row("why", f.why())
	}
	if f.Reading != "" {
		s.row("read as", printable(clip(f.Read))+" ("+f.Reading+")")
	}
	s.row("entry", printable(f.Match))
	s.row("reason", f.Because)
	s.row("error", harmless(f.Error))
	s.row("group", printable(clip(f.Group)))
	f.asker.print(s)
	s.row("dialect", f.Dialect)
	f.source.print(s)
	if f.Asked > 0 {
		s.row("crawl-delay", fmt.Sprintf("%g s (asked: %g s)", f.Delay, f.Asked))
	}
	f.wishes.print(s)
	var matching, alike []string
	for _, o := range f.Others {
		if text := ruleText(o.Allow, o.Rule, o.Line); o.Matches {
			matching = append(matching, text)
		} else {
			alike = append(alike, text)
		}
	}
	s.row("outranked", matching...)
	s.row("begins alike", alike...)
	return s.text.String()
}

func ruleText(allow bool, rule string, line int) string {
	field := "Disallow"
	if allow {
		field = "Allow"
	}
	return fmt.Sprintf("%s: %s (line %d)", field, word(rule), line)
}

// why puts into words what no rule decided.
func (f *finding) why() string {
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
func (f *finding) whyNone() string {
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

func (a *asker) print(s *sheet) {
	switch a.AgentFrom {
	case fromConfig:
		s.row("agent", printable(a.Agent)+", from identity.product_token")
	case fromHeader:
		var considered []string
		for _, token := range a.Agents {
			considered = append(considered, printable(token))
		}
		s.row("agent", printable(a.Agent)+", from the User-Agent header")
		s.row("considered", strings.Join(considered, ", "))
	case fromNobody:
		why := "the User-Agent header names no product but a browser's"
		if a.Header == "" {
			why = "no User-Agent header (-A gives one)"
		}
		s.row("agent", "none: "+why)
	}
}

func (o *source) print(s *sheet) {
	s.row("robots.txt", printable(clip(o.Robots)))
	s.row("fetched", o.Fetched)
	s.row("fetched as", printable(clip(o.Agent)))
	switch {
	case o.Status > 0:
		s.row("answer", fmt.Sprintf("status %d: %s", o.Status, o.Means))
	case o.SHA256 == "":
		s.row("answer", o.Means)
	}
	s.row("sha256", o.SHA256)
	s.row("note", harmless(clip(o.Note)))
	if o.Cut {
		s.row("note", fmt.Sprintf("no more than the first %d octets of the file are read", robots.MaxBytes))
	}
}

// meaning says what came of the fetch of a robots.txt.
func meaning(r cache.Ruling) string {
	text := r.Outcome.String()
	switch {
	case r.Stale:
		text += " of an older copy, as the site fails now"
	case r.Outcome == cache.NoFile && r.Answer.Lost:
		text += ": its redirects lead nowhere"
	case r.Outcome == cache.NoFile && r.Answer.Barred:
		text += ": a redirect is disallowed"
	case r.Outcome == cache.Unreachable && r.Answer.Status == 0:
		text += ": no whole answer"
	}
	if n := r.Answer.Redirects; n > 0 {
		text += ", after " + count(int64(n), "redirect")
	}
	return text
}

func (w *wishes) print(s *sheet) {
	s.row("sitemaps", links(w.Sitemaps)...)
	s.row("licenses", links(w.Licenses)...)
	var said []string
	for _, signal := range []struct{ name, value string }{
		{"search", w.Signals.Search}, {"ai-input", w.Signals.AIInput}, {"ai-train", w.Signals.AITrain},
	} {
		if signal.value != "" {
			said = append(said, signal.name+"="+signal.value)
		}
	}
	s.row("content-signal", strings.Join(said, ", "))
	s.row("content-usage", printable(clip(w.Usage)))
}

// links are the first of a list, and how many more there are.
func links(list []string) []string {
	var shown []string
	for i, link := range list {
		if i == maxLinks {
			return append(shown, fmt.Sprintf("and %d more", len(list)-i))
		}
		shown = append(shown, printable(clip(link)))
	}
	return shown
}

// clip keeps a stranger's text from filling the screen.
func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	end := maxWords
	for end > maxWords-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// colourful reports whether w is a terminal that wants colours (no-color.org).
func colourful(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// isTerminal reports whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	return term.IsTerminal(int(f.Fd()))
}
