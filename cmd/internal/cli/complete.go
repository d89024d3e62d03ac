package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileFlags are the flags, by their names, for which the shell offers files of these
// endings alone. All files are what it offers where nobody says what.
var fileFlags = map[string][]string{
	"config": {"yaml", "yml"},
	"report": {"html", "json", "csv", "txt"},
}

// completeFiles has the shell complete what names a file or directory in the flags of
// cmd. Where a command takes no arguments none are offered.
func completeFiles(cmd *cobra.Command) {
	for name, endings := range fileFlags {
		if cmd.Flags().Lookup(name) != nil {
			must(cmd.MarkFlagFilename(name, endings...))
		}
	}
	if cmd.Flags().Lookup("state") != nil {
		must(cmd.MarkFlagDirname("state"))
	}
	if cmd.Args != nil && cmd.ValidArgsFunction == nil && cmd.Args(cmd, []string{"a"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// Offer has the shell complete the values of a flag.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// OfferList does so for a flag that takes several, with commas: of the last one, behind
// those that are there.
func OfferList(cmd *cobra.Command, flag string, values ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		for _, v := range values {
			if !slices.Contains(strings.Split(before, ","), v) {
				all = append(all, before+v)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}))
}

// plainUsage takes the marks out of what the flags of cmd, and of all below it, say of
// themselves: the help makes the name of a value of them, but a shell would show them.
func plainUsage(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, sub := range cmd.Commands() {
		plainUsage(sub)
	}
}

// must is for what fails by our own fault alone: a flag that is none.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
