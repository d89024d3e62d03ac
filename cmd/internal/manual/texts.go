package manual

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
)

// exitStatuses are those that all commands have. A command with others says so in its help.
var exitStatuses = []struct {
	status int
	means  string
}{
	{0, "The command succeeded."},
	{cli.ExitFailure, "The command failed. Standard error says why."},
	{cli.ExitUsage, "The command line is wrong. Standard error says how."},
}

// commands returns cmd and all commands below it, without those that cobra adds.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

// dashed returns the command's path with dashes, as man names pages: robotsproxy-ca-show.
func dashed(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// usage returns the usage lines of the command.
func usage(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND"
	}
	hideHelp(cmd)
	return cmd.UseLine()
}

// flags returns the help of the command's own flags, without --help.
func flags(cmd *cobra.Command) string {
	hideHelp(cmd)
	return cmd.LocalFlags().FlagUsages()
}

// hideHelp hides the flag --help, which each command has.
func hideHelp(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().Lookup("help").Hidden = true
}

// long returns the description of the command.
func long(cmd *cobra.Command) string {
	return cmp.Or(cmd.Long, cmd.Short+".")
}
