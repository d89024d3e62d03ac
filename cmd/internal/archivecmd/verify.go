package archivecmd

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/archive/warc"
)

func verifyCommand() *cobra.Command {
	var f flags
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

The digests show damage. They do not show that somebody changed a record together with
its digests.`,
		Example: `  robotsproxy archive verify -c robotsproxy.yaml`,
		Args:    cli.NoArgs,
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
			if res.More > 0 {
				res.Faults = append(res.Faults, fmt.Errorf("%s more", humanize.Count(res.More, "fault")))
			}
			if len(res.Faults) > 0 {
				return errors.Join(res.Faults...)
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), verified(&res))
			return err
		}),
	}
	f.add(cmd)
	return cmd
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
