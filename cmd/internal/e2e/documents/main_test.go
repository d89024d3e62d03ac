// Package documents proves that the documentation is correct, end to end:
//   - the commands in README.md and docs/ are run as written, or are marked as not run
//   - each relative link leads to a page and a heading
//   - no page exceeds its maximum length
package documents

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
