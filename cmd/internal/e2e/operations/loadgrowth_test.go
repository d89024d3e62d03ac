//go:build linux && !race

package operations

import (
	"fmt"
	"strconv"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// growing is a proxy that logs its garbage collections and delays no request.
func growing(t testing.TB) *e2e.Proxy {
	t.Helper()
	return e2e.StartProxyBy(t, e2e.Unpaced.With(e2e.Settings{
		"pace.max_concurrent": 16, "pace.max_queue": 10_000, "pace.adaptive": false, "pace.back_off": false, "log.level": "warn",
	}), "env", "GODEBUG=gctrace=1")
}

// Measures the cost of a request with few and with many busy connections.
func BenchmarkConnections(b *testing.B) {
	const hosts = 64 // with 16 requests at once each
	for _, n := range []int{1, 64, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e2e.NeedFiles(b, uint64(n+2*hosts*16+500))
			s := e2e.NewSites(b, hosts, func(int) int { return 500 })
			p := growing(b)
			first := s.InTurn()
			e2e.AskAll(b, p.Connections(b, hosts), 20, first) // all sites are known, and the program is warm
			before := p.Memory(b, "VmRSS")
			conns := p.Connections(b, n)
			e2e.AskAll(b, conns, 1, s.InTurn())
			open := p.Memory(b, "VmRSS") - before
			each := max(1, 4096/n)
			asked, since := 0, p.Cost(b)
			for b.Loop() {
				e2e.AskAll(b, conns, each, s.InTurn())
				asked += each * n
			}
			p.Report(b, since, asked)
			if n >= 1000 {
				b.ReportMetric(float64(open)/1024/float64(n), "KiB/conn")
			}
			s.WantEach(b, 1)
		})
	}
}

// mixed is the distribution of robots.txt lengths: most are short, few are very long.
func mixed(i int) int {
	switch {
	case i%1000 == 999:
		return 500 << 10
	case i%100 == 99:
		return 10 << 10
	default:
		return 512 + i*37%1536
	}
}

// Measures the cost of a request with few and with very many known origins, and the cost
// of knowing them. Each origin gets one request for its robots.txt.
func BenchmarkOrigins(b *testing.B) {
	size := func(n int) func(int) int { return func(int) int { return n } }
	for _, c := range []struct {
		origins int
		name    string
		robots  func(int) int
	}{
		{1, e2e.KiB(512), size(512)},
		{1, e2e.KiB(10 << 10), size(10 << 10)},
		{1, e2e.KiB(500 << 10), size(500 << 10)},
		{1000, e2e.KiB(512), size(512)},
		{1000, e2e.KiB(10 << 10), size(10 << 10)},
		{50, e2e.KiB(500 << 10), size(500 << 10)}, // with many more, the cache of 64 MiB would have to fetch again
		{100_000, e2e.KiB(512), size(512)},
		{100_000, "mixed", mixed},
	} {
		b.Run(fmt.Sprintf("%d/%s", c.origins, c.name), func(b *testing.B) {
			e2e.NeedFiles(b, 5000)
			s := e2e.NewSites(b, c.origins, c.robots)
			p := growing(b)
			conns := p.Connections(b, 64)
			cold := p.Cost(b)
			e2e.AskAll(b, conns, (c.origins+63)/64, s.InTurn())
			s.WantEach(b, 1)
			asked, since := 0, p.Cost(b)
			for b.Loop() {
				e2e.AskAll(b, conns, 64, s.AnyOf())
				asked += 64 * 64
			}
			p.Report(b, since, asked)
			if c.origins > 1 {
				b.ReportMetric(float64((since.CPU-cold.CPU).Microseconds())/float64(c.origins), "cold-cpu-us/origin")
				b.ReportMetric(float64(c.origins)/since.At.Sub(cold.At).Seconds(), "cold-origins/s")
			}
			s.WantEach(b, 1)
		})
	}
}
