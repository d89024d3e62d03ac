// Package manual prints the reference of the command line from the commands themselves: a page in Markdown, and man pages. It also
// prints the reference of the configuration.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
)

//go:generate sh -c "go run robotsproxy/cmd/robotsproxy docs cli >../../../docs/cli.md"

// Command returns the command docs. It describes the tree that it is part of.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Print the reference of commands and configuration",
		Example: `  robotsproxy docs man /usr/local/share/man/man1
  robotsproxy docs cli > cli.md`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "cli",
		Short:   "Print the reference of all commands, in Markdown",
		Example: `  robotsproxy docs cli > cli.md`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(Markdown(cmd.Root()))
			return err
		},
	}, &cobra.Command{
		Use:     "config",
		Short:   "Print the reference of all configuration keys, in Markdown",
		Example: `  robotsproxy docs config > configuration.md`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Reference())
			return err
		},
	}, manCommand())
	return cmd
}

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a man page for each command",
		Long: `Write a man page (section 1) for each command into the directory DIR, which must
exist.`,
		Example: `  robotsproxy docs man /usr/local/share/man/man1`,
		Args:    oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, c := range commands(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], dashed(c)+".1"), manPage(c), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func oneDirectory(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected exactly one directory, got %d arguments", len(args))
	}
	return nil
}

const markdownHead = `# Command-line reference

<!-- Generated: go run ./cmd/robotsproxy docs cli > docs/cli.md -->

` + "`robotsproxy COMMAND --help` prints the same texts. `robotsproxy docs man DIR` writes them as man pages. " +
	"[configuration.md](configuration.md) has the keys of the file that `-c` names.\n"

// Markdown returns a page that describes all commands.
func Markdown(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(markdownHead + "\n## Exit statuses\n\n| status | meaning |\n|---|---|\n")
	for _, e := range exitStatuses {
		fmt.Fprintf(&b, "| %d | %s |\n", e.status, e.means)
	}
	b.WriteString("\nCommands that have other exit statuses name them below.\n\n## Commands\n\n")
	for _, c := range commands(root) {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", c.CommandPath(), dashed(c), c.Short)
	}
	for _, c := range commands(root) {
		fmt.Fprintf(&b, "\n## %s\n", c.CommandPath())
		block(&b, long(c))
		block(&b, usage(c))
		if text := flags(c); text != "" {
			b.WriteString("\nFlags:\n")
			block(&b, text)
		}
		if c.Example != "" {
			b.WriteString("\nExamples:\n")
			block(&b, c.Example)
		}
	}
	return b.Bytes()
}

// block writes a code block. Help texts are indented and aligned for a terminal.
func block(b *bytes.Buffer, text string) {
	fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.Trim(text, "\n"))
}
