package report

import (
	"fmt"
	"strings"

	"robotsproxy/policy/explain/humanize"
)

// A fact is what a report says of itself in a word or two.
type fact struct{ Name, Value string }

// facts are the report in short, and what it rests on.
func (r *Report) facts() []fact {
	t := &r.Totals
	facts := []fact{{"period", "no request"}}
	if t.Requests > 0 {
		facts[0].Value = fmt.Sprintf("%s to %s UTC", stamp(t.First), stamp(t.Last))
	}
	decided := fmt.Sprintf("%s: %s allowed, %s blocked", humanize.Number(t.Requests), humanize.Number(t.Allowed), humanize.Number(t.Blocked))
	if r.Monitored > 0 {
		decided += fmt.Sprintf(", %s decided against but not enforced (monitor mode: %s)", humanize.Number(t.NotEnforced), humanize.Count(r.Monitored, "request"))
	}
	facts = append(facts, fact{"requests", decided})
	if t.Waited > 0 {
		facts = append(facts, fact{"waited", fmt.Sprintf("%s, %s on average, at most %s", humanize.Count(t.Waited, "request"), humanize.Duration(t.WaitMean), humanize.Duration(t.WaitMax))})
	}
	facts = append(facts, fact{"sent on", humanize.Bytes(t.Bytes)})
	if notes := r.notes(); notes != "" {
		facts = append(facts, fact{"of these", notes})
	}
	return append(facts, r.grounds()...)
}

// notes are the requests of which something is out of the ordinary.
func (r *Report) notes() string {
	var notes []string
	for _, n := range []struct {
		count int64
		what  string
	}{
		{r.Totals.Clamped, "with a Crawl-delay cut short"},
		{r.Totals.Stale, "judged by an older copy of robots.txt"},
		{r.Totals.BackedOff, "with a back-off after 429 or 503"},
		{r.Totals.Slowed, "held up as the site answered slowly"},
		{r.Totals.Away, "paced while the store of the replicas was away"},
	} {
		if n.count > 0 {
			notes = append(notes, humanize.Number(n.count)+" "+n.what)
		}
	}
	return strings.Join(notes, ", ")
}

// grounds are what a report rests on.
func (r *Report) grounds() []fact {
	var facts []fact
	if f := r.Filters.String(); f != "" {
		facts = append(facts, fact{"filters", f + "; totals are of what they let through"})
	}
	facts = append(facts, fact{"files", r.files()}, fact{"lines", r.lines()}, fact{"chain", r.chain()})
	if r.Source.Chain.Anchor != "" {
		facts = append(facts, fact{"anchor", r.Source.Chain.Anchor})
	}
	return facts
}

// String says what is filtered; "" where nothing is.
func (f filters) String() string {
	var parts []string
	if !f.Since.IsZero() {
		parts = append(parts, "since "+stamp(f.Since)+" UTC")
	}
	if !f.Until.IsZero() {
		parts = append(parts, "until "+stamp(f.Until)+" UTC")
	}
	if f.Client != "" {
		parts = append(parts, "client "+shown(f.Client))
	}
	if f.Host != "" {
		parts = append(parts, "host "+shown(f.Host))
	}
	return strings.Join(parts, ", ")
}

// files names the files that were read: all, or the first and the last.
func (r *Report) files() string {
	files := r.Source.Files.Rows
	var names []string
	for i := range files {
		names = append(names, shown(files[i].Name))
	}
	if further := r.Source.Files.Others; further > 0 {
		return fmt.Sprintf("%s, from %s on", humanize.Number(int64(len(names))+further), names[0])
	}
	if n := len(names); n > 3 {
		return fmt.Sprintf("%s, from %s to %s", humanize.Number(n), names[0], names[n-1])
	}
	if len(names) == 0 {
		return "none that has a line"
	}
	return strings.Join(names, ", ")
}

func (r *Report) lines() string {
	s := &r.Source
	fetches := "fetches"
	if s.Fetches == 1 {
		fetches = "fetch"
	}
	text := fmt.Sprintf("%s: %s, %s %s of robots.txt, %s", humanize.Number(s.Lines), humanize.Count(s.Requests, "request"), humanize.Number(s.Fetches), fetches, humanize.Count(s.Events, "event"))
	if s.Lost > 0 {
		text += fmt.Sprintf(" (%s lost)", humanize.Count(s.Lost, "record"))
	}
	if s.Counted > 0 {
		text += fmt.Sprintf(" (%s only counted)", humanize.Count(s.Counted, "refusal"))
	}
	if s.Unreadable > 0 {
		text += fmt.Sprintf(", %s not counted, as no record could be read", humanize.Number(s.Unreadable))
	}
	return text
}

// Fault says where the chain broke first; "" where it held.
func (r *Report) Fault() string {
	if f := r.Source.Chain.Fault; f != nil {
		return shown(f.String())
	}
	return ""
}

// chain says whether the chain held, and if not where it broke first.
func (r *Report) chain() string {
	c := &r.Source.Chain
	switch {
	case !c.Held:
		return "BROKEN: " + r.Fault()
	case r.Source.Lines == 0:
		return "there is no line"
	}
	text := "holds over all of it"
	if n := len(r.Source.Trails); n > 0 {
		text = fmt.Sprintf("holds in each of %s", humanize.Count(n, "audit"))
	}
	switch {
	case c.Pruned:
		text += fmt.Sprintf(", which begins with record %s: the proxy removed the records before it (audit.max_files)", humanize.Number(c.FirstSeq))
	case c.FirstSeq > 1:
		text += fmt.Sprintf(", which begins with record %s: what was before is not there, by the number of files that are kept or because somebody took it away", humanize.Number(c.FirstSeq))
	}
	if c.Removed {
		text += "; files were removed while it was read, before their turn: what was in them is not counted"
	}
	return text
}
