package memory

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fixed is a Budget of so many requests, of which the runtime says that so many are in use.
func fixed(limit, inUse int64) *Budget {
	return New(Options{Limit: limit * requestBytes, InUse: func() int64 { return inUse * requestBytes }})
}

// begun begins n requests of a client and returns those that were not refused.
func begun(t *testing.T, b *Budget, client string, n int) (all []*Work) {
	t.Helper()
	for range n {
		w, err := b.Begin(client, time.Now())
		if err != nil {
			if !errors.Is(err, ErrShort) {
				t.Fatal(err)
			}
			continue
		}
		all = append(all, &w)
	}
	return all
}

func TestOneClientTakesHalf(t *testing.T) {
	b := fixed(100, 0)
	all := begun(t, b, "greedy", 1000)
	if len(all) != 50 {
		t.Errorf("%d requests of one client, want 50", len(all))
	}
	if got := b.Stats().Refused; got != 950 {
		t.Errorf("%d refused, want 950", got)
	}
	for _, w := range all {
		w.End()
	}
	if len(b.clients) != 0 || b.total != (held{}) {
		t.Errorf("%v and %v are held in the end", b.clients, b.total)
	}
}

// TestApart checks that a Work apart counts against the same client, and outlives the Work that it comes from.
func TestApart(t *testing.T) {
	b := fixed(10, 0)
	of := begun(t, b, "a", 1)[0]
	apart, err := of.Apart(3 * requestBytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of.Apart(3 * requestBytes); !errors.Is(err, ErrShort) || b.Stats().Refused != 1 {
		t.Errorf("%v, stats %+v", err, b.Stats())
	}
	of.End()
	if n := len(begun(t, b, "a", 10)); n != 2 || b.Stats().Held != 5*requestBytes {
		t.Errorf("%d more requests, stats %+v", n, b.Stats())
	}
	if _, err := of.Apart(1); !errors.Is(err, ErrShort) {
		t.Errorf("after its end: %v", err)
	}
	if apart.End(); b.Stats().Held != 2*requestBytes {
		t.Errorf("stats %+v", b.Stats())
	}
}

func TestOthersAreServedBesideTheGreedy(t *testing.T) {
	b := fixed(100, 0)
	for i := range 4 {
		begun(t, b, fmt.Sprint("greedy", i), 1000)
	}
	if n := len(begun(t, b, "modest", 3)); n != 3 {
		t.Errorf("%d of 3 requests of a modest client are served", n)
	}
}

// TestGreediestIsRefusedFirst: what the runtime says counts, whatever it comes from.
func TestGreediestIsRefusedFirst(t *testing.T) {
	b := fixed(100, 0)
	begun(t, b, "greedy", 30)
	begun(t, b, "modest", 2)
	b.inUse = func() int64 { return 80 * requestBytes }
	b.sampleAt.Store(0)
	if n := len(begun(t, b, "greedy", 1)); n != 0 {
		t.Error("the greediest client is served")
	}
	if n := len(begun(t, b, "modest", 1)); n != 1 {
		t.Error("a modest client is refused")
	}
	b.inUse = func() int64 { return 100 * requestBytes }
	b.sampleAt.Store(0)
	if n := len(begun(t, b, "new", 1)); n != 0 {
		t.Error("a client is served though nothing is left")
	}
}

func TestRuntimeIsAskedNowAndThen(t *testing.T) {
	b, asked := fixed(100, 0), 0
	b.inUse = func() int64 { asked++; return 0 }
	now := time.Now()
	for i := range 1000 {
		w, err := b.Begin("a", now.Add(time.Duration(i)*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		w.End()
	}
	if asked != 10 {
		t.Errorf("asked %d times within a second, want 10", asked)
	}
}

func TestBodiesAreAPart(t *testing.T) {
	const body = 64 << 10
	b := New(Options{Limit: bodiesDivisor * 100 * body, InUse: func() int64 { return 0 }})
	read := func(client string, n int) (got int) {
		for range n {
			w, err := b.Begin(client, time.Now())
			if err == nil && w.Body(body) {
				got++
			}
		}
		return got
	}
	if n := read("greedy", 80); n != 50 {
		t.Errorf("%d bodies of the first client, want 50", n)
	}
	if n := read("second", 80); n != 25 {
		t.Errorf("%d bodies of the second client, want 25", n)
	}
	if n := read("modest", 5); n != 5 {
		t.Errorf("%d bodies of a modest client, want 5", n)
	}
	if s := b.Stats(); s.Bodies != 80*body || s.Unread != 85 {
		t.Errorf("stats %+v", s)
	}
}

func TestZeroWorkIsGivenNothing(t *testing.T) {
	var w Work
	if w.Body(1) {
		t.Error("a body is read ahead for no request")
	}
	w.End()
}

// TestEndCountsOnce: a second End leaves alone what the client holds since.
func TestEndCountsOnce(t *testing.T) {
	b := fixed(100, 0)
	first := begun(t, b, "a", 1)[0]
	first.End()
	begun(t, b, "a", 1)
	first.End()
	if n := len(begun(t, b, "a", 1000)); n != 49 {
		t.Errorf("%d more requests of the client, want 49", n)
	}
}

// TestRuntimeIsUnderstood: the names of its figures are right.
func TestRuntimeIsUnderstood(t *testing.T) {
	if n := liveBytes(); n <= 0 {
		t.Errorf("%d bytes in use", n)
	}
}

// TestBeginAllocatesNothing: for a client with an open connection, as a request's client has.
func TestBeginAllocatesNothing(t *testing.T) {
	b := fixed(100, 0)
	now := time.Now()
	if _, err := b.Open("a", now); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		w, _ := b.Begin("a", now)
		w.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBegin(b *testing.B) {
	budget := fixed(1000, 0)
	now := time.Now()
	if _, err := budget.Open("192.0.2.1", now); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w, _ := budget.Begin("192.0.2.1", now)
		w.End()
	}
}

// TestShortOnlyWhileInUse: what was in use at the last cycle of the collector, and is no
// longer, refuses nobody for long, also where too little happens for the next cycle.
func TestShortOnlyWhileInUse(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // only the collections that the test requests
	runtime.GC()
	b := New(Options{Limit: liveBytes() + 16<<20})
	now := time.Now()
	func() {
		ballast := make([]byte, 64<<20)
		runtime.GC()
		if _, err := b.Begin("a", now); !errors.Is(err, ErrShort) {
			t.Errorf("with all in use: %v", err)
		}
		runtime.KeepAlive(ballast)
	}()
	w, err := b.Begin("a", now.Add(collectEvery))
	if err != nil {
		t.Errorf("with nothing in use: %v", err)
	}
	w.End()
}

// Spare leaves bytes for requests of the client, and counts no refusal.
func TestSpare(t *testing.T) {
	b := fixed(100, 0)
	w := begun(t, b, "a", 1)[0]
	if !w.Spare(40*requestBytes) || b.Stats().Held != 41*requestBytes {
		t.Errorf("%d bytes are held, want %d", b.Stats().Held, 41*requestBytes)
	}
	if w.Spare(requestBytes) || b.Stats().Refused != 0 {
		t.Errorf("%d refused, want none", b.Stats().Refused)
	}
	if n := len(begun(t, b, "a", 5)); n != 5 {
		t.Errorf("%d of 5 requests are served beside bytes that the client could do without", n)
	}
	w.End()
	if w.Spare(1) || b.Stats().Held != 5*requestBytes {
		t.Errorf("%d bytes are held in the end, want those of 5 requests", b.Stats().Held)
	}
}

// TestClockSetBack: a clock that was set back does not stop the samples.
func TestClockSetBack(t *testing.T) {
	b := fixed(100, 0)
	now := time.Now()
	w, err := b.Begin("a", now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	w.End()
	b.inUse = func() int64 { return 100 * requestBytes }
	if _, err := b.Begin("a", now); !errors.Is(err, ErrShort) {
		t.Errorf("with all in use after the clock was set back: %v", err)
	}
}

// TestEarlierSample: a sample that took long does not replace a later one.
func TestEarlierSample(t *testing.T) {
	b, now := fixed(100, 0), time.Now()
	began, end := make(chan bool), make(chan bool)
	inUse := [...]func() int64{
		func() int64 { close(began); <-end; return 0 },
		func() int64 { return 100 * requestBytes },
	}
	var calls atomic.Int32
	b.inUse = func() int64 { return inUse[min(int(calls.Add(1)), len(inUse))-1]() }
	var slow sync.WaitGroup
	slow.Go(func() { b.currentUse(now) })
	<-began
	now = now.Add(sampleEvery)
	b.currentUse(now)
	close(end)
	slow.Wait()
	if got := b.currentUse(now); got != 100*requestBytes {
		t.Errorf("%d bytes are in use, want those of the later sample", got)
	}
}
