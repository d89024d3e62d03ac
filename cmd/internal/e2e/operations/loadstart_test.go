//go:build linux && !race

package operations

import (
	"fmt"
	"os"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestMemoryAtRest: an idle proxy with the default configuration has less than 8 MiB of its own. How much of
// its binary is in memory as well, up to 22 MiB, is for the system to decide.
func TestMemoryAtRest(t *testing.T) {
	const most = 8 << 20
	p := e2e.StartProxy(t, nil)
	var got int64
	testkit.Eventually(t, fmt.Sprintf("less than %d MiB in memory", most>>20), func() bool {
		got = p.Memory(t, "RssAnon")
		return got < most
	})
	t.Logf("%.1f MiB, with its binary %.1f MiB", float64(got)/(1<<20), float64(p.Memory(t, "VmRSS"))/(1<<20))
}

// BenchmarkStart measures the time from the start of serve until it answers on its port:
// for the first start, which creates the CA, and for later ones.
func BenchmarkStart(b *testing.B) {
	for _, first := range []bool{true, false} {
		name := "kept state"
		if first {
			name = "no state"
		}
		b.Run(name, func(b *testing.B) {
			h := e2e.NewSetup(b, nil)
			if !first {
				e2e.Launch(b, h).Answered(b).End(b)
			}
			b.ResetTimer()
			for range b.N {
				p := e2e.Launch(b, h).Answered(b)
				b.StopTimer()
				p.End(b)
				if first {
					if err := os.RemoveAll(h.State); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/start")
		})
	}
}
