// Package pacing proves that each host is asked only as often as it may be, end to end:
//   - crawl delays, rates and concurrency limits hold at the origin, by the arrival of each request
//   - clients take turns; those who leave free their places; Retry-After is true
//   - back-off after 429 and 503, and less load on slow hosts
//   - a restart or another address of the host is no way around a delay
//   - BenchmarkPace: the pace under load
package pacing

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
