// Package hostile proves that hostile clients and origins harm nobody else, end to end:
//   - each attack of TestHostile runs beside an honest client, whose requests all succeed
//   - responses that the proxy must hold take no more memory than their client may have
//   - disguised addresses, redirects into the network, decompression bombs
//   - tables, files and connections are bounded
//   - BenchmarkHostile: latency and memory during the attacks
package hostile

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
