// Package version tells which version and commit of this program runs.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// A build without its repository, such as that of an image, sets these variables with the linker:
//
//	-ldflags '-X robotsproxy/cmd/internal/version.stampedVersion=v1.2.3 -X robotsproxy/cmd/internal/version.stampedCommit=abc'
//
// They take precedence over what Go has recorded in the build.
var stampedVersion, stampedCommit string

// Line returns one line that names this program, its version and its platform.
func Line() string {
	info, _ := debug.ReadBuildInfo()
	return version(info)
}

// Modules returns a line for each module that this program was built from, with its version.
func Modules() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	var text strings.Builder
	for _, m := range info.Deps {
		fmt.Fprintf(&text, "%s %s\n", m.Path, m.Version)
	}
	return text.String()
}

// Product returns the product of this program for a User-Agent header (RFC 9110 10.1.5).
func Product() string {
	info, _ := debug.ReadBuildInfo()
	number, _ := Of(info)
	return "robotsproxy/" + number
}

// version formats the build information; info may be nil.
func version(info *debug.BuildInfo) string {
	number, commit := Of(info)
	if commit != "" {
		commit = ", commit " + commit
	}
	return fmt.Sprintf("robotsproxy %s (%s %s/%s%s)", number, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
}

// Of returns the version and, if known, the commit; info may be nil.
func Of(info *debug.BuildInfo) (number, commit string) {
	settings := map[string]string{}
	if info != nil {
		number = strings.Trim(info.Main.Version, "()")
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	commit = settings["vcs.revision"]
	if commit != "" && settings["vcs.modified"] == "true" {
		commit += " with changes"
	}
	return cmp.Or(stampedVersion, number, "devel"), cmp.Or(stampedCommit, commit)
}
