package checkcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
)

// maxBrief is how many remarks are printed beside decisions.
const maxBrief = 10

// A fault is a remark of the linter as JSON.
type fault struct {
	Line  int    `json:"line"`
	Fault string `json:"fault"`
	Text  string `json:"text"`
}

// lint prints what is likely wrong with a file. The exit status is 1 if anything is.
func lint(out io.Writer, file *File, d robots.Dialect, asJSON bool) error {
	remarks := robots.Lint(file.Text, d, robots.Origin{})
	if asJSON {
		for _, r := range remarks {
			if err := cli.WriteJSON(out, fault{r.Line, string(r.Fault), r.Text}); err != nil {
				return err
			}
		}
	} else {
		said := humanize.Count(len(remarks), "remark")
		switch len(remarks) {
		case 0:
			said = "no remarks"
		case robots.MaxRemarks:
			said = "the first " + said
		}
		_, err := fmt.Fprintf(out, "%s%s: %s under %s\n", remarkLines(file, remarks), humanize.Printable(file.Name), said, d.Name)
		if err != nil {
			return err
		}
	}
	if len(remarks) > 0 {
		return cli.ExitError(cli.ExitFailure)
	}
	return nil
}

// lintBriefly prints the first remarks about the file of an origin, beside decisions that do not depend on them.
func lintBriefly(out io.Writer, file *File, d robots.Dialect, origin robots.Origin) {
	remarks := robots.Lint(file.Text, d, origin)
	first := remarks[:min(len(remarks), maxBrief)]
	// The remark that the rest of the file is not read is the most important one.
	if n := len(remarks); n > maxBrief && remarks[n-1].Fault == robots.TooLong {
		first = append(slices.Clone(first[1:]), remarks[n-1])
	}
	// The decisions are printed already, so an error does not matter.
	io.WriteString(out, remarkLines(file, first))
	if more := len(remarks) - len(first); more > 0 {
		fmt.Fprintf(out, "%s: and %s (run the command without a URL to list more)\n",
			humanize.Printable(file.Name), humanize.Count(more, "more remark"))
	}
}

// remarkLines formats remarks as compilers do, each with the line that it is about.
func remarkLines(file *File, remarks []robots.Remark) string {
	var b strings.Builder
	for _, r := range remarks {
		fmt.Fprintf(&b, "%s:%d: %s: %s", humanize.Printable(file.Name), r.Line, r.Fault, humanize.Escape(r.Text))
		if line := humanize.Brief(r.Source); r.Fault != robots.TooLong && !strings.Contains(r.Text, line) {
			b.WriteString("  | " + line)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
