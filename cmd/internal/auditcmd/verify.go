package auditcmd

import (
	"cmp"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

func auditVerifyCommand() *cobra.Command {
	var f verifyFlags
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
changed together with all later hashes. A checkpoint can, if it is kept where nobody who
can change the audit can change it. The command says first how many lines are covered by
one. It compares the lines with the tree beside the audit, and with all checkpoints that
it knows: those in the state directory and in the files of the configuration, those with
a time-stamp, and those in the FILEs of --checkpoint, each of which must have one of this
audit. With --key, a checkpoint counts only if one of the public keys in FILE has signed
it; without it, the key in the state directory is used, if it can be read.

An anchor is the number and the hash of a line. --anchor prints that of the last line.
With --since-anchor, that line must still be there, and the chain must continue from it.

The command also verifies the robots.txt and tdmrep.json files that the decisions are
based on: the bytes of each file by their SHA-256, and its entry in the index by the
line that the audit has of the fetch. --no-snapshots leaves this out.

With --tsa-ca, the signature of each time-stamp must be that of an authority in FILE;
without it, signatures of time-stamps are not verified.

With --file -, the command reads one file from standard input, and no snapshots.
A FILE may also be a bundle (audit bundle), which needs nothing else.

Several files, such as those of the replicas of a fleet, are verified one by one. Each
anchor is then printed with the name of its file, and --from and --since-anchor are not
allowed.`,
		Example: `  robotsproxy audit verify
  robotsproxy audit verify --checkpoint /elsewhere/checkpoints --key audit.pub
  robotsproxy audit verify --anchor >> /elsewhere/anchors
  robotsproxy audit verify --since-anchor "$(tail -n 1 /elsewhere/anchors)"
  robotsproxy audit verify --key audit.pub site.zip
  zcat audit-000000004711.jsonl.gz | robotsproxy audit verify --file - --from 4711`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.verifyAll(cmd) },
	}
	f.add(cmd)
	f.anyFiles(cmd)
	return cmd
}

// verifyFlags are the flags of audit verify.
type verifyFlags struct {
	auditFlags
	verification
	since       string
	noSnapshots bool
	trusted     publicKeys
}

// publicKeys are those in the files that a flag names.
type publicKeys struct {
	lists keyLists
	text  string
}

// addKeys adds the flag --key.
func addKeys(flags *pflag.FlagSet, to *publicKeys, usage string) {
	flags.Func("key", usage, func(file string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		keys, err := checkpoint.ParsePublic(text)
		if err == nil {
			to.lists, to.text = append(to.lists, keys), to.text+strings.TrimSpace(string(text))+"\n"
		}
		return err
	})
}

func (f *verifyFlags) add(cmd *cobra.Command) {
	f.auditFlags.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.anchor, "anchor", false, "print only the anchor of the last line")
	flags.Func("from", "`SEQ` of the first line that must be there", func(text string) (err error) {
		if f.From, err = strconv.ParseUint(text, 10, 64); err != nil || f.From == 0 {
			return errors.New("must be a whole number of at least 1")
		}
		return nil
	})
	flags.BoolVar(&f.noSnapshots, "no-snapshots", false,
		"do not verify the robots.txt and tdmrep.json files that the decisions are based on")
	flags.Func("tsa-ca", "`FILE` with the certificates (PEM) of the time-stamp authorities to trust", func(file string) error {
		f.tsaRoots = x509.NewCertPool()
		return daemon.AddRoots(f.tsaRoots, file)
	})
	flags.StringArrayVar(&f.checkpoints, "checkpoint", nil, "`FILE` with checkpoints that were kept elsewhere; repeat it for more")
	addKeys(flags, &f.trusted, "`FILE` with public keys to trust, as audit key --public prints them; repeat it for more")
	flags.StringVar(&f.since, "since-anchor", "", "`ANCHOR` of a line that must still be there")
}

// A verification verifies audits, and prints what it finds.
type verification struct {
	trail.VerifyOptions

	// anchor prints nothing but the anchors.
	anchor bool

	// snapshots also verifies the snapshots that the records are based on.
	snapshots bool

	// checkpoints are the files with checkpoints that the command line names, and keys the public keys that are trusted; nil:
	// those of the key in the state directory, if it can be read.
	checkpoints []string
	keys        keyLists

	// retired are public keys of the audits besides those in the state directory.
	retired keyLists

	// tsaRoots are the certificates of authorities whose time-stamps are trusted; nil: none.
	tsaRoots *x509.CertPool
	out      io.Writer
}

// verifyAll verifies the audits that are meant, one after the other, or standard input. The error is
// of all that are not whole.
func (f *verifyFlags) verifyAll(cmd *cobra.Command) (err error) {
	v := f.verification
	v.keys = f.trusted.lists
	v.out, v.snapshots = cmd.OutOrStdout(), !f.noSnapshots && !v.anchor
	if f.Flags.Changed("since-anchor") {
		// It may come from a file, with a newline.
		if v.Since, err = trail.ParseAnchor(strings.TrimSpace(f.since)); err != nil {
			return cli.UsageErrorf("--since-anchor %q: %w", f.since, err)
		}
	}
	if v.Since.Seq > 0 && v.From > v.Since.Seq+1 {
		return cli.UsageErrorf("--since-anchor %s needs the lines from seq %d: --from must not be greater", v.Since, v.Since.Seq+1)
	}
	switch {
	case slices.Contains(f.paths, "-"):
		return v.verifyStdin(cmd.InOrStdin())
	case slices.ContainsFunc(f.paths, isBundle):
		return f.verifyBundles(&v)
	case len(f.paths) > 1 && (v.From > 0 || v.Since.Seq > 0):
		return cli.UsageErrorf("--from and --since-anchor need exactly one audit")
	}
	audits, err := f.audits()
	if err != nil {
		return err
	}
	known, err := v.readCheckpoints(audits)
	if err != nil {
		return err
	}
	var errs []error
	var verified []verifiedTrail
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
			var found verifiedTrail
			found, err = v.verify(r, at, known, name)
			verified = append(verified, found)
		}
		if err != nil && len(audits) > 1 {
			if other := swapped(at, audits); other != "" {
				err = fmt.Errorf("%w%s", err, other)
			}
		}
		errs = append(errs, err)
	}
	if errors.Join(errs...) == nil && !v.anchor {
		errs = append(errs, known.unmatched())
		if len(audits) > 1 {
			errs = append(errs, compareReplicas(verified, known))
		}
	}
	return errors.Join(errs...)
}

// verifyStdin verifies the audit in r.
func (v verification) verifyStdin(r io.Reader) error {
	known, err := v.readCheckpoints(nil)
	if err != nil {
		return err
	}
	if _, err := v.verify(trail.NewReader(stdinName, r), auditFiles{}, known, ""); err != nil {
		return err
	}
	return known.unmatched()
}

// verify verifies the audit that r reads, and closes r. name is printed with its findings. at
// contains the directories of the audit; the zero value means that there are none. known are the
// checkpoints of all audits that are verified.
func (v verification) verify(r *trail.Reader, at auditFiles, known *knownCheckpoints, name string) (t verifiedTrail, err error) {
	defer r.Close()
	check, stamps := snapshot.NewCheck(), &stampCheck{roots: v.tsaRoots, part: at.part}
	if at.anchors != "" && !v.anchor {
		if err := stamps.read(at.anchors); err != nil {
			return t, err
		}
	}
	covered, err := newCoverageCheck(at, known)
	if err != nil {
		return t, err
	}
	defer covered.close()
	v.snapshots = v.snapshots && at.snapshots != ""
	v.Each = func(line []byte, l trail.Link) {
		if v.snapshots {
			check.Add(line, l)
		}
		stamps.add(l)
		covered.Add(line, l)
	}
	res, err := trail.Verify(r, v.VerifyOptions)
	if err != nil {
		return t, err
	}
	if v.anchor {
		if res.Lines == 0 {
			return t, fmt.Errorf("%s is empty, so it has no anchor", cmp.Or(name, "the audit"))
		}
		_, err = fmt.Fprintln(v.out, strings.TrimSuffix(res.Anchor().String()+"  "+name, "  "))
		return t, err
	}
	var found *snapshot.CheckResult
	if v.snapshots {
		compared, err := check.Compare(at.snapshots)
		if err != nil {
			return t, fmt.Errorf("verify the snapshots: %w (use --no-snapshots to skip them)", err)
		}
		if compared.More > 0 {
			compared.Faults = append(compared.Faults, fmt.Errorf("%s: %s more", at.snapshots, humanize.Count(compared.More, "fault")))
		}
		if len(compared.Faults) > 0 {
			return t, errors.Join(compared.Faults...)
		}
		found = &compared
	}
	if err := errors.Join(stamps.compare(&res), covered.compare(&res)); err != nil {
		return t, err
	}
	t = verifiedTrail{at.file, res.Last, res.From, res.To, slices.Collect(maps.Keys(covered.Origins))}
	if name != "" {
		fmt.Fprintln(v.out, name)
	}
	return t, verifiedAudit{&res, v.VerifyOptions, found, stamps, covered}.write(v.out)
}

//go:embed verify.tmpl
var resultText string

// A verifiedAudit is an audit without a fault, as verify.tmpl describes it.
type verifiedAudit struct {
	*trail.Result
	Known trail.VerifyOptions

	// Snapshots is nil if they were not verified.
	Snapshots *snapshot.CheckResult
	Stamps    *stampCheck
	Covered   *coverageCheck
}

// Before returns the number of lines before the first one.
func (a verifiedAudit) Before() uint64 { return a.First - 1 }

// MoreEvents returns the number of events that are not listed.
func (a verifiedAudit) MoreEvents() int { return a.Events - len(a.ListedEvents) }

// Stamped reports whether a time-stamp proves that a line was there.
func (a verifiedAudit) Stamped() bool { return a.Stamps.Count > 0 && a.Stamps.Trusted() }

func (a verifiedAudit) write(w io.Writer) error { return writeRows(w, resultText, a) }

// writeRows prints what a template says of data. Each row has a label, which is left out if the row before it has the same.
func writeRows(w io.Writer, text string, data any) error {
	t, err := template.New("").Funcs(template.FuncMap{
		"count": humanize.Count, "number": humanize.Number, "printable": humanize.Printable,
		"day":   day,
		"event": func(e trail.Entry) string { return eventText(&e) },
	}).Parse(text)
	if err != nil {
		return err
	}
	var rows, b strings.Builder
	if err := t.Execute(&rows, data); err != nil {
		return err
	}
	before := ""
	for row := range strings.Lines(rows.String()) {
		label, text, found := strings.Cut(row, ": ")
		switch {
		case !found:
			b.WriteString(row)
			continue
		case label == before:
			label = ""
		default:
			before = label
		}
		fmt.Fprintf(&b, "%-7s %s", label, text)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func day(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.RFC3339)
}
