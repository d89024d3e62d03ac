package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// A displayTable is a table for people. Its cells are formatted, and strings of clients and
// origins are escaped.
type displayTable struct {
	ID, Title, About string
	Columns          []column

	// Keys is the number of columns before those of counts, and Counts that of columns of counts; zero: there are no counts.
	Keys, Counts int
	Rows         [][]string

	// Rest is a sentence about what has no row.
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

// columnKinds are the kinds of the columns that do not have words.
var columnKinds = map[string]kind{
	"anchor": hash, "robots.txt": hash, "version": hash,
	"file": code, "key": code, "last value": code, "license": code, "response to": code, "rule": code, "statement": code,
	"applied delay": figures, "asked delay": figures, "clamped": figures, "data": figures, "fetches": figures, "files": figures,
	"delay": figures, "delayed": figures, "in 10 s": figures, "in 60 s": figures, "length": figures, "median": figures,
	"below delay": figures, "others' during": figures, "permitted": figures, "sent": figures, "sent after": figures,
	"sent before": figures, "sent during": figures, "shortest": figures,
	"lasted": figures, "line": figures, "lines": figures, "longest wait": figures, "lost": figures, "median wait": figures,
	"days reached": figures, "most used": figures, "quota of a day": figures,
	"noindex": figures, "records": figures, "requests": figures, "waited": figures, "without store": figures,
}

func columns(names ...string) (made []column) {
	for _, name := range names {
		k := words
		if special, ok := columnKinds[name]; ok {
			k = special
		}
		made = append(made, column{name, k})
	}
	return made
}

// displayTables returns the tables of the report that have a row, each with at most so many (0:
// all).
func (r *Report) displayTables(most int) []displayTable {
	b := tableBuilder{report: r, maxRows: most}
	all := []displayTable{
		b.reasons(), b.clients(), b.quotas(), b.agreements(), b.replicas(), b.trails(), b.hosts(),
		b.pace(), b.delays(), b.backOffs(), b.versions(), b.rules(), b.overrides(), b.outages(),
		b.reservations(), b.licenses(), b.signals(), b.signed(), b.events(),
	}
	return slices.DeleteFunc(all, func(s displayTable) bool { return len(s.Rows) == 0 })
}

// A tableBuilder makes the displayTables of a report.
type tableBuilder struct {
	report  *Report
	maxRows int
}

// table returns a table without rows.
func (b *tableBuilder) table(id string, columnNames ...string) displayTable {
	text := prose{b.report}.sentences("table " + id)
	return displayTable{ID: id, Title: text[0], About: text[1], Columns: columns(columnNames...)}
}

// A layout has the columns of a table of counts: those before the counts, the counts, and those behind them.
type layout struct {
	keys, more []string

	// waits adds counts of waits and of bytes.
	waits bool
}

// fill adds columns and rows to a displayTable.
func fill[R any, P counted[R]](b *tableBuilder, id string, t *table[R], g layout, row func(*R) (before, after []string)) displayTable {
	s := b.table(id, g.keys...)
	s.Columns = append(s.Columns, b.countColumns(g.waits)...)
	s.Keys, s.Counts = len(g.keys), len(s.Columns)-len(g.keys)
	s.Columns = append(s.Columns, columns(g.more...)...)
	first, rest := topRows[R, P](t, b.maxRows)
	for i := range first {
		before, after := row(&first[i])
		s.Rows = append(s.Rows, slices.Concat(before, b.countCells(P(&first[i]).all(), g.waits), after))
	}
	if rest.Requests == 0 {
		return s
	}
	last := make([]string, len(s.Columns))
	last[0] = others
	copy(last[s.Keys:], b.countCells(&rest, g.waits))
	s.Rows = append(s.Rows, last)
	if further := len(t.Rows) - len(first); further > 0 {
		s.Rest = fmt.Sprintf("%s is the sum of %s.", others, humanize.Count(further, "further row"))
	}
	if n := t.Others.Requests; n > 0 {
		s.Rest = strings.TrimLeft(fmt.Sprintf("%s %s includes %s that came when the table was full (%s).",
			s.Rest, others, humanize.Count(n, "request"), humanize.Count(t.Most, "row")), " ")
	}
	return s
}

// countColumns returns the columns of counts.
func (b *tableBuilder) countColumns(waits bool) []column {
	made := columns("requests")
	for _, k := range b.report.kinds() {
		made = append(made, column{k.word, figures})
	}
	if waits {
		made = append(made, columns("waited", "median wait", "longest wait", "data")...)
	}
	return made
}

// countCells returns the cells of the countColumns.
func (b *tableBuilder) countCells(c *counts, waits bool) []string {
	cells := []string{humanize.Number(c.Requests)}
	for _, k := range b.report.kinds() {
		cells = append(cells, humanize.Number(*k.of(&c.outcomes)))
	}
	if waits {
		cells = append(cells, humanize.Number(c.Waited), humanize.Duration(c.WaitMedian), humanize.Duration(c.WaitMax))
		cells = append(cells, humanize.Bytes(c.Bytes))
	}
	return cells
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

func (b *tableBuilder) reasons() displayTable {
	g := layout{keys: []string{"reason", "meaning"}}
	return fill(b, "reasons", &b.report.Reasons, g, func(r *reason) (before, after []string) {
		return []string{shown(r.Reason), explain.Reason(r.Reason)}, nil
	})
}

func (b *tableBuilder) clients() displayTable {
	g := layout{keys: []string{"client"}, waits: true}
	return fill(b, "clients", &b.report.Clients, g, func(c *client) (before, after []string) {
		return []string{shown(c.Client)}, nil
	})
}

func (b *tableBuilder) replicas() displayTable {
	g := layout{keys: []string{"replica"}, more: []string{"without store"}, waits: true}
	return fill(b, "replicas", &b.report.Replicas, g, func(r *replica) (before, after []string) {
		return []string{shown(r.Replica)}, []string{humanize.Number(r.StoreAway)}
	})
}

func (b *tableBuilder) trails() displayTable {
	s := b.table("audits", "audit", "files", "lines", "requests", "fetches", "lost", "chain", "anchor")
	for i := range b.report.Source.Trails {
		p := &b.report.Source.Trails[i]
		held := "holds"
		switch {
		case !p.Chain.Held:
			held = "BROKEN: " + p.Chain.fault()
		case p.Chain.FirstSeq > 1:
			held = fmt.Sprintf("holds from line %s on", humanize.Number(p.Chain.FirstSeq))
		}
		row := []string{shown(p.Name)}
		for _, n := range []int64{p.Files, p.Lines, p.Requests, p.Fetches + p.TDMRep, p.Lost} {
			row = append(row, humanize.Number(n))
		}
		s.Rows = append(s.Rows, append(row, held, p.Chain.Anchor))
	}
	return s
}

func (b *tableBuilder) hosts() displayTable {
	g := layout{keys: []string{"host"}, more: []string{"asked delay", "applied delay", "clamped", "robots.txt"}, waits: true}
	return fill(b, "hosts", &b.report.Hosts, g, func(h *host) (before, after []string) {
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
	g := layout{keys: []string{"host", "rule", "line", "group"}, more: []string{"robots.txt"}}
	return fill(b, "rules", &b.report.Rules, g, func(r *rule) (before, after []string) {
		group := shown(r.Group)
		if r.Joined > 0 {
			group += fmt.Sprintf(" (joined, line %d)", r.Joined)
		}
		return []string{shown(r.Host), shown(r.Rule), strconv.Itoa(r.Line), group}, []string{digest(r.SHA256)}
	})
}

func (b *tableBuilder) overrides() displayTable {
	g := layout{keys: []string{"entry", "effect", "reason given"}, more: []string{"first request", "last request"}}
	return fill(b, "overrides", &b.report.Overrides, g, func(o *override) (before, after []string) {
		says := "ignores robots.txt"
		if o.Reason == "denied-host" {
			says = "denies the host"
		}
		return []string{shown(o.Entry), says, shown(o.EntryReason)}, []string{stamp(o.First), stamp(o.Last)}
	})
}

func (b *tableBuilder) outages() displayTable {
	s := b.table("unreachable", "host", "from", "to", "lasted", "requests", "ended")
	for _, o := range firstRows(&s, &b.report.Unreachable, b.maxRows, "further times or requests") {
		ended := "no"
		if o.Ended {
			ended = "yes"
		}
		lasted := humanize.Duration(o.Last.Sub(o.First))
		s.Rows = append(s.Rows, []string{shown(o.Host), stamp(o.First), stamp(o.Last), lasted, humanize.Number(o.Requests), ended})
	}
	return s
}

func (b *tableBuilder) reservations() displayTable {
	g := layout{keys: []string{"host", "purpose", "says", "where", "statement"}, more: []string{"reason given"}}
	return fill(b, "reservations", &b.report.Reservations, g, func(v *reservation) (before, after []string) {
		before = []string{shown(v.Host), shown(v.Purpose), shown(v.Outcome), shown(v.Source), shown(v.Statement)}
		return before, []string{shown(v.Entry)}
	})
}

func (b *tableBuilder) licenses() displayTable {
	g := layout{keys: []string{"host", "license"}}
	return fill(b, "licenses", &b.report.Licenses, g, func(l *license) (before, after []string) {
		return []string{shown(l.Host), shown(l.License)}, nil
	})
}

func (b *tableBuilder) signals() displayTable {
	s := b.table("signals", "host", "where", "last value", "requests", "noindex")
	for _, g := range firstRows(&s, &b.report.Signals, b.maxRows, "further rows or requests") {
		row := []string{shown(g.Host), g.where(), shown(g.Last), humanize.Number(g.Requests), humanize.Number(g.NoIndex)}
		s.Rows = append(s.Rows, row)
	}
	return s
}

func (b *tableBuilder) signed() displayTable {
	g := layout{keys: []string{"signature", "key"}, more: []string{"from", "to"}}
	return fill(b, "signed", &b.report.Signed, g, func(s *signed) (before, after []string) {
		return []string{s.signature(), shown(s.Key)}, []string{stamp(s.First), stamp(s.Last)}
	})
}

func (b *tableBuilder) events() displayTable {
	s := b.table("events", "time", "line", "event", "what happened", "file", "records")
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
