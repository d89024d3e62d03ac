//go:build !race

package pace

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

// inUse returns the bytes of the heap in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryOfAWaiter: see waitingTakes.
func TestMemoryOfAWaiter(t *testing.T) { waitingTakes(t, testkit.Rounds(2500)) }

// BenchmarkHundredThousandWaiters runs waitingTakes with four times as many hosts.
func BenchmarkHundredThousandWaiters(b *testing.B) {
	for b.Loop() {
		waitingTakes(b, 10_000)
	}
}

// eachWaits calls wait for ten clients of each host, each in a goroutine of its own, and
// returns when all are running. leave waits for them to end.
func eachWaits(hosts int, wait func(key, client string)) (leave func(end func())) {
	clients := strings.Fields("a b c d e f g h i j")
	var begun, done sync.WaitGroup
	for i := range hosts {
		key := fmt.Sprintf("host-%d.test", i)
		for _, client := range clients {
			begun.Add(1)
			done.Go(func() {
				begun.Done()
				wait(key, client)
			})
		}
	}
	begun.Wait()
	return func(end func()) { end(); done.Wait() }
}

// waitingTakes measures the memory of a waiter: ten clients wait at each host, and the
// memory of as many goroutines is subtracted.
func waitingTakes(t testing.TB, hosts int) {
	const most = 1100
	blocked := make(chan struct{})
	eachWaits(hosts, func(string, string) { <-blocked })(func() { close(blocked) })

	p := New(Options{})
	l := every(time.Hour) // nobody's turn comes during the measurement, however busy the machine is
	l.MaxWait = 1000 * time.Hour
	ctx, end := context.WithCancel(t.Context())
	before := inUse()
	var went atomic.Int64 // at least one for each host, and more if the first one did not report in time that it was sent
	leave := eachWaits(hosts, func(key, client string) {
		l := l
		l.Key = key
		if s, err := p.Wait(ctx, client, l); err == nil {
			s.Sent()
			s.Release()
			went.Add(1)
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for p.Stats().Waiting+int(went.Load()) < 10*hosts {
		runtime.Gosched()
	}
	took := (inUse() - before) / (int64(10*hosts) - went.Load())
	t.Logf("%d bytes for each that waits", took)
	if took > most {
		t.Errorf("%d bytes for each that waits, at the most %d", took, most)
	}
	leave(end)
	if s := p.Stats(); s.Waiting != 0 || s.UnderWay != 0 {
		t.Errorf("left behind: %+v", s)
	}
	for i := range p.hosts.shards {
		for key, h := range p.hosts.shards[i].hosts {
			if h.timer != nil && h.timer.Stop() {
				t.Fatalf("%s has a timer left", key)
			}
		}
	}
}

// BenchmarkMillionHosts requests a million hosts in an hour, one to three pages each.
// Some have a Crawl-delay, some a back-off. It reports the maximum memory of their state,
// on the clock of synctest.
func BenchmarkMillionHosts(b *testing.B) {
	const hosts, most = 1_000_000, 300 << 20
	for b.Loop() {
		before := inUse()
		var peak int64
		// synctest.Test needs a *testing.T
		ok := testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "hour", F: func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newExact()
				for i := range hosts {
					l := rule(1, 1, time.Duration(i%4)*5*time.Second)
					l.Key = fmt.Sprintf("host-%d.test", i)
					s := mustWait(t, p, "", l)
					s.Sent()
					if i%100 == 0 {
						s.BackOff(0, "id")
					}
					s.Release()
					pass(time.Hour / hosts)
					if i%50_000 == 0 {
						peak = max(peak, inUse()-before)
					}
				}
				b.ReportMetric(float64(p.Stats().Hosts), "hosts-kept")
			})
		}}})
		if !ok {
			b.Fatal("failed")
		}
		b.ReportMetric(float64(peak)/(1<<20), "MiB")
		if peak > most {
			b.Errorf("%d bytes, at the most %d", peak, most)
		}
	}
}
