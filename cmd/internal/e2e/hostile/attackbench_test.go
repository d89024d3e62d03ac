//go:build linux && !race

package hostile

import (
	"slices"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// The limits of BenchmarkHostile. The aims on an idle machine are 1 s, 2 s and 600 MiB; the limits
// are higher for machines that run other work as well.
const (
	mostKnownP99   = 4 * time.Second // of the honest client's requests to known hosts
	mostUnknownP99 = 8 * time.Second // to hosts that no client has requested before
	mostPeak       = 800 << 20       // bytes of the process
)

// BenchmarkHostile makes attacks larger, and measures what they cost the honest client and the
// proxy's memory. An iteration is a whole attack.
func BenchmarkHostile(b *testing.B) {
	for _, c := range attacks {
		if c.load == 0 {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			e2e.NeedFiles(b, 10_000)
			for b.Loop() {
				a := newArena(b, c.settings, c.load)
				c.run(b, a)
				a.honest.answered(b, leastAsked)
				peak := a.Memory(b, "VmHWM")
				a.wantNoHarm(b)
				known, unknown := p99(a.honest.latency[0]), p99(a.honest.latency[1])
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(known.Milliseconds()), "known-p99-ms")
				b.ReportMetric(float64(unknown.Milliseconds()), "unknown-p99-ms")
				b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
				if known > mostKnownP99 || unknown > mostUnknownP99 || peak > mostPeak {
					b.Errorf("the honest client waited %v for known hosts and %v for others (99 %%), and the proxy took %d MiB; want at most %v, %v, %d MiB",
						known, unknown, peak>>20, mostKnownP99, mostUnknownP99, mostPeak>>20)
				}
			}
		})
	}
}

// p99 gives the 99th percentile of the durations.
func p99(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)*99/100]
}
