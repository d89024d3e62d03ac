package archivecmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
)

func listCommand() *cobra.Command {
	var f flags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the WARC files with their records",
		Long: `List the WARC files in the order of their names: the size, the number of records, the
times of the first and the last one, and how many records of each type there are. The
names of files that the proxy is writing end with .open.`,
		Example: `  robotsproxy archive list -c robotsproxy.yaml
  robotsproxy archive list --dir crawl --json`,
		Args: cli.NoArgs,
		RunE: f.forFiles(func(cmd *cobra.Command, files archive, _ []string) error {
			if asJSON {
				return list(files, func(l listed) error { return cli.WriteJSON(cmd.OutOrStdout(), l) })
			}
			return listText(cmd.OutOrStdout(), files)
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// A listed is what list says about a file.
type listed struct {
	File    string         `json:"file"`
	Open    bool           `json:"open,omitempty"`
	Bytes   int64          `json:"bytes"`
	Records int            `json:"records"`
	From    time.Time      `json:"from,omitzero"`
	To      time.Time      `json:"to,omitzero"`
	Types   map[string]int `json:"types"`
}

// maxTypes bounds listed.Types. The format defines eight types.
const maxTypes = 20

// count counts a record of a type. Types that the format does not define are "other" if there are
// many.
func (l *listed) count(kind string) {
	kind = humanize.Clip(cmp.Or(kind, "other"), humanize.MaxBrief)
	if l.Types[kind] == 0 && len(l.Types) >= maxTypes {
		kind = "other"
	}
	l.Types[kind]++
}

// list reads all files, and hands over what is in each. The error names all files that cannot be
// read to their ends.
func list(files archive, print func(listed) error) error {
	var errs []error
	for _, file := range files {
		in, err := file.openFile()
		if errors.Is(err, fs.ErrNotExist) {
			// The proxy has removed the file.
			continue
		} else if err != nil {
			return err
		}
		info, err := in.Stat()
		in.Close()
		if err != nil {
			return err
		}
		l := listed{File: info.Name(), Open: strings.HasSuffix(info.Name(), openExt), Bytes: info.Size(), Types: map[string]int{}}
		for rec, err := range file.records(0) {
			if err != nil {
				errs = append(errs, err)
				break
			}
			l.Records++
			l.count(rec.Type())
			at, err := rec.Date()
			if err != nil {
				continue
			}
			if l.From.IsZero() || at.Before(l.From) {
				l.From = at
			}
			if at.After(l.To) {
				l.To = at
			}
		}
		if err := print(l); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// listText prints the files as a table.
func listText(out io.Writer, files archive) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tSIZE\tRECORDS\tFROM\tTO\tTYPES")
	err := list(files, func(l listed) error {
		var types []string
		for _, name := range slices.Sorted(maps.Keys(l.Types)) {
			types = append(types, humanize.Number(l.Types[name])+" "+humanize.Word(name))
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", humanize.Printable(l.File), humanize.Bytes(l.Bytes),
			humanize.Number(l.Records), day(l.From), day(l.To), strings.Join(types, ", "))
		return err
	})
	return errors.Join(table.Flush(), err)
}

// day writes a time for people.
func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
