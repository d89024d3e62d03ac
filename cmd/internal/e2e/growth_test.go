//go:build linux && !race

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// growing is a proxy whose collector says what it took, and whose pace nobody waits for.
func growing(t testing.TB) *proxy {
	t.Helper()
	return startBy(t, outOfTheWay.with(settings{
		"pace.max_concurrent": 16, "pace.max_queue": 10_000, "pace.adaptive": false, "pace.back_off": false, "log.level": "warn",
	}), "env", "GODEBUG=gctrace=1")
}

// cpu is what the process has taken of the processors so far, in the kernel's ticks
// of 10 ms.
func (p *proxy) cpu(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
	fields := strings.Fields(rest)
	var ticks time.Duration
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// collecting is the most that the garbage collector took of the processors so far, as
// GODEBUG=gctrace=1 tells: "gc 1 @0.1s 2%: A+B+C ms clock, A+B/B/B+C ms cpu, …". Its
// pauses, its workers (idle ones too) and what the program helped are in it, sweeping
// is not. These are times by the clock, of a processor that others may have had.
func (p *proxy) collecting(t testing.TB) time.Duration {
	t.Helper()
	var ms float64
	for line := range strings.Lines(p.stderr.String()) {
		_, rest, traced := strings.Cut(line, " ms clock, ")
		if !traced || !strings.HasPrefix(line, "gc ") {
			continue
		}
		spent, _, _ := strings.Cut(rest, " ms cpu")
		for _, part := range strings.FieldsFunc(spent, func(r rune) bool { return r == '+' || r == '/' }) {
			n, err := strconv.ParseFloat(part, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			ms += n
		}
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// A cost is what a proxy had taken at some time.
type cost struct {
	at              time.Time
	cpu, collecting time.Duration
}

func (p *proxy) cost(t testing.TB) cost {
	t.Helper()
	return cost{time.Now(), p.cpu(t), p.collecting(t)}
}

// report is what n requests since then cost; what its clock says of a round is left out.
func (p *proxy) report(b *testing.B, since cost, n int) {
	b.Helper()
	now := p.cost(b)
	cpu := now.cpu - since.cpu
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/now.at.Sub(since.at).Seconds(), "req/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(n), "cpu-us/req")
	b.ReportMetric(100*(now.collecting-since.collecting).Seconds()/cpu.Seconds(), "gc-%")
	b.ReportMetric(float64(p.memory(b, "VmRSS"))/(1<<20), "rss-MiB")
}

// needFiles skips where a process may not open n files.
func needFiles(b *testing.B, n uint64) {
	b.Helper()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < n {
		b.Skipf("a process may open %d files here, and this needs %d: ulimit -Hn", files.Max, n)
	}
}

// What a request takes while there are few connections, or many, all of them busy.
func BenchmarkConnections(b *testing.B) {
	const hosts = 64 // of 16 requests at once each
	for _, n := range []int{1, 64, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			needFiles(b, uint64(n+2*hosts*16+500))
			s := newSites(b, hosts, func(int) int { return 500 })
			p := growing(b)
			first := s.inTurn()
			askAll(b, p.lanes(b, hosts), 20, first) // every site is known, and the program warm
			before := p.memory(b, "VmRSS")
			lanes := p.lanes(b, n)
			askAll(b, lanes, 1, s.inTurn())
			open := p.memory(b, "VmRSS") - before
			each := max(1, 4096/n)
			asked, since := 0, p.cost(b)
			for b.Loop() {
				askAll(b, lanes, each, s.inTurn())
				asked += each * n
			}
			p.report(b, since, asked)
			if n >= 1000 {
				b.ReportMetric(float64(open)/1024/float64(n), "KiB/conn")
			}
			s.wantEach(b, 1)
		})
	}
}

// mixed is how long robots.txt files are: most are short, few are very long.
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

// What a request takes while few origins are known, or very many, and what it takes
// to know them. However many they are, each is asked for its robots.txt once.
func BenchmarkOrigins(b *testing.B) {
	size := func(octets int) func(int) int { return func(int) int { return octets } }
	for _, c := range []struct {
		origins int
		name    string
		robots  func(int) int
	}{
		{1, kib(512), size(512)},
		{1, kib(10 << 10), size(10 << 10)},
		{1, kib(500 << 10), size(500 << 10)},
		{1000, kib(512), size(512)},
		{1000, kib(10 << 10), size(10 << 10)},
		{50, kib(500 << 10), size(500 << 10)}, // of many more the cache, which holds 64 MiB, would have to ask again
		{100_000, kib(512), size(512)},
		{100_000, "mixed", mixed},
	} {
		b.Run(fmt.Sprintf("%d/%s", c.origins, c.name), func(b *testing.B) {
			needFiles(b, 5000)
			s := newSites(b, c.origins, c.robots)
			p := growing(b)
			lanes := p.lanes(b, 64)
			cold := p.cost(b)
			askAll(b, lanes, (c.origins+63)/64, s.inTurn())
			s.wantEach(b, 1)
			asked, since := 0, p.cost(b)
			for b.Loop() {
				askAll(b, lanes, 64, s.anyOf())
				asked += 64 * 64
			}
			p.report(b, since, asked)
			if c.origins > 1 {
				b.ReportMetric(float64((since.cpu-cold.cpu).Microseconds())/float64(c.origins), "cold-cpu-us/origin")
				b.ReportMetric(float64(c.origins)/since.at.Sub(cold.at).Seconds(), "cold-origins/s")
			}
			s.wantEach(b, 1)
		})
	}
}
