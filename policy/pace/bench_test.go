package pace

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

func out(l Limits) Limits { // limits that never delay a request
	l.PerSecond, l.Burst, l.CrawlDelay = 1e9, 1<<30, 0
	return l
}

// BenchmarkWait measures the fast path: wait, send and release without other requests.
func BenchmarkWait(b *testing.B) {
	p, l, ctx := New(Options{}), out(rule(1, 1, 0)), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		s, err := wait(ctx, p, "client", l)
		if err != nil {
			b.Fatal(err)
		}
		s.Sent()
		s.Release()
	}
}

// TestRequestAllocatesTheSlotAlone: from Wait to Release, a request allocates only its
// Slot.
func TestRequestAllocatesTheSlotAlone(t *testing.T) {
	p, l, ctx := New(Options{}), out(rule(1, 1, 0)), t.Context()
	l.Adapt = true
	n := testing.AllocsPerRun(100, func() {
		s, err := p.Wait(ctx, "client", l)
		if err == nil {
			s.Redial()
			err = s.Ready(ctx)
		}
		if err != nil || !s.Timely() {
			t.Fatal(err)
		}
		s.Written()
		s.Answered("/", true)
		s.Held()
		s.Release()
	})
	if n != 1 {
		t.Errorf("%v allocations", n)
	}
}

func benchmarkParallel(b *testing.B, hosts int) {
	p, ctx := New(Options{}), context.Background()
	keys := make([]string, hosts)
	for i := range keys {
		keys[i] = fmt.Sprintf("host-%d.test", i)
	}
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		l := out(rule(1, 1, 0))
		l.Key = keys[int(n.Add(1))%hosts]
		for pb.Next() {
			s, err := wait(ctx, p, "client", l)
			if err != nil {
				b.Error(err)
				return
			}
			s.Sent()
			s.Release()
		}
	})
}

func BenchmarkWaitParallelOneHost(b *testing.B)   { benchmarkParallel(b, 1) }
func BenchmarkWaitParallelManyHosts(b *testing.B) { benchmarkParallel(b, 64) }

// BenchmarkRefuse measures an immediate refusal behind a queue of 500 clients.
func BenchmarkRefuse(b *testing.B) {
	p, l := New(Options{}), rule(0.001, 1, 0)
	l.MaxWait = 1 << 62
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	s, err := wait(ctx, p, "", l)
	if err != nil {
		b.Fatal(err)
	}
	s.Sent()
	h := s.host
	for i := range 500 {
		h.mu.Lock()
		if _, err := h.ask(&request{process: &p.process, host: h, limits: l, client: fmt.Sprint(i)}, true); err != nil {
			b.Fatal(err)
		}
		h.mu.Unlock()
	}
	l.MaxWait = 60e9
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wait(ctx, p, "late", l); err == nil {
			b.Fatal("not refused")
		}
	}
	h.timer.Stop()
}

// BenchmarkFullTable measures adding a host to a full table whose hosts are all in a
// back-off of an hour. This includes making space for it.
func BenchmarkFullTable(b *testing.B) {
	p, l, ctx := New(Options{}), out(rule(1, 1, 0)), context.Background()
	n := 0
	ask := func() {
		n++
		l.Key = fmt.Sprintf("trap-%d.test", n)
		s, err := wait(ctx, p, "client", l)
		if err != nil {
			b.Fatal(err)
		}
		s.Sent()
		s.BackOff(time.Hour, "id")
		s.Release()
	}
	for range defaultMaxHosts {
		ask()
	}
	b.ReportAllocs()
	var longest time.Duration
	for b.Loop() {
		begun := time.Now()
		ask()
		longest = max(longest, time.Since(begun))
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
}
