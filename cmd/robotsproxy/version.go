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
	number, commit := "devel", ""
	if info != nil {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			number = v
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if rev := settings["vcs.revision"]; rev != "" {
			commit = ", commit " + rev
			if settings["vcs.modified"] == "true" {
				commit += " with changes"
			}
		}
	}
	return fmt.Sprintf("robotsproxy %s (%s %s/%s%s)", number, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
}
