package auditcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

func auditVerifyCommand() *cobra.Command {
	var f auditFlags
	var anchor bool
	var since string
	var from uint64
	cmd := &cobra.Command{
		Use:   "verify [flags] [FILE...]",
		Short: "Show that no line of the audit was changed, taken out or moved",
		Long: `Show that no line of the audit was changed, taken out or moved, in any of its
files: each line has the hash of its own octets and that of the line before it.
The first fault is named with its place, and the exit status is 1.

Lines that are missing at the beginning are a fault too, unless a line says that
the proxy removed them (audit.max_age). Earlier versions wrote no such line, so
the beginning of their audits is not judged. --from SEQ is for a part of an audit:
the line of that number has to be there, and the lines before it are not judged.

When serve starts, it compares the end of its audit with what it remembers. If it
wrote down that the end was not as it left it, that is a fault.

The lines cannot show that the end was not cut off, or that the whole audit was
not written anew. An anchor can: the number and the hash of a line, kept where
nobody who can change the audit can change it. --anchor prints that of the last line; with
--since-anchor that line has to be there still, and the chain to go on from it.

With --file - one file is read from standard input. Of several files, as the
replicas of a fleet have one each, each is verified on its own; anchors then
stand beside the names of their files, and --from and --since-anchor are not
allowed.`,
		Example: `  robotsproxy audit verify
  robotsproxy audit verify --anchor >> /elsewhere/anchors
  robotsproxy audit verify --since-anchor "$(tail -n 1 /elsewhere/anchors)"
  zcat audit-000000004711.jsonl.gz | robotsproxy audit verify --file - --from 4711`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			known, err := knownOf(cmd, from, since)
			if err != nil {
				return err
			}
			return f.verify(cmd.InOrStdin(), cmd.OutOrStdout(), known, anchor)
		},
	}
	f.add(cmd)
	f.anyFiles(cmd)
	cmd.Flags().BoolVar(&anchor, "anchor", false, "print nothing but the anchor of the last line")
	cmd.Flags().Func("from", "`SEQ` of the first line that has to be there", func(text string) (err error) {
		if from, err = strconv.ParseUint(text, 10, 64); err != nil || from == 0 {
			return errors.New("must be a whole number of at least 1")
		}
		return nil
	})
	cmd.Flags().StringVar(&since, "since-anchor", "", "`ANCHOR` of a line that has to be there still")
	return cmd
}

// knownOf reads --from and --since-anchor, which say what is known about an audit.
func knownOf(cmd *cobra.Command, from uint64, since string) (known trail.VerifyOptions, err error) {
	known.From = from
	if cmd.Flags().Changed("since-anchor") {
		if known.Since, err = trail.ParseAnchor(strings.TrimSpace(since)); err != nil { // it may come from a file, with a newline
			return known, cli.UsageErrorf("--since-anchor %q: %w", since, err)
		}
	}
	return known, nil
}

// verify reads the audit, or standard input. It reads several audits one after the other, whether
// one before is whole or not; the error is of all that are not.
func (f *auditFlags) verify(in io.Reader, out io.Writer, known trail.VerifyOptions, anchor bool) error {
	if len(f.paths) <= 1 {
		r, err := f.open(in)
		return verifyOne(r, err, out, "", known, anchor)
	}
	if known != (trail.VerifyOptions{}) {
		return cli.UsageErrorf("--from and --since-anchor take one audit, not several files")
	}
	audits, err := f.audits()
	if err != nil {
		return err
	}
	var errs []error
	for i, at := range audits {
		name := humanize.Printable(at.file)
		if i > 0 && !anchor {
			name = "\n" + name
		}
		r, err := openAudit(at.file)
		errs = append(errs, verifyOne(r, err, out, name, known, anchor))
	}
	return errors.Join(errs...)
}

// verifyOne verifies the audit that r reads, if err is nil, and closes r. name is printed beside
// what it finds.
func verifyOne(r *trail.Reader, err error, out io.Writer, name string, known trail.VerifyOptions, anchor bool) error {
	if err != nil {
		return err
	}
	defer r.Close()
	res, err := trail.Verify(r, known)
	switch {
	case err != nil:
	case anchor && res.Lines == 0:
		err = fmt.Errorf("%s has no line yet that could be an anchor", cmp.Or(name, "the audit"))
	case anchor && name != "":
		_, err = fmt.Fprintf(out, "%s  %s\n", res.Anchor(), name)
	case anchor:
		_, err = fmt.Fprintln(out, res.Anchor())
	case name != "":
		_, err = fmt.Fprintf(out, "%s\n%s", name, verified(&res, known))
	default:
		_, err = io.WriteString(out, verified(&res, known))
	}
	return err
}

// verified formats the result for a chain without a fault.
func verified(res *trail.Result, known trail.VerifyOptions) string {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-7s "+format+"\n", append([]any{label}, args...)...)
	}
	if res.Lines == 0 {
		return "The audit is empty.\n"
	}
	b.WriteString("No line was changed or moved, and none between the first and the last is missing.\n")
	row("lines", "%d in %s, seq %d to %d", res.Lines, humanize.Count(res.Files, "file"), res.First, res.Last.Seq)
	switch {
	case res.Removed:
		row("", "older files were removed while they were read: once more shows whether that is all")
	case res.Pruned:
		row("", "the proxy removed the %s before them, as an event in the audit says", humanize.Count(res.First-1, "line"))
	case res.First > 1 && known.From > 0:
		row("", "not here, as --from permits: the %s before them", humanize.Count(res.First-1, "line"))
	case res.First > 1:
		row("", "not here: the %s before them, which the proxy removed or somebody took away", humanize.Count(res.First-1, "line"))
	}
	row("time", "%s to %s", day(res.From), day(res.To))
	for i, e := range res.ListedEvents {
		label := ""
		if i == 0 {
			label = "events"
		}
		row(label, "%s  %s", day(e.Time), eventText(&e))
	}
	if more := res.Events - len(res.ListedEvents); more > 0 {
		row("", "and %d more", more)
	}
	if res.Counted > 0 {
		row("counted", "%s of clients beyond 100 a second, which have no record", humanize.Count(res.Counted, "refusal"))
	}
	if known.Since.Seq > 0 {
		row("since", "%s: no line up to there was cut off or written anew, and the chain goes on from there", known.Since)
		row("limit", "lines behind that anchor may have been cut off the end: only a newer anchor would show it")
	} else {
		row("limit", "lines may have been cut off the end, or the whole audit written anew: only an anchor shows it (--since-anchor)")
	}
	row("anchor", "%s", res.Anchor())
	row("", "Keep it where nobody who can change the audit can change it, for a later --since-anchor.")
	return b.String()
}

func day(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.RFC3339)
}
