package main

import "github.com/spf13/cobra"

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

// must is for what fails by our own fault alone: a flag that is none.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
