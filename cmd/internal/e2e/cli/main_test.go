// Package cli tests the commands other than serve and run, and the documentation, end to end:
//   - wrong configurations and missing files end with one clear line
//   - check agrees with the vectors of robots/testdata
//   - doctor finds what prevents a client from using the proxy
//   - ca and health
//   - the commands in README.md and docs/ are run as written, or are marked as not run; their links lead
//     somewhere, and no page exceeds its maximum length
package cli

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
