package report

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"text/template"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

//go:embed prose.tmpl
var proseText string

// proseTemplates are the texts of a report. They are parsed at the first call, since most processes make no report.
var proseTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("prose").Funcs(template.FuncMap{
		"brief":    brief,
		"bytes":    humanize.Bytes[int64],
		"count":    humanize.Count,
		"duration": humanize.Duration[seconds],
		"number":   humanize.Number,
		"period":   period,
		"share":    share,
		"shown":    shown,
		"stamp":    stamp,
		"were":     were,
	}).Parse(proseText))
})

// A prose is a Report with what its texts need. Its exported methods are for the templates.
type prose struct{ *Report }

// sentences returns the sentences of a text.
func (p prose) sentences(name string) (all []string) {
	var b strings.Builder
	if err := proseTemplates().ExecuteTemplate(&b, name, p); err != nil {
		// The templates are embedded, and a Builder takes any text.
		panic(err)
	}
	for sentence := range strings.SplitSeq(b.String(), "\n\n") {
		if sentence = strings.TrimSpace(sentence); sentence != "" {
			all = append(all, strings.ReplaceAll(sentence, "\n", " "))
		}
	}
	return all
}

// Text returns a whole text; "": it has nothing to say. The last part of a list needs no comma.
func (p prose) Text(name string) string {
	return strings.TrimSuffix(strings.Join(p.sentences(name), " "), ",")
}

// A fact is a statement of the report about itself, under a name of one or two words.
type fact struct{ Name, Value string }

var (
	// results and grounds name the texts that are facts: the main results, and what they are based on.
	results = []string{"chain", "mode", "period", "requests", "waited", "pace", "exceptions", "data", "signed", "of these"}
	grounds = []string{"filters", "files", "lines", "anchor"}
)

// facts returns the facts with these names that have a text.
func (p prose) facts(names []string) (all []fact) {
	for _, name := range names {
		if text := p.Text(name); text != "" {
			all = append(all, fact{name, text})
		}
	}
	return all
}

// Period returns the time from the arrival of the first request to the end of the last.
func (p prose) Period() string {
	if p.Totals.Requests == 0 {
		return "no request"
	}
	return period(p.Totals.First, p.Totals.Ended)
}

// Outcomes lists the numbers of requests by outcome.
func (p prose) Outcomes() string { return p.outcomesText(&p.Totals.outcomes) }

func (r *Report) outcomesText(o *outcomes) string {
	var parts []string
	for _, k := range r.kinds() {
		parts = append(parts, humanize.Number(*k.of(o))+" "+k.word)
	}
	return strings.Join(parts, ", ")
}

// Part returns a number of requests, and its share of all.
func (p prose) Part(n int64) string {
	return fmt.Sprintf("%s (%s)", humanize.Number(n), share(n, p.Totals.Requests))
}

// Withheld returns how many requests were sent whose response was not passed on.
func (p prose) Withheld() int64 { return p.withheld }

// Monitor returns the counts of the requests under mode: monitor.
func (p prose) Monitor() *counts { return &p.monitored }

// backOffSums are about all back-offs that have begun.
type backOffSums struct{ Began, During, Others, Unknown int64 }

// BackOffs returns the sums of the back-offs that are listed; nil: none has begun.
func (p prose) BackOffs() *backOffSums {
	var s backOffSums
	for i := range p.Pace.BackOffs.Rows {
		if o := &p.Pace.BackOffs.Rows[i]; !o.Began.IsZero() {
			s.Began++
			s.During += o.During
			s.Others += o.Others
			s.Unknown += o.Unknown
		}
	}
	if s.Began == 0 {
		return nil
	}
	return &s
}

// ChainLimit says what a chain does not prove.
func (p prose) ChainLimit() string { return trail.ChainLimit }

// FileCount returns the number of files that were read.
func (p prose) FileCount() int64 { return int64(len(p.Source.Files.Rows)) + p.Source.Files.Others }

// byReason returns the counts of a reason; zero: it has no row.
func (p prose) byReason(name string) (c counts) {
	for i := range p.Reasons.Rows {
		if p.Reasons.Rows[i].Reason == name {
			return p.Reasons.Rows[i].counts
		}
	}
	return c
}

// Decided returns how many requests were decided for a reason.
func (p prose) Decided(reason string) int64 { return p.byReason(reason).Requests }

// Blocked returns how many requests were refused for a reason.
func (p prose) Blocked(reason string) int64 { return p.byReason(reason).Blocked }

// Tunnels returns how many tunnels were passed through.
func (p prose) Tunnels() int64 {
	c := p.byReason("tunnel")
	return c.Allowed + c.NotEnforced
}

// NothingOverridden reports that robots.txt was ignored for no request. It is not known if a reason may have no row.
func (p prose) NothingOverridden() bool {
	return p.Totals.Requests > 0 && p.Decided("override") == 0 && p.Reasons.Others.Requests == 0
}

// MostWaited names the client and the host with the most requests that waited; "": neither has a row. The report does not
// add up the waits, since requests wait at the same time.
func (p prose) MostWaited() string {
	var who []string
	if c, n := mostWaited(&p.Clients); n > 0 {
		who = append(who, fmt.Sprintf("client %s (%s)", shown(c.Client), humanize.Number(n)))
	}
	if h, n := mostWaited(&p.Hosts); n > 0 {
		who = append(who, fmt.Sprintf("host %s (%s)", shown(h.Host), humanize.Number(n)))
	}
	return strings.Join(who, " and ")
}

// mostWaited returns the row with the most requests that waited, and their number.
func mostWaited[R any, P counted[R]](t *table[R]) (most R, n int64) {
	for i := range t.Rows {
		if waited := P(&t.Rows[i]).all().Waited; waited > n {
			most, n = t.Rows[i], waited
		}
	}
	return most, n
}

// signatures say how many of the requests that were sent the proxy signed, and with which key; "": with several keys, or none.
type signatures struct {
	All, Signed int64
	Key         string
}

// Signatures returns the signatures; nil: no request had to be signed.
func (p prose) Signatures() *signatures {
	var s signatures
	keys := 0
	for i := range p.Signed.Rows {
		row := &p.Signed.Rows[i]
		s.All = addCapped(s.All, row.Requests)
		if row.Key == "" {
			continue
		}
		s.Signed = addCapped(s.Signed, row.Requests)
		s.Key = row.Key
		keys++
	}
	if keys > 1 {
		s.Key = ""
	}
	if s.All == 0 {
		return nil
	}
	return &s
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
	if f.Labels != "" {
		parts = append(parts, "labels "+shown(f.Labels))
	}
	return strings.Join(parts, ", ")
}

// Fault returns the first fault of the chain; "": the chain holds.
func (r *Report) Fault() string { return r.Source.Chain.fault() }

// were returns a number of things and the verb.
func were(n int64, what string) string {
	verb := " were"
	if n == 1 {
		verb = " was"
	}
	return humanize.Count(n, what) + verb
}
