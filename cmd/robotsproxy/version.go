package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  robotsproxy version`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version(info))
			return err
		},
	}
}

// version is one line of what the build knows of itself; info may be nil.
func version(info *debug.BuildInfo) string {
	number, commit := built(info)
	if commit != "" {
		commit = ", commit " + commit
	}
	return fmt.Sprintf("robotsproxy %s (%s %s/%s%s)", number, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
}

// built is the number of the version, and the commit where that is known; info
// may be nil.
func built(info *debug.BuildInfo) (number, commit string) {
	number = "devel"
	if info == nil {
		return number, ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		number = v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit = settings["vcs.revision"]
	if commit != "" && settings["vcs.modified"] == "true" {
		commit += " with changes"
	}
	return number, commit
}
