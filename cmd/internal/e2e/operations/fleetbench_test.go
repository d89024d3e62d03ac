//go:build linux && !race

package operations

import (
	"slices"
	"testing"
	"time"
)

// A machine that pauses makes some requests of a fleet late. Each of the longest gaps may be
// mostLate longer, and all others together may be late by no more than that.
const (
	longest  = 3
	mostLate = 2 * time.Second
)

// BenchmarkFleetPace sends as many requests as a Crawl-delay permits through three
// replicas, and measures how late the requests are.
func BenchmarkFleetPace(b *testing.B) {
	const requests, delay = 40, 500 * time.Millisecond
	var late time.Duration
	for try := 0; try == 0 || try < 2 && late > mostLate; try++ {
		apart := onePace(b, requests, delay)
		slices.Sort(apart)
		late = 0
		for i, gap := range apart {
			late += gap - delay
			if i >= len(apart)-longest {
				late -= min(gap-delay, mostLate)
			}
		}
		b.ReportMetric(float64(apart[0])/float64(time.Millisecond), "min-gap-ms")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(late)/float64(time.Millisecond), "late-ms")
	if late > mostLate {
		b.Errorf("the requests were late by %v, want at most %v", late, mostLate)
	}
}
