package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"robotsproxy/policy/explain/humanize"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
)

// A page has the data of the HTML template, and what the texts need.
type page struct {
	prose

	// Policy is the Content-Security-Policy, which permits only the style.
	Policy   string
	Style    template.CSS
	Figures  []figure
	Legend   []legend
	Timeline *chart
	Paces    []paceChart
	Bars     []barChart
	Tables   []section
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
	t, err := template.New("page").Funcs(template.FuncMap{"stamp": stamp}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	// After an error there is no half page.
	var b bytes.Buffer
	if err := t.Execute(&b, r.page(most)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

func (r *Report) page(most int) *page {
	sum := sha256.Sum256([]byte(pageStyle))
	style := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	p := &page{
		prose:  prose{r},
		Policy: "default-src 'none'; style-src " + style + "; base-uri 'none'; form-action 'none'",
		// The style is embedded in the binary.
		Style:   template.CSS(pageStyle),
		Figures: r.figures(),
		Legend:  r.legend(),
		Bars:    r.bars(),
	}
	if len(r.Timeline.Buckets) > 0 {
		p.Timeline = r.chart()
	}
	p.Paces = r.paceCharts()
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

// Sentences returns the main results in sentences.
func (p *page) Sentences() []string { return p.sentences("sentences") }

// Sources returns what the report is based on.
func (p *page) Sources() []fact { return p.facts(grounds) }

// maxBeside is the maximum number of columns that fit beside each other on A4.
const maxBeside = 9

// Stacked reports that the table has too many columns: each row has two lines, and the second one
// has the counts.
func (d displayTable) Stacked() bool { return d.Counts > 0 && len(d.Columns) > maxBeside }

// Beside returns the columns of the cells that stand beside each other, without the first column.
func (d displayTable) Beside() []column {
	if d.Stacked() {
		return d.Columns[d.Keys : d.Keys+d.Counts]
	}
	return d.Columns[1:]
}

// A cell is a text in a column.
type cell struct {
	column
	Text string
}

// Class returns the names of the style of a cell.
func (c cell) Class() string {
	if c.Text == "0" || c.Text == "0 s" {
		return string(c.Kind) + " zero"
	}
	return string(c.Kind)
}

// Cells returns the cells of a row that stand beside each other, and those in the line above them,
// without the first cell. Empty cells above are left out.
func (d displayTable) Cells(row []string) (c struct{ Beside, Above []cell }) {
	for i, text := range row {
		switch counts := i >= d.Keys && i < d.Keys+d.Counts; {
		case i == 0:
		case counts || !d.Stacked():
			c.Beside = append(c.Beside, cell{d.Columns[i], text})
		case text != "":
			c.Above = append(c.Above, cell{d.Columns[i], text})
		}
	}
	return c
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
			// The rule is in its group already.
			continue
		}
		name := row[ruleHost]
		part := displayTable{
			ID: fmt.Sprintf("rules-%d", i), Title: "Rules of " + name,
			Columns: s.Columns[ruleHost+1:], Keys: s.Keys - 1, Counts: s.Counts,
		}
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
		// There is a row of requests without a host.
		hosts--
	}
	sites := humanize.Number(hosts)
	if r.Hosts.Others.Requests > 0 {
		sites = "over " + sites
	}
	figures := []figure{{"Requests", humanize.Number(t.Requests), ""}}
	for _, k := range r.kinds() {
		n := *k.of(&t.outcomes)
		figures = append(figures, figure{strings.ToUpper(k.word[:1]) + k.word[1:], humanize.Number(n), share(n, t.Requests)})
	}
	waited := figure{"Waited", humanize.Number(t.Waited), "for a slot"}
	if t.Waited > 0 {
		waited.Note = fmt.Sprintf("median %s, longest %s", humanize.Duration(t.WaitMedian), humanize.Duration(t.WaitMax))
	}
	figures = append(figures, waited)
	if p := &r.Pace.Total; p.Compared > 0 {
		below := fmt.Sprintf("%s of %s", humanize.Number(p.Shorter.Sum()), humanize.Number(p.Compared))
		figures = append(figures, figure{"Below the delay", below, cmp.Or(p.Shorter.Text(), "intervals")})
	}
	return append(figures, figure{"Sites", sites, ""}, figure{"Data", humanize.Bytes(t.Bytes), "in responses and tunnels"})
}
