package archivecmd

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/archive/warc"
)

func indexCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Print an index of the archive (CDXJ)",
		Long: `Print an index of all captures in the format CDXJ, sorted, as pywb and other tools read
it: the key of the URL (SURT), the time, and a JSON object with the file and the
offset of the record. A file that the proxy is writing has its later name in the index.

The command holds the whole index in memory, about 300 bytes for each capture.`,
		Example: `  robotsproxy archive index -c robotsproxy.yaml > index.cdxj`,
		Args:    cli.NoArgs,
		RunE: f.forFiles(func(cmd *cobra.Command, files archive, _ []string) error {
			lines, err := index(files)
			for _, line := range lines {
				if _, err := cmd.OutOrStdout().Write(line); err != nil {
					return err
				}
			}
			return err
		}),
	}
	f.add(cmd)
	return cmd
}

// index returns the sorted lines of the index. The error says what the index lacks.
func index(files archive) (lines [][]byte, err error) {
	var errs []error
	for _, file := range files {
		shared := 0
		for rec, err := range file.records(0) {
			if err != nil {
				errs = append(errs, err)
				break
			}
			if !rec.IsCapture() {
				continue
			}
			if _, err := rec.Date(); err != nil {
				errs = append(errs, file.wrap(fmt.Errorf("record at offset %d: %w", rec.Offset, err)))
				continue
			}
			c, err := rec.Capture(file.name())
			switch {
			// The next round gets the error of the block again.
			case err != nil:
			case c.Length == 0:
				shared++
			default:
				line, err := indexLine(c)
				if err != nil {
					return nil, err
				}
				lines = append(lines, line)
			}
		}
		if shared > 0 {
			captures := humanize.Count(shared, "capture")
			errs = append(errs, file.wrap(fmt.Errorf("no index can name %s in a gzip member with other records", captures)))
		}
	}
	slices.SortFunc(lines, bytes.Compare)
	return lines, errors.Join(errs...)
}

// indexLine returns the line of a capture.
func indexLine(c warc.Capture) ([]byte, error) {
	var line bytes.Buffer
	line.WriteString(c.Key + " " + c.Time.UTC().Format("20060102150405") + " ")
	err := cli.WriteJSON(&line, c)
	return line.Bytes(), err
}
