// Package audit proves that the audit trail is reliable, end to end:
//   - no refusal is lost by a kill, a full disk or a removed directory
//   - records contain no secrets, and nobody can flush or forge them
//   - it can be read, verified, summarised and explained while it is written
//   - the kept robots.txt files have a maximum size
package audit

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
