package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileFlags are the flags, by name, for which the shell offers only files with these suffixes. For other flags it offers all
// files.
var fileFlags = map[string][]string{
	"config": {"yaml", "yml"},
	"report": {"html", "json", "csv", "txt"},
}

// completeFiles makes the shell complete files and directories for the flags of cmd that name one. It offers none for a command
// without arguments.
func completeFiles(cmd *cobra.Command) {
	for name, endings := range fileFlags {
		if cmd.Flags().Lookup(name) != nil {
			must(cmd.MarkFlagFilename(name, endings...))
		}
	}
	if cmd.Flags().Lookup("state") != nil {
		OfferDirs(cmd, "state")
	}
	if cmd.Args != nil && cmd.ValidArgsFunction == nil && cmd.Args(cmd, []string{"a"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// Offer makes the shell complete the values of a flag.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// OfferDirs makes the shell complete directories for a flag.
func OfferDirs(cmd *cobra.Command, flag string) { must(cmd.MarkFlagDirname(flag)) }

// OfferList is Offer for a flag that takes several values separated by commas.
func OfferList(cmd *cobra.Command, flag string, values ...string) {
	offer := func(_ *cobra.Command, _ []string, typed string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		for _, v := range values {
			if !slices.Contains(strings.Split(before, ","), v) {
				all = append(all, before+v)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	must(cmd.RegisterFlagCompletionFunc(flag, offer))
}

// plainUsage removes the backquotes from the usage text of all flags. The help uses them to name a value, but a shell would show
// them.
func plainUsage(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, sub := range cmd.Commands() {
		plainUsage(sub)
	}
}

// must panics on an error that only a bug can cause: a flag that does not exist.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
