package auditcmd

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

func auditVerifyCommand() *cobra.Command {
	var f auditFlags
	var v verification
	var since string
	var noSnapshots bool
	cmd := &cobra.Command{
		Use:   "verify [flags] [FILE...]",
		Short: "Verify that no line of the audit was changed, removed or moved",
		Long: `Verify that no line of the audit was changed, removed or moved. Each line has the hash
of its own bytes and that of the line before it. If the command finds a fault, it
prints the first one with its place, and the exit status is 1.

Lines that are missing at the beginning are a fault too, unless a line says that the
proxy removed them (audit.max_age). Earlier versions wrote no such line, so the
beginning of their audits is not judged. --from SEQ verifies a part of an audit: the
line with that number must be there, and the lines before it are not judged.

When serve starts, it compares the end of the audit with what it last wrote there. If
it recorded a difference, that is a fault.

The lines alone cannot show that the end was not cut off, or that a line was not
changed together with all later hashes. An anchor can: it is the number and the hash of
a line, kept where nobody who can change the audit can change it. --anchor prints the
anchor of the last line. With --since-anchor, that line must still be there, and the
chain must continue from it.

The command also verifies the robots.txt and tdmrep.json files that the decisions are
based on: the bytes of each file by their SHA-256, and its entry in the index by the
line that the audit has of the fetch. --no-snapshots leaves this out.

The command also verifies the time-stamps of anchors (audit.anchor.tsa): the line of
each must be unchanged. With --tsa-ca, the signature of each must be that of an
authority in FILE; without it, signatures are not verified.

With --file -, the command reads one file from standard input, and no snapshots.
Several files, such as those of the replicas of a fleet, are verified one by one. Each
anchor is then printed with the name of its file, and --from and --since-anchor are not
allowed.`,
		Example: `  robotsproxy audit verify
  robotsproxy audit verify --anchor >> /elsewhere/anchors
  robotsproxy audit verify --since-anchor "$(tail -n 1 /elsewhere/anchors)"
  zcat audit-000000004711.jsonl.gz | robotsproxy audit verify --file - --from 4711`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.out, v.snapshots = cmd.OutOrStdout(), !noSnapshots && !v.anchor
			if cmd.Flags().Changed("since-anchor") {
				var err error
				// It may come from a file, with a newline.
				if v.Since, err = trail.ParseAnchor(strings.TrimSpace(since)); err != nil {
					return cli.UsageErrorf("--since-anchor %q: %w", since, err)
				}
			}
			return f.verify(v, cmd.InOrStdin())
		},
	}
	f.add(cmd)
	f.anyFiles(cmd)
	cmd.Flags().BoolVar(&v.anchor, "anchor", false, "print only the anchor of the last line")
	cmd.Flags().Func("from", "`SEQ` of the first line that must be there", func(text string) (err error) {
		if v.From, err = strconv.ParseUint(text, 10, 64); err != nil || v.From == 0 {
			return errors.New("must be a whole number of at least 1")
		}
		return nil
	})
	cmd.Flags().BoolVar(&noSnapshots, "no-snapshots", false, "do not verify the robots.txt and tdmrep.json files that the decisions are based on")
	cmd.Flags().Func("tsa-ca", "`FILE` with the certificates (PEM) of the time-stamp authorities to trust", func(file string) error {
		v.tsaRoots = x509.NewCertPool()
		return daemon.AddRoots(v.tsaRoots, file)
	})
	cmd.Flags().StringVar(&since, "since-anchor", "", "`ANCHOR` of a line that must still be there")
	return cmd
}

// A verification verifies audits, and prints what it finds.
type verification struct {
	trail.VerifyOptions

	// Print nothing but the anchors.
	anchor bool

	// Also verify the snapshots that the records are based on.
	snapshots bool

	// Authorities whose time-stamps are trusted; nil: none.
	tsaRoots *x509.CertPool
	out      io.Writer
}

// verify verifies the audits that are meant, one after the other, or standard input. The error is
// of all that are not whole.
func (f *auditFlags) verify(v verification, stdin io.Reader) error {
	if v.Since.Seq > 0 && v.From > v.Since.Seq+1 {
		return cli.UsageErrorf("--since-anchor %s needs the lines from seq %d: --from must not be greater", v.Since, v.Since.Seq+1)
	}
	if slices.Contains(f.paths, "-") {
		return v.verify(trail.NewReader(stdinName, stdin), auditFiles{}, "")
	}
	if len(f.paths) > 1 && (v.From > 0 || v.Since.Seq > 0) {
		return cli.UsageErrorf("--from and --since-anchor need exactly one audit")
	}
	audits, err := f.audits()
	if err != nil {
		return err
	}
	var errs []error
	for i, at := range audits {
		name := ""
		if len(f.paths) > 1 {
			name = humanize.Printable(at.file)
		}
		if i > 0 && !v.anchor {
			name = "\n" + name
		}
		r, err := openAudit(at.file)
		if err == nil {
			err = v.verify(r, at, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// verify verifies the audit that r reads, and closes r. name is printed with its findings. at
// contains the directories of the audit; the zero value means that there are none.
func (v verification) verify(r *trail.Reader, at auditFiles, name string) error {
	defer r.Close()
	check, stamps, err := snapshot.NewCheck(), &stampCheck{roots: v.tsaRoots, part: at.part}, error(nil)
	if at != (auditFiles{}) && !v.anchor {
		err = stamps.read(at.stamps)
	}
	if err != nil {
		return err
	}
	v.snapshots = v.snapshots && at.snapshots != ""
	v.Each = func(line []byte, l trail.Link) {
		if v.snapshots {
			check.Add(line, l)
		}
		stamps.add(l)
	}
	res, err := trail.Verify(r, v.VerifyOptions)
	if err != nil {
		return err
	}
	if v.anchor {
		if res.Lines == 0 {
			return fmt.Errorf("%s is empty, so it has no anchor", cmp.Or(name, "the audit"))
		}
		_, err = fmt.Fprintln(v.out, strings.TrimSuffix(res.Anchor().String()+"  "+name, "  "))
		return err
	}
	var found *snapshot.CheckResult
	if v.snapshots {
		compared, err := check.Compare(at.snapshots)
		if err != nil {
			return fmt.Errorf("verify the snapshots: %w (use --no-snapshots to skip them)", err)
		}
		if compared.More > 0 {
			compared.Faults = append(compared.Faults, fmt.Errorf("%s: %s more", at.snapshots, humanize.Count(compared.More, "fault")))
		}
		if len(compared.Faults) > 0 {
			return errors.Join(compared.Faults...)
		}
		found = &compared
	}
	if err := stamps.compare(&res); err != nil {
		return err
	}
	if name != "" {
		name += "\n"
	}
	_, err = io.WriteString(v.out, name+verified(&res, v.VerifyOptions, found, stamps))
	return err
}

// verified formats the results for an audit without a fault. snapshots is nil if they were not
// verified.
func verified(res *trail.Result, known trail.VerifyOptions, snapshots *snapshot.CheckResult, stamps *stampCheck) string {
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
		row("", "the proxy removed older files while they were read: run the command again")
	case res.Pruned:
		row("", "the proxy removed the %s before them, and recorded that", humanize.Count(res.First-1, "line"))
	case res.First > 1 && known.From > 0:
		row("", "not verified, because of --from: the lines before seq %d", res.First)
	case res.First > 1:
		row("", "missing: the %s before them, which the proxy or somebody else removed", humanize.Count(res.First-1, "line"))
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
		row("counted", "%s beyond 100 a second for a client or 1,000 for all, which have no record", humanize.Count(res.Counted, "refusal"))
	}
	if snapshots != nil {
		const removed = ", removed by the proxy (audit.snapshot_max_age, audit.snapshot_max_size) or by somebody else"
		count := func(label *string, format string, n int, thing string) {
			if n > 0 {
				row(*label, format, humanize.Count(n, thing))
				*label = ""
			}
		}
		robots, tdmrep, index := "robots", "tdmrep", "index"
		count(&robots, "%s unchanged", snapshots.Robots.Unchanged, "snapshot")
		count(&robots, "missing: %s"+removed, snapshots.Robots.Missing, "snapshot")
		count(&tdmrep, "%s unchanged", snapshots.TDMRep.Unchanged, "snapshot")
		count(&tdmrep, "missing: %s"+removed, snapshots.TDMRep.Missing, "snapshot")
		count(&index, "%s the same as in the audit", snapshots.Fetches, "line")
		count(&index, "missing: %s about fetches of this audit"+removed, snapshots.Unindexed, "line")
		count(&index, "not verified: %s about fetches that this audit does not have, such as those of another replica or run", snapshots.Unknown, "line")
	}
	if text := stamps.text(); text != "" {
		row("stamps", "%s", text)
	}
	if known.Since.Seq > 0 {
		row("since", "%s: no line up to there was cut off or rewritten, and the chain continues from there", known.Since)
	}
	if known.Since.Seq > 0 || stamps.trusts() {
		row("limit", "lines after that one may have been cut off the end, or changed together with all later hashes: only a newer anchor can show it")
		if stamps.trusts() {
			row("", "lines up to it may have been changed before it got the time-stamp")
		}
	} else {
		row("limit", "lines may have been cut off the end, or changed together with all later hashes: only an anchor can show it (--since-anchor)")
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
