package report

import (
	"fmt"
	"strings"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// A fact is a statement of the report about itself, under a name of one or two words.
type fact struct{ Name, Value string }

// facts returns the main results and what they are based on. The chain comes first.
func (r *Report) facts() []fact {
	t := &r.Totals
	facts := []fact{{"chain", r.chain()}}
	if text := r.monitoring(); text != "" {
		facts = append(facts, fact{"mode", text})
	}
	facts = append(facts, fact{"period", r.period()}, fact{"requests", fmt.Sprintf("%s: %s", humanize.Number(t.Requests), r.outcomesText(t))})
	if t.Waited > 0 {
		text := fmt.Sprintf("%s, median %s, longest %s", humanize.Count(t.Waited, "request"), humanize.Duration(t.WaitMedian), humanize.Duration(t.WaitMax))
		if who := r.whoWaited(); who != "" {
			text += "; most often " + who
		}
		facts = append(facts, fact{"waited", text})
	}
	if text := r.exceptions(); text != "" {
		facts = append(facts, fact{"exceptions", text})
	}
	facts = append(facts, fact{"data", humanize.Bytes(t.Bytes) + " in responses and tunnels"})
	if text := r.signedText(); text != "" {
		facts = append(facts, fact{"signed", text})
	}
	if notes := r.notes(); notes != "" {
		facts = append(facts, fact{"of these", notes})
	}
	return append(facts, r.grounds()...)
}

// outcomesText lists numbers of requests by outcome.
func (r *Report) outcomesText(c *counts) string {
	var parts []string
	for _, k := range r.kinds() {
		parts = append(parts, humanize.Number(*k.of(&c.outcomes))+" "+k.word)
	}
	return strings.Join(parts, ", ")
}

// notes counts the requests that were treated in an unusual way.
func (r *Report) notes() string {
	var notes []string
	for _, n := range []struct {
		count int64
		what  string
	}{
		{r.tunnels(), "passed through as tunnels, without records of the requests inside"},
		{r.Totals.Reserved, "for content that the site does not permit to be used for a purpose of the client"},
		{r.Totals.Clamped, "with a shorter Crawl-delay than the site asks for"},
		{r.Totals.Stale, "decided by an older copy of robots.txt"},
		{r.Totals.BackedOff, "with a back-off after 429 or 503"},
		{r.Totals.Slowed, "delayed because the site responded slowly"},
		{r.Totals.Away, "paced while the store of the replicas was unavailable"},
	} {
		if n.count > 0 {
			notes = append(notes, humanize.Number(n.count)+" "+n.what)
		}
	}
	return strings.Join(notes, ", ")
}

// signedText says how many requests the proxy signed, and with which key; "": none had to be signed.
func (r *Report) signedText() string {
	var all, with int64
	keys := ""
	for i := range r.Signed.Rows {
		row := &r.Signed.Rows[i]
		all = addCapped(all, row.Requests)
		if row.Key == "" {
			continue
		}
		with = addCapped(with, row.Requests)
		if keys != "" {
			keys = "several keys, listed below"
		} else {
			keys = "the key " + shown(row.Key)
		}
	}
	if all == 0 {
		return ""
	}
	text := fmt.Sprintf("%s of %s (%s)", humanize.Number(with), humanize.Count(all, "request")+" that were sent", share(with, all))
	if keys != "" {
		text += ", with " + keys
	}
	return text
}

// grounds returns what the report is based on, apart from the chain.
func (r *Report) grounds() []fact {
	var facts []fact
	if f := r.Filters.String(); f != "" {
		facts = append(facts, fact{"filters", f + "; the totals count only requests that match"})
	}
	facts = append(facts, fact{"files", r.files()}, fact{"lines", r.lines()})
	if r.Source.Chain.Anchor != "" {
		facts = append(facts, fact{"anchor", r.Source.Chain.Anchor})
	}
	return facts
}

// String names the filters; "" if there is none.
func (f *filters) String() string {
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
		return fmt.Sprintf("%s, the first is %s", humanize.Number(int64(len(names))+further), names[0])
	}
	if n := len(names); n > 3 {
		return fmt.Sprintf("%s, from %s to %s", humanize.Number(n), names[0], names[n-1])
	}
	if len(names) == 0 {
		return "no file with a line"
	}
	return strings.Join(names, ", ")
}

func (r *Report) lines() string {
	s := &r.Source
	fetches := "fetches"
	if s.Fetches == 1 {
		fetches = "fetch"
	}
	text := fmt.Sprintf("%s: %s, %s %s of robots.txt, ", humanize.Number(s.Lines), humanize.Count(s.Requests, "request"), humanize.Number(s.Fetches), fetches)
	if s.TDMRep > 0 {
		text += humanize.Number(s.TDMRep) + " of tdmrep.json, "
	}
	text += humanize.Count(s.Events, "event")
	if s.Lost > 0 {
		text += fmt.Sprintf(" (%s lost)", humanize.Count(s.Lost, "record"))
	}
	if s.Counted > 0 {
		text += fmt.Sprintf(" (%s only counted)", humanize.Count(s.Counted, "refusal"))
	}
	if s.Unreadable > 0 {
		text += fmt.Sprintf(", %s not counted because they cannot be read", humanize.Number(s.Unreadable))
	}
	return text
}

// Fault returns the first fault of the chain; "": the chain holds.
func (r *Report) Fault() string {
	if f := r.Source.Chain.Fault; f != nil {
		return shown(f.String())
	}
	return ""
}

// chain says whether the chain holds and, if not, where its first fault is.
func (r *Report) chain() string {
	c := &r.Source.Chain
	switch {
	case !c.Held:
		return "BROKEN: " + r.Fault()
	case r.Source.Lines == 0:
		return "the audit has no line"
	}
	text := fmt.Sprintf("holds: no line between %s and %s was changed, removed or moved. ", humanize.Number(c.FirstSeq), humanize.Number(c.LastSeq))
	if n := len(r.Source.Trails); n > 0 {
		text = fmt.Sprintf("holds in each of %s: no line between the first and the last was changed, removed or moved. ", humanize.Count(n, "audit"))
	}
	text += trail.ChainLimit
	switch {
	case c.Pruned:
		text += fmt.Sprintf(" The proxy deleted the lines before %s (audit.max_age, audit.max_total_size or audit.max_files).", humanize.Number(c.FirstSeq))
	case c.FirstSeq > 1:
		text += fmt.Sprintf(" The lines before %s are missing: the proxy deleted them (audit.max_age, audit.max_total_size or audit.max_files), or somebody removed them.", humanize.Number(c.FirstSeq))
	}
	if c.Removed {
		text += " Files were removed before this report read them. It does not count their lines."
	}
	return text
}
