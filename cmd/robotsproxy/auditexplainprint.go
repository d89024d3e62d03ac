package main

import (
	"fmt"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
)

// text is the explanation for people. Strangers' words are quoted where they are not
// plain.
func (x *explanation) text(colours bool) string {
	e := &x.entry
	s := &sheet{colours: colours}
	word, colour := "blocked", red
	if !e.Blocked() {
		word, colour = "allowed", green
	}
	fmt.Fprintf(&s.text, "%s %s\n", s.paint(colour, fmt.Sprintf("%-10s", word)), printable(clip(e.URL)))
	if e.Blocked() && !e.Enforced {
		s.row("enforced", "no: it was recorded only (mode: monitor)")
	}
	if e.Rule != "" {
		s.row("rule", x.ruleText())
	}
	s.row("read as", harmless(clip(e.Reading)))
	s.row("why", x.Why)
	s.row("reason", harmless(e.Reason))
	s.row("entry", printable(clip(e.Entry)))
	s.row("its reason", harmless(clip(e.EntryReason)))
	s.row("error", harmless(clip(e.Error)))
	s.row("group", printable(clip(e.Group)))
	s.row("agent", printable(clip(e.Agent)))
	s.row("user-agent", printable(clip(e.UserAgent)))
	s.row("replica", printable(clip(e.Replica)))
	s.row("asked", harmless(strings.TrimSpace(fmt.Sprintf("%s by %s, %s", e.Method, orNobody(e.Client), e.Time.UTC().Format(time.RFC3339Nano)))))
	s.row("answered", answered(e))
	x.printPace(s)
	x.printRobots(s)
	x.printSignals(s)
	x.printPlace(s)
	x.printDerived(s)
	return s.text.String()
}

func orNobody(client string) string {
	if client == "" {
		return "nobody named"
	}
	return clip(client)
}

// ruleText is the rule that a record names; whether it allows, its reason and its
// decision say, or its line.
func (x *explanation) ruleText() string {
	e := &x.entry
	if byFile(policy.Reason(e.Reason)) {
		return ruleText(!e.Blocked(), e.Rule, e.Line)
	}
	return fmt.Sprintf("%s (line %d)", printable(clip(e.Rule)), e.Line)
}

func answered(e *trail.Entry) string {
	if e.Status == 0 {
		return "not at all"
	}
	return fmt.Sprintf("status %d, %s, after %s", e.Status, count(e.Bytes, "octet"), millis(e.DurationMS))
}

// millis reads the milliseconds of a record, to a tenth of one.
func millis(ms float64) time.Duration { return asDuration(ms / 1000).Round(time.Millisecond / 10) }

func (x *explanation) printPace(s *sheet) {
	e := &x.entry
	if e.CrawlAsked > 0 {
		s.row("crawl-delay", fmt.Sprintf("%g s (asked: %g s)", e.CrawlDelay, e.CrawlAsked))
	}
	if e.WaitMS > 0 {
		s.row("waited", millis(e.WaitMS).String())
	}
	if e.BackOff > 0 {
		s.row("backed off", fmt.Sprintf("%g s", e.BackOff))
	}
	if e.StoreAway {
		s.row("store", "was away: the request was paced without the other replicas")
	}
}

// printRobots shows the file that the decision rests on, or why there is none.
func (x *explanation) printRobots(s *sheet) {
	e := &x.entry
	s.row("robots.txt", printable(clip(e.RobotsURL)))
	if f := x.Fetch; f != nil {
		s.row("fetched", fetchText(*f))
		s.row("headers", headerRows(*f)...)
	} else {
		if !e.RobotsFetched.IsZero() {
			s.row("fetched", e.RobotsFetched.UTC().Format(time.RFC3339Nano))
		}
		s.row("fetched as", printable(clip(e.RobotsAgent)))
	}
	if e.RobotsStale {
		s.row("note", "an older copy, as the site failed then")
	}
	s.row("dialect", harmless(e.Dialect))
	if e.RobotsSHA256 == "" {
		s.row("rests", x.rests())
		return
	}
	s.row("sha256", harmless(clip(e.RobotsSHA256)))
	if x.Snapshot == isThere {
		s.row("snapshot", fmt.Sprintf("kept: robotsproxy audit snapshot %.12s", e.RobotsSHA256))
	}
	if len(x.Lines) == 0 {
		return
	}
	agents, more := naming(x.Agents, e.Group)
	last := 0
	for _, l := range agents {
		if l.Line < x.Lines[0].Line {
			x.printLine(s, l)
			last = l.Line
		}
	}
	if more > 0 {
		fmt.Fprintf(&s.text, "  %6s   and %s\n", "", count(int64(more), "more User-agent line"))
	}
	if last > 0 && last < x.Lines[0].Line-1 {
		fmt.Fprintf(&s.text, "  %6s   ...\n", "")
	}
	for _, l := range x.Lines {
		x.printLine(s, l)
	}
}

func (x *explanation) printLine(s *sheet, l excerptLine) {
	mark, text := " ", harmless(strings.TrimRight(clip(l.Text), " \t"))
	if l.Marked {
		mark, text = ">", s.paint(yellow, text)
	}
	fmt.Fprintf(&s.text, "  %s %5d | %s\n", mark, l.Line, text)
}

// printSignals shows what was said besides, by robots.txt and by the answer.
func (x *explanation) printSignals(s *sheet) {
	e := &x.entry
	for _, said := range []struct{ name, robots, answer string }{
		{"content-signal", e.RobotsContentSignal, e.ContentSignal},
		{"content-usage", e.RobotsContentUsage, e.ContentUsage},
		{"x-robots-tag", "", e.XRobotsTag},
		{"tdm-reservation", "", e.TDMReservation},
		{"tdm-policy", "", e.TDMPolicy},
	} {
		var values []string
		if said.robots != "" {
			values = append(values, printable(clip(said.robots))+", in robots.txt")
		}
		if said.answer != "" {
			values = append(values, printable(clip(said.answer))+", in the answer")
		}
		s.row(said.name, values...)
	}
}

func (x *explanation) printPlace(s *sheet) {
	p := &x.Place
	where := fmt.Sprintf("%s:%d", printable(p.File), p.Line)
	if p.Seq > 0 {
		where += fmt.Sprintf(", number %d", p.Seq)
	}
	holds := "its hash holds (audit verify looks at the whole chain)"
	if !p.Hash {
		holds = s.paint(red, harmless(p.Says))
	}
	s.row("record", where, holds)
}

func (x *explanation) printDerived(s *sheet) {
	d := x.Derived
	if d == nil {
		return
	}
	said := []string{s.paint(green, "the same")}
	switch {
	case len(d.Differs) > 0:
		said = []string{s.paint(red, "it differs")}
		for _, diff := range d.Differs {
			said = append(said, fmt.Sprintf("%s: recorded %s, re-derived %s", diff.Member, orNothing(diff.Record), orNothing(diff.Derived)))
		}
	case !d.Same:
		said = []string{s.paint(red, "no")}
	}
	for _, note := range d.Notes {
		said = append(said, harmless(note))
	}
	s.row("re-derived", said...)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return printable(clip(s))
}
