package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"robotsproxy/policy/explain/humanize"
	"slices"
	"time"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
)

// A page has the data of the HTML template.
type page struct {
	Policy    string // Content-Security-Policy that permits only the style
	Style     template.CSS
	Title     string
	Period    string
	Filters   string
	Anchor    string
	Warning   string // the fault of the chain; "": it holds
	Figures   []figure
	Sentences []string
	Legend    []legend
	Timeline  *chart
	Bars      []barChart
	Tables    []section
	Sources   []fact
	Made      string
	Version   string
}

// A figure is a number at the top of the page.
type figure struct{ Name, Value, Note string }

// A section is a table, and the groups of rows that were taken out of it.
type section struct {
	displayTable
	Groups []group
}

// A group is a part of a table that can be closed.
type group struct {
	Name, Note string
	Table      displayTable
}

// HTML writes the report as one page that loads nothing and has no script, with at most so many
// rows for each table (0: all).
func (r *Report) HTML(w io.Writer, most int) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b bytes.Buffer // so that a failure leaves no half page
	if err := t.Execute(&b, r.page(most)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

func (r *Report) page(most int) *page {
	sum := sha256.Sum256([]byte(pageStyle))
	p := &page{
		Policy:    "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'",
		Style:     template.CSS(pageStyle), // embedded in the binary
		Title:     "How requests kept to robots.txt",
		Period:    r.period(),
		Filters:   r.Filters.String(),
		Anchor:    r.Source.Chain.Anchor,
		Warning:   r.Fault(),
		Figures:   r.figures(),
		Sentences: r.sentences(),
		Legend:    r.legend(),
		Bars:      r.bars(),
		Sources:   append(r.grounds(), fact{"made", stamp(r.Made) + " UTC, by robotsproxy " + r.Version}),
		Made:      stamp(r.Made) + " UTC",
		Version:   r.Version,
	}
	if len(r.Timeline.Buckets) > 0 {
		p.Timeline = r.chart()
	}
	for _, s := range r.displayTables(most) {
		part := section{displayTable: s}
		if s.ID == "rules" {
			rules, _ := topRows(&r.Rules, most)
			part.groupRules(rules)
		}
		p.Tables = append(p.Tables, part)
	}
	return p
}

// period returns the time of the requests, for the title.
func (r *Report) period() string {
	first, last := r.Totals.First.UTC(), r.Totals.Last.UTC()
	const day = "2 January 2006"
	switch {
	case first.IsZero():
		return "No request"
	case first.Truncate(24 * time.Hour).Equal(last.Truncate(24 * time.Hour)):
		return fmt.Sprintf("%s, %s to %s UTC", first.Format(day), first.Format(time.TimeOnly), last.Format(time.TimeOnly))
	}
	return fmt.Sprintf("%s to %s", first.Format(day), last.Format(day))
}

// minGrouped is the least number of rules of a host that are put into a group.
const minGrouped = 4

// groupRules moves the rules of hosts that have many from a table of rules into groups. The rows
// of the table are those of the rules, and the others.
func (s *section) groupRules(rules []rule) {
	at := map[string][]int{}
	for i := range s.Rows {
		if i < len(rules) {
			at[rules[i].Host] = append(at[rules[i].Host], i)
		}
	}
	var few [][]string
	for i, row := range s.Rows {
		if i >= len(rules) || len(at[rules[i].Host]) < minGrouped {
			few = append(few, row)
			continue
		}
		own := at[rules[i].Host]
		if own[0] != i {
			continue // it is in its group already
		}
		name := row[ruleHost]
		part := displayTable{ID: fmt.Sprintf("rules-%d", i), Title: "Rules of " + name, Columns: s.Columns[ruleHost+1:]}
		var sum counts
		for _, j := range own {
			part.Rows = append(part.Rows, s.Rows[j][ruleHost+1:])
			sum.merge(&rules[j].counts)
		}
		note := fmt.Sprintf("%s, %s", humanize.Count(len(own), "rule"), humanize.Count(sum.Requests, "request"))
		s.Groups = append(s.Groups, group{Name: name, Note: note, Table: part})
	}
	s.Rows = few
}

// figures returns the most important numbers.
func (r *Report) figures() []figure {
	t := &r.Totals
	hosts := len(r.Hosts.Rows)
	if slices.ContainsFunc(r.Hosts.Rows, func(h host) bool { return h.Host == "" }) {
		hosts-- // the row of requests without a host
	}
	sites := humanize.Number(hosts)
	if r.Hosts.Others.Requests > 0 {
		sites = "over " + sites
	}
	figures := []figure{
		{"Requests", humanize.Number(t.Requests), ""},
		{"Allowed", humanize.Number(t.Allowed), share(t.Allowed, t.Requests)},
		{"Blocked", humanize.Number(t.Blocked), share(t.Blocked, t.Requests)},
	}
	if r.Monitored > 0 {
		figures = append(figures, figure{"Not enforced", humanize.Number(t.NotEnforced), "monitor mode"})
	}
	waited := figure{"Waited", humanize.Number(t.Waited), "for their turn"}
	if t.Waited > 0 {
		waited.Note = humanize.Duration(t.WaitMean) + " each"
	}
	return append(figures, waited, figure{"Sites", sites, ""}, figure{"Data sent on", humanize.Bytes(t.Bytes), ""})
}
