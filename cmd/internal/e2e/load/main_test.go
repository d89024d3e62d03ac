// Package load measures what the proxy needs under load, end to end:
//   - memory when idle and with many large robots.txt files
//   - benchmarks of start, growth, volume, HTTP/2 and hours of use
package load

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
