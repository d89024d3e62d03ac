// Package documents proves that the documentation is true, end to end:
//   - the commands in README.md and docs/ are run as they stand, or are marked as not run
//   - each relative link leads to a page and a heading
//   - no page is longer than people read
package documents

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
