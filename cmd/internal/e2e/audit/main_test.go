// Package audit proves that the audit trail can be relied on, end to end:
//   - no refusal is lost by a kill, a full disk or a directory that is taken away
//   - records hold no secrets, and nobody can flush or forge them
//   - it is read, verified, summed up and explained while it is written
//   - ceilings of the kept robots.txt files
package audit

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
