package explain

import (
	"strings"

	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
)

// Budget describes a budget; "": it limits nothing.
func Budget(b policy.Budget) string {
	var parts []string
	if b.Requests > 0 {
		parts = append(parts, humanize.Count(b.Requests, "request"))
	}
	if b.Bytes > 0 {
		parts = append(parts, humanize.Bytes(b.Bytes))
	}
	if len(parts) == 0 {
		return ""
	}
	return "at most " + strings.Join(parts, " and ") + " in " + humanize.Duration(b.Per)
}
