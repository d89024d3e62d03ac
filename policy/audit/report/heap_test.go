//go:build !race

package report

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// Any number of hosts does not take more memory than the tables have.
func TestHeap(t *testing.T) {
	testkit.Long(t, "volume")
	heapOf(t, 200_000)
}

// BenchmarkHeap is TestHeap with a million hosts.
func BenchmarkHeap(b *testing.B) {
	for b.Loop() {
		heapOf(b, 1_000_000)
	}
}

func heapOf(t testing.TB, records int) {
	const most = 96 << 20
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s := New(Options{})
	for i := range records {
		name := func(what string) string { return what + strconv.Itoa(i) + padding + padding }
		e := trail.Entry{
			Time: start.Add(time.Duration(i) * time.Second), Client: name("c"), Host: name("h"), Decision: "block", Reason: "unreachable",
			Enforced: true, Rule: name("/"), Line: i, Group: "*", RobotsSHA256: name(""), XRobotsTag: name("x"), WaitMS: 10,
		}
		clipEntry(&e)
		s.request(&e)
	}
	grown := heap() - before
	if grown > most {
		t.Errorf("%d MiB after %d hosts, want %d at most", grown>>20, records, most>>20)
	}
	t.Logf("%d MiB", grown>>20)
	if got := s.totals.Requests; got != int64(records) {
		t.Errorf("%d requests are counted", got)
	}
}
