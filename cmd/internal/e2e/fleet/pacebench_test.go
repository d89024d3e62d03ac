//go:build linux && !race

package fleet

import (
	"slices"
	"testing"
	"time"
)

// Of a fleet's requests, a machine that stands still makes a few late: the longest gaps may have
// mostLate more each, and all others are no later than that together.
const (
	longest  = 3
	mostLate = 2 * time.Second
)

// BenchmarkFleetPace has three replicas send as many requests as a Crawl-delay permits, and
// measures how late the requests are.
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
