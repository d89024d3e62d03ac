package report

import (
	"fmt"
	"slices"
	"strconv"

	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// A displayTable is a table for people. Its cells are formatted, and strings of clients and
// origins are escaped.
type displayTable struct {
	ID, Title, About string
	Columns          []column

	// columns before those of counts, and columns of counts; zero: there are no counts.
	Keys, Counts int
	Rows         [][]string

	// A sentence about what has no row.
	Rest string
}

// A column has a name, and the kind of its cells.
type column struct {
	Name string
	Kind kind
}

type kind string

const (
	words   kind = "words"
	figures kind = "num"
	code    kind = "code"
	hash    kind = "hash"
)

func columns(k kind, names ...string) (made []column) {
	for _, name := range names {
		made = append(made, column{name, k})
	}
	return made
}

// displayTables returns the tables of the report that have a row, each with at most so many (0:
// all).
func (r *Report) displayTables(most int) []displayTable {
	v := tableBuilder{report: r, maxRows: most}
	all := []displayTable{
		v.reasons(), v.clients(), v.replicas(), v.trails(), v.hosts(), v.rules(), v.overrides(), v.outages(), v.reservations(), v.licenses(), v.signals(), v.signed(), v.events(),
	}
	return slices.DeleteFunc(all, func(s displayTable) bool { return len(s.Rows) == 0 })
}

// A tableBuilder makes the displayTables of a report.
type tableBuilder struct {
	report  *Report
	maxRows int
}

// A layout has the columns of a table of counts, and makes the cells of the counts.
type layout struct {
	keyColumns, countColumns, moreColumns []column
	cells                                 func(*counts) []string
}

// fillTable adds columns and rows to a displayTable.
func fillTable[R any, P counted[R]](s displayTable, t *table[R], most int, g layout, row func(*R) (before, after []string)) displayTable {
	s.Columns = slices.Concat(g.keyColumns, g.countColumns, g.moreColumns)
	s.Keys, s.Counts = len(g.keyColumns), len(g.countColumns)
	first, rest := topRows[R, P](t, most)
	for i := range first {
		before, after := row(&first[i])
		s.Rows = append(s.Rows, slices.Concat(before, g.cells(P(&first[i]).all()), after))
	}
	if rest.Requests == 0 {
		return s
	}
	last := make([]string, len(s.Columns))
	last[0] = others
	copy(last[len(g.keyColumns):], g.cells(&rest))
	s.Rows = append(s.Rows, last)
	if further := len(t.Rows) - len(first); further > 0 {
		s.Rest = fmt.Sprintf("%s is the sum of %s.", others, humanize.Count(further, "further row"))
	}
	if n := t.Others.Requests; n > 0 {
		s.Rest = join(s.Rest, fmt.Sprintf("%s includes %s that came when the table was full (%s).", others, humanize.Count(n, "request"), humanize.Count(t.Most, "row")))
	}
	return s
}

func join(sentence, next string) string {
	if sentence == "" {
		return next
	}
	return sentence + " " + next
}

// firstRows returns the first rows of a list, and sets s.Rest if others are left out.
func firstRows[R any](s *displayTable, l *list[R], most int, things string) []R {
	rows := l.Rows
	if most > 0 && len(rows) > most {
		rows = rows[:most]
	}
	if left := int64(len(l.Rows)-len(rows)) + l.Others; left > 0 {
		s.Rest = fmt.Sprintf("%s %s are not shown.", humanize.Number(left), things)
	}
	return rows
}

// outcomes returns the layout that every table of counts has.
func (b *tableBuilder) outcomes() layout {
	kinds := b.report.kinds()
	g := layout{
		countColumns: columns(figures, "requests"),
		cells: func(c *counts) []string {
			cells := []string{humanize.Number(c.Requests)}
			for _, k := range kinds {
				cells = append(cells, humanize.Number(*k.of(&c.outcomes)))
			}
			return cells
		},
	}
	for _, k := range kinds {
		g.countColumns = append(g.countColumns, column{k.word, figures})
	}
	return g
}

// outcomesAndWaits adds columns for waits and bytes.
func (b *tableBuilder) outcomesAndWaits() layout {
	g := b.outcomes()
	outcomes := g.cells
	g.countColumns = append(g.countColumns, columns(figures, "waited", "median wait", "longest wait", "data")...)
	g.cells = func(c *counts) []string {
		return append(outcomes(c), humanize.Number(c.Waited), humanize.Duration(c.WaitMedian), humanize.Duration(c.WaitMax), humanize.Bytes(c.Bytes))
	}
	return g
}

func (b *tableBuilder) reasons() displayTable {
	g := b.outcomes()
	g.keyColumns = columns(words, "reason", "meaning")
	return fillTable(displayTable{
		ID: "reasons", Title: "Reasons",
		About: "The reason of each decision: the word in the audit, and its meaning.",
	}, &b.report.Reasons, b.maxRows, g, func(r *reason) (before, after []string) {
		return []string{shown(r.Reason), explain.Reason(r.Reason)}, nil
	})
}

func (b *tableBuilder) clients() displayTable {
	g := b.outcomesAndWaits()
	g.keyColumns = columns(words, "client")
	return fillTable(displayTable{
		ID: "clients", Title: "Clients",
		About: "The clients that sent the requests, by their name in the configuration, or else by their address.",
	}, &b.report.Clients, b.maxRows, g, func(c *client) (before, after []string) {
		return []string{shown(c.Client)}, nil
	})
}

func (b *tableBuilder) replicas() displayTable {
	g := b.outcomesAndWaits()
	g.keyColumns = columns(words, "replica")
	g.moreColumns = columns(figures, "without store")
	return fillTable(displayTable{
		ID: "replicas", Title: "Replicas",
		About: "The proxies that decided, by the name in their records. Without store: requests that the replica paced while the shared store was unavailable.",
	}, &b.report.Replicas, b.maxRows, g, func(r *replica) (before, after []string) {
		return []string{shown(r.Replica)}, []string{humanize.Number(r.Away)}
	})
}

func (b *tableBuilder) trails() displayTable {
	s := displayTable{
		ID: "audits", Title: "Audits",
		About:   "The audits in this report. Each has its own chain. The anchor is that of its last line.",
		Columns: append(columns(words, "audit"), append(columns(figures, "files", "lines", "requests", "fetches", "lost"), column{"chain", words}, column{"anchor", hash})...),
	}
	for i := range b.report.Source.Trails {
		p := &b.report.Source.Trails[i]
		held := "holds"
		switch {
		case !p.Chain.Held:
			held = "BROKEN: " + shown(p.Chain.Fault.String())
		case p.Chain.FirstSeq > 1:
			held = fmt.Sprintf("holds from line %s on", humanize.Number(p.Chain.FirstSeq))
		}
		s.Rows = append(s.Rows, []string{shown(p.Name), humanize.Number(p.Files), humanize.Number(p.Lines), humanize.Number(p.Requests), humanize.Number(p.Fetches + p.TDMRep), humanize.Number(p.Lost), held, p.Chain.Anchor})
	}
	return s
}

func (b *tableBuilder) hosts() displayTable {
	g := b.outcomesAndWaits()
	g.keyColumns = columns(words, "host")
	g.moreColumns = append(columns(figures, "asked delay", "applied delay", "clamped"), column{"robots.txt", hash})
	return fillTable(displayTable{
		ID: "hosts", Title: "Sites",
		About: "The sites that the requests were for. Asked delay: the longest Crawl-delay that the site asked for. Applied delay: the delay that the proxy applied, or only recorded (mode: monitor). " +
			"Clamped: requests that were sent after a shorter delay than the site asked for. robots.txt: the beginning of the SHA-256 of the last file that decided.",
	}, &b.report.Hosts, b.maxRows, g, func(h *host) (before, after []string) {
		after = []string{"", "", "", digest(h.SHA256)}
		if h.CrawlAsked > 0 {
			after[0], after[1], after[2] = delay(h.CrawlAsked), delay(h.CrawlKept), humanize.Number(h.Clamped)
		}
		return []string{shown(h.Host)}, after
	})
}

// ruleHost is the column by which the rules can be grouped.
const ruleHost = 0

func (b *tableBuilder) rules() displayTable {
	g := b.outcomes()
	g.keyColumns = append(append(columns(words, "host"), columns(code, "rule")...), column{"line", figures}, column{"group", words})
	g.moreColumns = columns(hash, "robots.txt")
	return fillTable(displayTable{
		ID: "rules", Title: "Rules",
		About: "The rules of robots.txt that matched, with their line and group in the file, and the beginning of the SHA-256 of the file. " +
			"A line after the group is that of its User-agent line in a joined list (RFC 9309 2.2.4).",
	}, &b.report.Rules, b.maxRows, g, func(r *rule) (before, after []string) {
		group := shown(r.Group)
		if r.Joined > 0 {
			group += fmt.Sprintf(" (joined, line %d)", r.Joined)
		}
		return []string{shown(r.Host), shown(r.Rule), strconv.Itoa(r.Line), group}, []string{digest(r.SHA256)}
	})
}

func (b *tableBuilder) overrides() displayTable {
	g := b.outcomes()
	g.keyColumns = columns(words, "entry", "effect", "reason given")
	g.moreColumns = columns(words, "first request", "last request")
	return fillTable(displayTable{
		ID: "overrides", Title: "Exceptions",
		About: "Entries of the configuration that decided instead of robots.txt, with the reason that the operator gave. Times are UTC.",
	}, &b.report.Overrides, b.maxRows, g, func(o *override) (before, after []string) {
		says := "ignores robots.txt"
		if o.Reason == "denied-host" {
			says = "denies the host"
		}
		return []string{shown(o.Entry), says, shown(o.EntryReason)}, []string{stamp(o.First), stamp(o.Last)}
	})
}

func (b *tableBuilder) outages() displayTable {
	s := displayTable{
		ID: "unreachable", Title: "Times without a usable robots.txt",
		About:   "A site gave no usable robots.txt. The proxy refuses requests to such a site until the site gives one (RFC 9309 2.3.1.4). From and to: the first and the last request of that time. Ended: a later request found a usable robots.txt. Times are UTC.",
		Columns: append(columns(words, "host", "from", "to"), column{"lasted", figures}, column{"requests", figures}, column{"ended", words}),
	}
	for _, o := range firstRows(&s, &b.report.Unreachable, b.maxRows, "further times or requests") {
		ended := "no"
		if o.Ended {
			ended = "yes"
		}
		s.Rows = append(s.Rows, []string{shown(o.Host), stamp(o.First), stamp(o.Last), humanize.Duration(o.Last.Sub(o.First)), humanize.Number(o.Requests), ended})
	}
	return s
}

func (b *tableBuilder) reservations() displayTable {
	g := b.outcomes()
	g.keyColumns = columns(words, "host", "purpose", "says", "where")
	g.keyColumns = append(g.keyColumns, column{"statement", code})
	g.moreColumns = columns(words, "reason given")
	return fillTable(displayTable{
		ID: "reservations", Title: "Reservations by sites",
		About: "The statements of sites that decided for what purposes the content may be used (usage.purposes), and what became of the requests. One request can be in several rows. Reason given: that of the entry of hosts that applies to allowed requests.",
	}, &b.report.Reservations, b.maxRows, g, func(v *reservation) (before, after []string) {
		return []string{shown(v.Host), shown(v.Purpose), shown(v.Outcome), shown(v.Source), shown(v.Statement)}, []string{shown(v.Entry)}
	})
}

func (b *tableBuilder) licenses() displayTable {
	g := b.outcomes()
	g.keyColumns = append(columns(words, "host"), columns(code, "license")...)
	return fillTable(displayTable{
		ID: "licenses", Title: "Licenses of sites",
		About: "The licenses that sites name in robots.txt or in Link headers. The proxy does not read them: look at them before you use the content.",
	}, &b.report.Licenses, b.maxRows, g, func(l *license) (before, after []string) {
		return []string{shown(l.Host), shown(l.License)}, nil
	})
}

func (b *tableBuilder) signals() displayTable {
	s := displayTable{
		ID: "signals", Title: "Usage preferences of sites",
		About:   "What sites state about the use of their content. If there were several values, the table shows the last. Noindex: responses whose X-Robots-Tag is noindex or none.",
		Columns: append(columns(words, "host", "where"), column{"last value", code}, column{"requests", figures}, column{"noindex", figures}),
	}
	for _, g := range firstRows(&s, &b.report.Signals, b.maxRows, "further rows or requests") {
		s.Rows = append(s.Rows, []string{shown(g.Host), signalWords[g.Name], shown(g.Last), humanize.Number(g.Requests), humanize.Number(g.NoIndex)})
	}
	return s
}

func (b *tableBuilder) signed() displayTable {
	g := b.outcomes()
	g.keyColumns = append(columns(words, "signature"), columns(code, "key")...)
	g.moreColumns = columns(words, "from", "to")
	return fillTable(displayTable{
		ID: "signed", Title: "Signatures",
		About: "The requests that were sent while the configuration had a key for signatures (identity.sign), by the key that signed them, or by the reason why the proxy did not. Times are UTC.",
	}, &b.report.Signed, b.maxRows, g, func(s *signed) (before, after []string) {
		key := s.Key
		if key == "" {
			key = noName
		}
		return []string{s.signature(), shown(key)}, []string{stamp(s.First), stamp(s.Last)}
	})
}

func (b *tableBuilder) events() displayTable {
	s := displayTable{
		ID: "events", Title: "Events of the audit",
		About:   "What happened to the audit itself, from its own lines. Filters do not apply to events. Times are UTC.",
		Columns: append(columns(words, "time"), column{"line", figures}, column{"event", words}, column{"what happened", words}, column{"file", code}, column{"records", figures}),
	}
	for _, e := range firstRows(&s, &b.report.Events, b.maxRows, "further events") {
		var file, lost string
		if e.File != "" {
			file = shown(e.File)
		}
		if e.Count > 0 {
			lost = humanize.Number(e.Count)
		}
		s.Rows = append(s.Rows, []string{stamp(e.Time), strconv.FormatUint(e.Seq, 10), shown(e.Event), shown(e.Detail), file, lost})
	}
	return s
}
