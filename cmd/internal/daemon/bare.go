//go:build bare

package daemon

import (
	"log/slog"
	"os"
	"strings"
)

// This build is only for measuring what the parts cost that a plain proxy does not have. It enforces nothing
// and must not be used as a proxy.

// parts that can be left out: decisions (robots), the wait for a slot and all enforcement (pace), the audit,
// and metrics and dashboard (metrics).
const parts = "robots,pace,audit,metrics"

// isLeftOut reports whether the environment's BARE names a part: all parts if it is not set, none if it is
// empty.
func isLeftOut(part string) bool {
	named, set := os.LookupEnv("BARE")
	if !set {
		named = parts
	}
	return strings.Contains(","+named+",", ","+part+",")
}

func warnBare(log *slog.Logger) {
	var out []string
	for part := range strings.SplitSeq(parts, ",") {
		if isLeftOut(part) {
			out = append(out, part)
		}
	}
	log.Warn("build for benchmarks only, do not use it as a proxy", "left_out", out)
}
