package main

import (
	"io"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/version"
)

func versionCommand() *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Example: `  robotsproxy version
  robotsproxy version -v`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := version.Line() + "\n"
			if verbose {
				text += version.Modules()
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print the modules that the program was built from, one a line")
	return cmd
}
