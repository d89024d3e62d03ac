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

// A page is the report as its template wants it.
type page struct {
	Policy    string // Content-Security-Policy: a style, and nothing else
	Style     template.CSS
	Title     string
	Period    string
	Filters   string
	Anchor    string
	Alarm     string // where the chain is broken; "" where it held
	Figures   []figure
	Sentences []string
	Legend    []legend
	Timeline  *chart
	Bars      []barChart
	Sheets    []section
	Grounds   []fact
	Made      string
	Version   string
}

// A figure is a number that the report begins with.
type figure struct{ Name, Value, Note string }

// A section is a sheet, and what of it can be shut.
type section struct {
	sheet
	Folds []fold
}

// A fold is a part of a sheet that can be shut.
type fold struct {
	Name, Note string
	Sheet      sheet
}

// Sheet is what the template of tables takes.
func (s section) Sheet() sheet { return s.sheet }

// HTML writes the report as one page that loads nothing and has no script: of each
// table at most so many rows (0: all).
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
		Style:     template.CSS(pageStyle), // ours, as it was compiled in
		Title:     "How requests kept to robots.txt",
		Period:    r.period(),
		Filters:   r.Filters.String(),
		Anchor:    r.Source.Chain.Anchor,
		Alarm:     r.Fault(),
		Figures:   r.figures(),
		Sentences: r.sentences(),
		Legend:    r.legend(),
		Bars:      r.bars(),
		Grounds:   append(r.grounds(), fact{"made", stamp(r.Made) + " UTC, by robotsproxy " + r.Version}),
		Made:      stamp(r.Made) + " UTC",
		Version:   r.Version,
	}
	if len(r.Timeline.Buckets) > 0 {
		p.Timeline = r.chart()
	}
	for _, s := range r.sheets(most) {
		part := section{sheet: s}
		if s.ID == "rules" {
			rules, _ := top(&r.Rules, most)
			part.fold(rules)
		}
		p.Sheets = append(p.Sheets, part)
	}
	return p
}

// period is the title's line of when the requests came.
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

// foldedRules is how many rules of a host are too many to be shown unasked.
const foldedRules = 4

// fold takes the rules of hosts that have many out of a sheet of rules, into parts of
// their own. The sheet's rows are those of the rules, and the others.
func (s *section) fold(rules []rule) {
	at := map[string][]int{}
	for i := range s.Rows {
		if i < len(rules) {
			at[rules[i].Host] = append(at[rules[i].Host], i)
		}
	}
	var few [][]string
	for i, row := range s.Rows {
		if i >= len(rules) || len(at[rules[i].Host]) < foldedRules {
			few = append(few, row)
			continue
		}
		own := at[rules[i].Host]
		if own[0] != i {
			continue // it is in the part already
		}
		name := row[ruleHost]
		part := sheet{ID: fmt.Sprintf("rules-%d", i), Title: "Rules of " + name, Columns: s.Columns[ruleHost+1:]}
		var sum counts
		for _, j := range own {
			part.Rows = append(part.Rows, s.Rows[j][ruleHost+1:])
			sum.merge(&rules[j].counts)
		}
		note := fmt.Sprintf("%s, %s", humanize.Count(len(own), "rule"), humanize.Count(sum.Requests, "request"))
		s.Folds = append(s.Folds, fold{Name: name, Note: note, Sheet: part})
	}
	s.Rows = few
}

// figures are the numbers that count most.
func (r *Report) figures() []figure {
	t := &r.Totals
	hosts := len(r.Hosts.Rows)
	if slices.ContainsFunc(r.Hosts.Rows, func(h host) bool { return h.Host == "" }) {
		hosts-- // of what was no request
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
