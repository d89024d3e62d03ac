package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Usage holds the memory and file counts of a process.
type Usage struct {
	// Bytes.
	Peak, Resident int64
	Descriptors    int
}

// Usage reads the values from the kernel; it skips the test on systems other than Linux.
func (p *Proxy) Usage(t testing.TB) (u Usage) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("other kernels are not asked what a process uses")
	}
	u.Peak, u.Resident = p.Memory(t, "VmHWM"), p.Memory(t, "VmRSS")
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	u.Descriptors = len(open)
	return u
}

// CPU returns the processor time of the process, with the kernel's resolution of 10 ms.
func (p *Proxy) CPU(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// The process name may contain anything.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks time.Duration
	// Utime and stime.
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// collecting returns an upper bound of the garbage collector's processor time, from
// GODEBUG=gctrace=1: "gc 1 @0.1s 2%: A+B+C ms clock, A+B/B/B+C ms cpu, …". The times include
// pauses, workers (also idle ones) and assists but not sweeping. They are wall-clock times, so
// they include time when other processes ran.
func (p *Proxy) collecting(t testing.TB) time.Duration {
	t.Helper()
	var ms float64
	for line := range strings.Lines(p.Stderr.String()) {
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

// A Cost is the processor time that a proxy had used at some time.
type Cost struct {
	At              time.Time
	CPU, collecting time.Duration
}

// Cost returns the processor time used so far.
func (p *Proxy) Cost(t testing.TB) Cost {
	t.Helper()
	return Cost{time.Now(), p.CPU(t), p.collecting(t)}
}

// Report reports the cost of the n requests since then, and removes ns/op.
func (p *Proxy) Report(b *testing.B, since Cost, n int) {
	b.Helper()
	now := p.Cost(b)
	cpu := now.CPU - since.CPU
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/now.At.Sub(since.At).Seconds(), "req/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(n), "cpu-us/req")
	b.ReportMetric(100*(now.collecting-since.collecting).Seconds()/cpu.Seconds(), "gc-%")
	b.ReportMetric(float64(p.Memory(b, "VmRSS"))/(1<<20), "rss-MiB")
}

// Memory returns a value of /proc/PID/status in bytes: VmHWM is the peak resident memory,
// VmRSS the current one.
func (p *Proxy) Memory(t testing.TB, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// WantPeak checks how much memory the process has taken, and reports it.
func (p *Proxy) WantPeak(b *testing.B, most int64) {
	b.Helper()
	peak := p.Memory(b, "VmHWM")
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	if peak > most {
		b.Errorf("at its peak the process took %d MiB, want at most %d", peak>>20, most>>20)
	}
}
