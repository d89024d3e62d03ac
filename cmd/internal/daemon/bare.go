//go:build bare

package daemon

import (
	"log/slog"
	"os"
	"strings"
)

// This build is for measuring alone: it shows what the parts cost that a proxy without
// them would not have. As it is, it enforces nothing, and is no proxy to be used.

// parts are those that can be left out: the judgement (robots), the wait for a slot and
// all that is enforced (pace), the audit, and what the operator is shown (metrics).
const parts = "robots,pace,audit,metrics"

// without says whether the environment's BARE names a part: all of them where it is not
// set, none where it is empty.
func without(part string) bool {
	named, set := os.LookupEnv("BARE")
	if !set {
		named = parts
	}
	return strings.Contains(","+named+",", ","+part+",")
}

func tellWithout(log *slog.Logger) {
	var out []string
	for part := range strings.SplitSeq(parts, ",") {
		if without(part) {
			out = append(out, part)
		}
	}
	log.Warn("this build is for measuring, and must not be used", "left_out", out)
}
