// Package archivecmd implements the command archive: it lists, prints, verifies and indexes the
// WARC files of an archive. It reads files that the proxy may be writing, takes no lock and
// changes nothing.
package archivecmd

import "github.com/spf13/cobra"

// Command returns the cobra command with its subcommands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Read the WARC archive: list, print, verify and index it",
		Long: `Read the WARC files in archive.dir: list, print, verify and index them. With --dir, the
commands read the WARC files of any other directory, whoever wrote them. They take no
lock, so the proxy can write the archive at the same time.`,
		Example: `  robotsproxy archive list -c robotsproxy.yaml
  robotsproxy archive get --dir crawl https://example.com/ > page.html`,
	}
	cmd.AddCommand(listCommand(), getCommand(), verifyCommand(), indexCommand())
	return cmd
}
