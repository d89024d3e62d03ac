package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// chartBars is the number of bars in a chart.
const chartBars = 10

// A barChart compares the rows of a table.
type barChart struct {
	Title, About string
	Bars         []bar

	// Rest is a sentence about the rows without a bar.
	Rest string
}

// A bar shows one row. The widths of its parts are in thousandths of the longest bar.
type bar struct {
	Label, Note string

	// Total is the number of requests, and Parted lists the numbers by outcome.
	Total, Parted string
	Parts         []part
}

type part struct {
	Class    string
	X, Width int64
}

// bars returns the charts beside the timeline that have a bar.
func (r *Report) bars() []barChart {
	charts := []barChart{
		barsOf(r, "Reasons", "Reasons of the decisions.", &r.Reasons, func(n *reason) (label, note string) {
			return cmp.Or(explain.Reason(n.Reason), shown(n.Reason)), ""
		}),
		barsOf(r, "Sites", "Sites with the most requests.", &r.Hosts, func(h *host) (label, note string) {
			return shown(h.Host), ""
		}),
		barsOf(r, "Rules", "Rules that disallowed the most requests come first.", &r.Rules, func(u *rule) (label, note string) {
			// The row of the further rules of a host has no line.
			if u.Line == 0 {
				return shown(u.Rule), shown(u.Host)
			}
			return shown(u.Rule), fmt.Sprintf("%s, line %d", shown(u.Host), u.Line)
		}),
	}
	return slices.DeleteFunc(charts, func(c barChart) bool { return len(c.Bars) == 0 })
}

func barsOf[R any, P counted[R]](r *Report, title, about string, t *table[R], name func(*R) (label, note string)) barChart {
	c := barChart{Title: title, About: about}
	first, rest := topRows[R, P](t, chartBars)
	longest := int64(1)
	for i := range first {
		longest = max(longest, P(&first[i]).all().Requests)
	}
	for i := range first {
		b := r.bar(P(&first[i]).all(), longest)
		b.Label, b.Note = name(&first[i])
		c.Bars = append(c.Bars, b)
	}
	if rest.Requests > 0 {
		c.Rest = "All others: " + r.bar(&rest, longest).Parted + "."
	}
	return c
}

// bar makes a bar of counts, relative to the longest bar.
func (r *Report) bar(n *counts, longest int64) bar {
	b := bar{Total: humanize.Number(n.Requests)}
	var said []string
	x := int64(0)
	for _, k := range r.kinds() {
		requests := *k.of(&n.outcomes)
		if requests <= 0 {
			continue
		}
		wide := max(1, int64(1000*float64(requests)/float64(longest)))
		b.Parts = append(b.Parts, part{k.class, x, wide})
		x += wide
		said = append(said, humanize.Number(requests)+" "+k.word)
	}
	b.Parted = strings.Join(said, ", ")
	return b
}
