package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text writes the report for a terminal, with at most so many rows for each table (0: all).
func (r *Report) Text(w io.Writer, most int) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Audit report, made %s UTC by robotsproxy %s\n\n", stamp(r.Made), r.Version)
	for _, f := range (prose{r}).facts(slices.Concat(results, grounds)) {
		fmt.Fprintf(out, "  %-10s %s\n", f.Name, f.Value)
	}
	for _, s := range r.displayTables(most) {
		fmt.Fprintf(out, "\n%s\n", s.Title)
		s.text(out)
		if s.Rest != "" {
			fmt.Fprintf(out, "  %s\n", s.Rest)
		}
	}
	return out.Flush()
}

// text writes a table in columns as wide as their widest cell.
func (d *displayTable) text(w io.Writer) {
	wide := make([]int, len(d.Columns))
	names := make([]string, len(d.Columns))
	for i, c := range d.Columns {
		names[i] = c.Name
	}
	lines := append([][]string{names}, d.Rows...)
	for _, line := range lines {
		for i, cell := range line {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			space := strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell))
			if d.Columns[i].Kind == figures {
				cell, space = space+cell, ""
			}
			b.WriteString("  " + cell + space)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
