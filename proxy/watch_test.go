package proxy

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const maxSilence = 5 * time.Minute

type ending func()

func (e ending) abandon() { e() }

func TestWatchEndsStalledTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch{limit: maxSilence}
		var ended time.Time
		began := time.Now()
		w.begin(ending(func() { ended = time.Now() }))
		for range 5 {
			<-time.After(maxSilence - time.Second)
			w.moved()
		}
		last := time.Since(began)
		<-time.After(3 * maxSilence)
		synctest.Wait()
		if after := ended.Sub(began) - last; after < maxSilence-time.Second || after > 2*maxSilence || w.err() == nil {
			t.Errorf("ended %v after the last transfer", after)
		}
		w.stop()
	})
}

func TestStoppedWatchEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch{limit: maxSilence}
		w.begin(ending(func() { t.Error("ended") }))
		w.stop()
		<-time.After(3 * maxSilence)
		w.begin(ending(func() {}))
		w.stop()
	})
}

// TestWatchesShareAlarms checks that an alarm does not end a watch because of its previous watch.
func TestWatchesShareAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spare sync.Pool
		first, second := watch{limit: maxSilence, pool: &spare}, watch{limit: maxSilence, pool: &spare}
		first.begin(ending(func() { t.Error("the first watch has ended") }))
		former := first.alarm // no other goroutine changes it
		<-time.After(maxSilence / 2)
		first.stop()
		began := time.Now()
		var ended atomic.Int64 // when the second watch ended
		second.begin(ending(func() { ended.Store(int64(time.Since(began))) }))
		first.mu.Lock()
		first.alarm = former // as when the alarm of the first watch is about to end a transfer
		first.mu.Unlock()
		first.endSlow()
		if ended.Load() != 0 || first.err() != nil || second.err() != nil {
			t.Fatal("the first watch ended the second")
		}
		<-time.After(3 * maxSilence)
		synctest.Wait()
		if after := time.Duration(ended.Load()); after != maxSilence {
			t.Errorf("the second ended after %v, want %v", after, maxSilence)
		}
		second.stop()
	})
}

// TestStoppedWatchKeepsNothing checks that a stopped watch does not keep its request in memory: the
// runtime keeps stopped timers until they would have fired.
func TestStoppedWatchKeepsNothing(t *testing.T) {
	const n, beside = 100, 10
	var gone atomic.Int64
	for range n {
		request := new([1 << 20]byte)
		runtime.AddCleanup(request, func(int) { gone.Add(1) }, 0)
		x := &struct {
			watch
			of *[1 << 20]byte
		}{watch{limit: time.Hour}, request}
		x.begin(ending(func() { clear(x.of[:]) }))
		for range beside {
			other := time.AfterFunc(2*time.Hour, func() {})
			defer other.Stop()
		}
		x.stop()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); gone.Load() < n-1; <-tick.C { // the last request may still be on the stack
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d requests are kept", n-gone.Load(), n)
		}
		runtime.GC()
	}
}
