// Package pacing proves that each host gets requests only as often as permitted, end to end:
//   - crawl delays, rates and concurrency limits hold at the origin, by the arrival of each request
//   - clients take turns; clients that leave free their slots; Retry-After is correct
//   - back-off after 429 and 503, and less load on slow hosts
//   - neither a restart nor another address of the host shortens a delay
//   - BenchmarkPace: the pace under load
package pacing

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
