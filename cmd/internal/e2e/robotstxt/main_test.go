// Package robotstxt proves that every request is judged by the origin's robots.txt, end to end:
//   - refusals name the rule, its line, the group and the file
//   - missing, unreachable, redirected and broken files mean what RFC 9309 and the dialects say
//   - the file is fetched once, under the agent that robots.fetch_as names, and each fetch is recorded
//   - entries of hosts, identity, quotas, the readings of a path, and usage preferences
package robotstxt

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
