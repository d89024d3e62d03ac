package checkcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/robots"
)

// maxBrief is how many remarks are made beside answers.
const maxBrief = 10

// A fault is a remark of the linter as JSON.
type fault struct {
	Line  int    `json:"line"`
	Fault string `json:"fault"`
	Text  string `json:"text"`
}

// lint says what is likely wrong with a file. The exit status is 1 when
// something is.
func lint(out io.Writer, file *OneFile, d robots.Dialect, asJSON bool) error {
	remarks := robots.Lint(file.Text, d)
	if asJSON {
		lines := cli.NewJSONLines(out)
		for _, r := range remarks {
			if err := lines.Write(fault{r.Line, string(r.Fault), r.Text}); err != nil {
				return err
			}
		}
	} else {
		said := cli.Count(int64(len(remarks)), "remark")
		switch len(remarks) {
		case 0:
			said = "no remarks"
		case robots.MaxRemarks:
			said = "the first " + said
		}
		_, err := fmt.Fprintf(out, "%s%s: %s under %s\n", remarkLines(file, remarks), cli.Printable(file.Name), said, d.Name)
		if err != nil {
			return err
		}
	}
	if len(remarks) > 0 {
		return cli.ExitError(cli.ExitFailure)
	}
	return nil
}

// lintBriefly says it beside answers, which do not depend on it.
func lintBriefly(out io.Writer, file *OneFile, d robots.Dialect) {
	remarks := robots.Lint(file.Text, d)
	first := remarks[:min(len(remarks), maxBrief)]
	if n := len(remarks); n > maxBrief && remarks[n-1].Fault == robots.TooLong { // what it hides counts most
		first = append(slices.Clone(first[1:]), remarks[n-1])
	}
	io.WriteString(out, remarkLines(file, first)) // nobody may be reading
	if more := len(remarks) - len(first); more > 0 {
		fmt.Fprintf(out, "%s: and %s (without a URL more are listed)\n", cli.Printable(file.Name), cli.Count(int64(more), "more remark"))
	}
}

// remarkLines are the remarks as compilers make them, each with the line that
// it is about.
func remarkLines(file *OneFile, remarks []robots.Remark) string {
	var b strings.Builder
	for _, r := range remarks {
		fmt.Fprintf(&b, "%s:%d: %s: %s", cli.Printable(file.Name), r.Line, r.Fault, cli.Harmless(r.Text))
		if line := cli.Printable(cli.Clip(r.Source)); r.Fault != robots.TooLong && !strings.Contains(r.Text, line) {
			b.WriteString("  | " + line)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
