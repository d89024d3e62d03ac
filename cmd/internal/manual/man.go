package manual

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// manPage returns the command's man page. It has no date, so that a build can be repeated.
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" robotsproxy\n", strconv.Quote(strings.ToUpper(dashed(cmd))))
	// Help texts have line breaks and columns of their own.
	b.WriteString(".nh\n.ad l\n")
	heading(&b, "NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(dashed(cmd)), roff(cmd.Short))
	verbatim(&b, "SYNOPSIS", usage(cmd))
	verbatim(&b, "DESCRIPTION", long(cmd))
	verbatim(&b, "OPTIONS", flags(cmd))
	verbatim(&b, "EXAMPLES", cmd.Example)
	var statuses strings.Builder
	for _, e := range exitStatuses {
		fmt.Fprintf(&statuses, "%d  %s\n", e.status, e.means)
	}
	verbatim(&b, "EXIT STATUS", statuses.String()+"\nIf the description names other exit statuses, these apply.")
	var others []string
	for _, c := range commands(cmd.Root()) {
		if c != cmd && (c == cmd.Parent() || c.Parent() == cmd) {
			others = append(others, dashed(c)+"(1)")
		}
	}
	verbatim(&b, "SEE ALSO", strings.Join(others, "\n"))
	return b.Bytes()
}

func heading(b *bytes.Buffer, title string) { fmt.Fprintf(b, ".SH %q\n", title) }

// verbatim writes a section whose lines stay as they are. It leaves out an empty section.
func verbatim(b *bytes.Buffer, title, text string) {
	if text == "" {
		return
	}
	heading(b, title)
	b.WriteString(".nf\n")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n")
}

// roff escapes a line of text.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}
