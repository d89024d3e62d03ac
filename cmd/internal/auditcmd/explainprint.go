package auditcmd

import (
	"fmt"
	"strings"
	"time"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
)

// text is the explanation for people. Strangers' words are quoted where they are not
// plain.
func (x *explanation) text(colours bool) string {
	e := &x.entry
	s := &cli.Sheet{Colours: colours}
	word, colour := "blocked", cli.Red
	if !e.Blocked() {
		word, colour = "allowed", cli.Green
	}
	fmt.Fprintf(&s.Text, "%s %s\n", s.Paint(colour, fmt.Sprintf("%-10s", word)), cli.Printable(cli.Clip(e.URL)))
	if e.Blocked() && !e.Enforced {
		s.Row("enforced", "no: it was recorded only (mode: monitor)")
	}
	if e.Rule != "" {
		s.Row("rule", x.ruleText())
	}
	s.Row("read as", cli.Harmless(cli.Clip(e.Reading)))
	s.Row("why", x.Why)
	s.Row("reason", cli.Harmless(e.Reason))
	s.Row("entry", cli.Printable(cli.Clip(e.Entry)))
	s.Row("its reason", cli.Harmless(cli.Clip(e.EntryReason)))
	s.Row("error", cli.Harmless(cli.Clip(e.Error)))
	s.Row("group", cli.Printable(cli.Clip(e.Group)))
	s.Row("agent", cli.Printable(cli.Clip(e.Agent)))
	s.Row("user-agent", cli.Printable(cli.Clip(e.UserAgent)))
	s.Row("replica", cli.Printable(cli.Clip(e.Replica)))
	s.Row("asked", cli.Harmless(strings.TrimSpace(fmt.Sprintf("%s by %s, %s", e.Method, orNobody(e.Client), e.Time.UTC().Format(time.RFC3339Nano)))))
	s.Row("answered", answered(e))
	x.printPace(s)
	x.printRobots(s)
	x.printSignals(s)
	x.printPlace(s)
	x.printDerived(s)
	return s.Text.String()
}

func orNobody(client string) string {
	if client == "" {
		return "nobody named"
	}
	return cli.Clip(client)
}

// RuleText is the rule that a record names; whether it allows, its reason and its
// decision say, or its line.
func (x *explanation) ruleText() string {
	e := &x.entry
	if byFile(policy.Reason(e.Reason)) {
		return checkcmd.RuleText(!e.Blocked(), e.Rule, e.Line)
	}
	return fmt.Sprintf("%s (line %d)", cli.Printable(cli.Clip(e.Rule)), e.Line)
}

func answered(e *trail.Entry) string {
	if e.Status == 0 {
		return "not at all"
	}
	return fmt.Sprintf("status %d, %s, after %s", e.Status, cli.Count(e.Bytes, "octet"), millis(e.DurationMS))
}

// millis reads the milliseconds of a record, to a tenth of one.
func millis(ms float64) time.Duration { return asDuration(ms / 1000).Round(time.Millisecond / 10) }

func (x *explanation) printPace(s *cli.Sheet) {
	e := &x.entry
	if e.CrawlAsked > 0 {
		s.Row("crawl-delay", fmt.Sprintf("%g s (asked: %g s)", e.CrawlDelay, e.CrawlAsked))
	}
	if e.WaitMS > 0 {
		s.Row("waited", millis(e.WaitMS).String())
	}
	if e.BackOff > 0 {
		s.Row("backed off", fmt.Sprintf("%g s", e.BackOff))
	}
	if e.StoreAway {
		s.Row("store", "was away: the request was paced without the other replicas")
	}
}

// printRobots shows the file that the decision rests on, or why there is none.
func (x *explanation) printRobots(s *cli.Sheet) {
	e := &x.entry
	s.Row("robots.txt", cli.Printable(cli.Clip(e.RobotsURL)))
	if f := x.Fetch; f != nil {
		s.Row("fetched", fetchText(*f))
		s.Row("headers", headerRows(*f)...)
	} else {
		if !e.RobotsFetched.IsZero() {
			s.Row("fetched", e.RobotsFetched.UTC().Format(time.RFC3339Nano))
		}
		s.Row("fetched as", cli.Printable(cli.Clip(e.RobotsAgent)))
	}
	if e.RobotsStale {
		s.Row("note", "an older copy, as the site failed then")
	}
	s.Row("dialect", cli.Harmless(e.Dialect))
	if e.RobotsSHA256 == "" {
		s.Row("rests", x.rests())
		return
	}
	s.Row("sha256", cli.Harmless(cli.Clip(e.RobotsSHA256)))
	if x.Snapshot == isThere {
		s.Row("snapshot", fmt.Sprintf("kept: robotsproxy audit snapshot %.12s", e.RobotsSHA256))
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
		fmt.Fprintf(&s.Text, "  %6s   and %s\n", "", cli.Count(int64(more), "more User-agent line"))
	}
	if last > 0 && last < x.Lines[0].Line-1 {
		fmt.Fprintf(&s.Text, "  %6s   ...\n", "")
	}
	for _, l := range x.Lines {
		x.printLine(s, l)
	}
}

func (x *explanation) printLine(s *cli.Sheet, l excerptLine) {
	mark, text := " ", cli.Harmless(strings.TrimRight(cli.Clip(l.Text), " \t"))
	if l.Marked {
		mark, text = ">", s.Paint(cli.Yellow, text)
	}
	fmt.Fprintf(&s.Text, "  %s %5d | %s\n", mark, l.Line, text)
}

// printSignals shows what was said besides, by robots.txt and by the answer.
func (x *explanation) printSignals(s *cli.Sheet) {
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
			values = append(values, cli.Printable(cli.Clip(said.robots))+", in robots.txt")
		}
		if said.answer != "" {
			values = append(values, cli.Printable(cli.Clip(said.answer))+", in the answer")
		}
		s.Row(said.name, values...)
	}
}

func (x *explanation) printPlace(s *cli.Sheet) {
	p := &x.Place
	where := fmt.Sprintf("%s:%d", cli.Printable(p.File), p.Line)
	if p.Seq > 0 {
		where += fmt.Sprintf(", number %d", p.Seq)
	}
	holds := "its hash holds (audit verify looks at the whole chain)"
	if !p.Hash {
		holds = s.Paint(cli.Red, cli.Harmless(p.Says))
	}
	s.Row("record", where, holds)
}

func (x *explanation) printDerived(s *cli.Sheet) {
	d := x.Derived
	if d == nil {
		return
	}
	said := []string{s.Paint(cli.Green, "the same")}
	switch {
	case len(d.Differs) > 0:
		said = []string{s.Paint(cli.Red, "it differs")}
		for _, diff := range d.Differs {
			said = append(said, fmt.Sprintf("%s: recorded %s, re-derived %s", diff.Member, orNothing(diff.Record), orNothing(diff.Derived)))
		}
	case !d.Same:
		said = []string{s.Paint(cli.Red, "no")}
	}
	for _, note := range d.Notes {
		said = append(said, cli.Harmless(note))
	}
	s.Row("re-derived", said...)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return cli.Printable(cli.Clip(s))
}
