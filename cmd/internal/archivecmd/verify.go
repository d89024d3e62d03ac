package archivecmd

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	proxyarchive "robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
)

func verifyCommand() *cobra.Command {
	var f flags
	var auditFile string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify the digests and the fields of all records",
		Long: `Verify the archive: that each record is whole and has the fields that its type needs,
that the digests of blocks and payloads are right, that no ID is twice in a file, and
that records that name others in WARC-Concurrent-To name one that is there. The
originals of revisits may have been removed (archive.max_age): the command counts such
revisits.

If the command finds faults, it prints the first 20 with their places, and the exit
status is 1. That a file is torn is no fault while the proxy writes it.

The command also reads the configured audit or, with --dir, that of --audit: each record
that names a capture must find it, with the digest that the record has. Captures that
are older than the oldest file may have been removed (archive.max_age): the command
counts them.

The digests show damage. They do not show that somebody changed a capture together with
its digests, unless the audit has them (body_sha256).`,
		Example: `  robotsproxy archive verify -c robotsproxy.yaml
  robotsproxy archive verify --dir crawl --audit crawl.jsonl`,
		Args: cli.NoArgs,
		RunE: f.forFiles(func(cmd *cobra.Command, files archive, _ []string) error {
			check := warc.NewCheck()
			for _, file := range files {
				in, err := file.openFile()
				if errors.Is(err, fs.ErrNotExist) {
					// The proxy has removed the file.
					continue
				} else if err != nil {
					return err
				}
				check.File(in.Name(), in, file.open)
				in.Close()
			}
			res := check.Result()
			named, err := f.compareAudit(check, files, auditFile)
			if err != nil {
				return err
			}
			res.Faults, res.More = append(res.Faults, named.faults...), res.More+named.more
			if res.More > 0 {
				res.Faults = append(res.Faults, fmt.Errorf("%s more", humanize.Count(res.More, "fault")))
			}
			if len(res.Faults) > 0 {
				return errors.Join(res.Faults...)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), verified(&res)+named.String())
			return err
		}),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&auditFile, "audit", "", "audit `FILE` whose records name captures, in place of the configured one")
	return cmd
}

// maxNamed bounds namedCaptures.faults.
const maxNamed = 20

// namedCaptures are the captures that the records of an audit name.
type namedCaptures struct {
	found, older int

	// faults are about the first ones that are gone or different, and more counts the others.
	faults []error
	more   int
}

// compareAudit looks for the captures that the records of an audit name. file is that of --audit; "": that of the configuration,
// unless the archive is not that of the configuration, or it has no audit.
func (f *flags) compareAudit(check *warc.Check, files archive, file string) (n namedCaptures, err error) {
	cfg, err := f.Load()
	if err != nil {
		return n, err
	}
	named := file != ""
	switch {
	case named:
	case f.dir != "" || cfg.Audit.File == "-" || cfg.Audit.FIFO:
		return n, nil
	default:
		state, err := cfg.State(os.Getenv)
		if err != nil {
			return n, err
		}
		file = cmp.Or(cfg.Audit.File, filepath.Join(state, cli.AuditName))
	}
	r, err := trail.Open(file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	defer r.Close()
	oldest := files.oldest()
	for {
		line, err := r.Next()
		switch {
		case err == io.EOF:
			return n, nil
		case errors.Is(err, trail.ErrTorn), errors.Is(err, trail.ErrTooLong), errors.Is(err, trail.ErrRemoved):
			continue
		case err != nil:
			return n, err
		}
		// Within a string, the quotes would be escaped.
		if !bytes.Contains(line.Text, []byte(`,"warc":{`)) {
			continue
		}
		e, err := trail.Read(line.Text)
		if err != nil {
			return n, fmt.Errorf("%s: line %d: %w", line.File, line.Number, err)
		}
		n.compare(check, &e, oldest)
	}
}

// oldest returns when the oldest complete file was begun, by its name; zero: no file is one of the proxy's.
func (a archive) oldest() (oldest time.Time) {
	for _, f := range a {
		if began, ok := proxyarchive.Began(f.name()); ok && !f.open && (oldest.IsZero() || began.Before(oldest)) {
			oldest = began
		}
	}
	return oldest
}

// compare looks for the capture that a record names. oldest is when the oldest file was begun.
func (n *namedCaptures) compare(check *warc.Check, e *trail.Entry, oldest time.Time) {
	// A malformed digest is none.
	sum, _ := hex.DecodeString(e.BodySHA256)
	match := check.Find(e.WARC.ID, sum)
	began, named := proxyarchive.Began(e.WARC.File)
	what := ""
	switch {
	case match >= warc.Unknown:
		n.found++
	case match == warc.Gone && named && began.Before(oldest):
		n.older++
	case match == warc.Other:
		what = "has another payload than the record says"
	default:
		what = "is gone"
	}
	switch {
	case what == "":
	case len(n.faults) == maxNamed:
		n.more++
	default:
		n.faults = append(n.faults, fmt.Errorf("seq %d of the audit: the capture %.100q in %.100q %s", e.Seq, e.WARC.ID, e.WARC.File, what))
	}
}

func (n *namedCaptures) String() (text string) {
	if n.found > 0 {
		text = fmt.Sprintf("%-8s %s of the audit, each with its capture\n", "audit", humanize.Count(n.found, "record"))
	}
	if n.older > 0 {
		text += fmt.Sprintf("%-8s %s of captures older than the oldest file, which the proxy (archive.max_age, "+
			"archive.max_total_size) or somebody else removed\n", "older", humanize.Count(n.older, "record"))
	}
	return text
}

// verified formats the result for an archive without a fault.
func verified(res *warc.CheckResult) string {
	var b strings.Builder
	b.WriteString("Each record is whole, has its fields, and no digest is wrong.\n")
	fmt.Fprintf(&b, "%-8s %s in %s\n", "records", humanize.Count(res.Records, "record"), humanize.Count(res.Files, "file"))
	fmt.Fprintf(&b, "%-8s %s right\n", "digests", humanize.Count(res.Digests, "digest"))
	for _, row := range []struct {
		label, thing, text string
		n                  int
	}{
		{"unknown", "digest", "of algorithms that this command does not know, not verified", res.Unknown},
		{"bare", "record", "without a digest, not verified", res.Bare},
		{"missing", "revisit", "without the original, which the proxy (archive.max_age, archive.max_total_size) or somebody else removed",
			res.Missing},
		{"blank", "record", "in place of ones that were erased (robotsproxy audit erase)", res.Blank},
		{"shared", "record", "in gzip members with other records: readers cannot seek to them", res.Shared},
		{"ignored", "reference", "to other records, not verified, since too many others name records that are not there", res.Ignored},
		{"growing", "file", "whose last record the proxy is writing", res.Growing},
		{"cut", "file", "that ends in the middle of an exchange, as after a crash", res.Cut},
	} {
		if row.n > 0 {
			fmt.Fprintf(&b, "%-8s %s %s\n", row.label, humanize.Count(row.n, row.thing), row.text)
		}
	}
	return b.String()
}
