package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMaxConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(1e6, 1e6, 0)
		l.MaxConcurrent = 2
		var mu sync.Mutex
		now, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				s := mustWait(t, p, "", l)
				s.Sent()
				count(1)
				pass(time.Second)
				count(-1)
				s.Release()
			})
		}
		wg.Wait()
		if most != 2 || time.Since(start) != 5*time.Second {
			t.Errorf("%d at once, %v for all; want 2, 5s", most, time.Since(start))
		}
	})
}

func TestDetachGivesTheConcurrencySlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{MaxStreams: 2}), rule(1e6, 1e6, 0)
		l.MaxConcurrent = 1
		var streams []*Slot
		for _, client := range []string{"a", "b"} {
			s := mustWait(t, p, client, l)
			s.Sent()
			next := make(chan *Slot)
			go func() { next <- mustWait(t, p, "", l) }()
			synctest.Wait()
			if err := errors.Join(s.Detach(), s.Detach()); err != nil {
				t.Fatalf("Detach: %v", err)
			}
			streams = append(streams, s)
			start := time.Now()
			(<-next).Release()
			if time.Since(start) != 0 {
				t.Errorf("the next went after %v, not at once", time.Since(start))
			}
		}
		s := mustWait(t, p, "", l)
		s.Sent()
		isBusy(t, s.Detach(), StreamsFull)
		l.MaxWait = 0
		if _, err := wait(t.Context(), p, "", l); err == nil {
			t.Error("a failed Detach gave its place back")
		}
		streams[0].Release()
		streams[0].Release()
		if err := s.Detach(); err != nil {
			t.Errorf("Detach after a stream's end: %v", err)
		}
		isBusy(t, mustWait(t, p, "", l).Detach(), StreamsFull)
	})
}

// TestOneClientLeavesStreamsToOthers: a client gets another stream of a host only while it has
// fewer than are free, so the next client always gets one.
func TestOneClientLeavesStreamsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(1e6, 1e6, 0)
		open := func(client string) (streams []*Slot) {
			for {
				s := mustWait(t, p, client, l)
				s.Sent()
				if err := s.Detach(); err != nil {
					isBusy(t, err, StreamsFull)
					s.Release()
					return streams
				}
				streams = append(streams, s)
			}
		}
		greedy := open("greedy")
		if len(greedy) != 32 {
			t.Errorf("one client has %d streams of 64", len(greedy))
		}
		for i, want := range []int{16, 8, 4, 2, 1, 1, 0} {
			if got := len(open(fmt.Sprint("client", i))); got != want {
				t.Errorf("client %d has %d streams, want %d", i, got, want)
			}
		}
		greedy[0].Release()
		if n := len(open("greedy")); n != 0 {
			t.Errorf("the greedy client got %d more", n)
		}
		if n := len(open("last")); n != 1 {
			t.Errorf("the last client has %d streams", n)
		}
		if s := p.Stats(); s.Streams != 64 {
			t.Errorf("%d streams", s.Streams)
		}
	})
}

func TestWaitConnectTakesAConcurrencySlotAndNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(10*time.Second)
		l.MaxConcurrent = 2
		enter := func() *Slot {
			s, err := p.WaitConnect(t.Context(), "", l)
			if err != nil {
				t.Fatalf("WaitConnect: %v", err)
			}
			return s
		}
		start := time.Now()
		mustWait(t, p, "", l).Sent()
		dial := enter()
		hasty := l
		hasty.MaxWait = 0
		_, err := p.WaitConnect(t.Context(), "", hasty)
		isBusy(t, err, ConcurrencyFull)
		go func() { pass(3 * time.Second); dial.Release() }()
		dial2 := enter()
		if time.Since(start) != 3*time.Second || dial2.Held().Waited != 3*time.Second {
			t.Errorf("entered after %v", time.Since(start))
		}
		// A dial may become a request, which keeps the slot.
		if err := dial2.Ready(t.Context()); err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("Ready: %v after %v", err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // they take turns; the one that has waited longer begins
		p, l := New(Options{}), rule(1e6, 1e6, 0)
		l.MaxConcurrent = 1
		s := mustWait(t, p, "", l)
		var order []string
		var wg sync.WaitGroup
		for _, name := range []string{"wait", "enter", "wait", "enter"} {
			wg.Go(func() {
				take := p.Wait
				if name == "enter" {
					take = p.WaitConnect
				}
				s, err := take(t.Context(), "", l)
				if err != nil {
					t.Error(err)
				}
				order = append(order, name)
				s.Release()
			})
			pass(time.Second)
		}
		s.Release()
		wg.Wait()
		for i, want := range []string{"wait", "enter", "wait", "enter"} {
			if order[i] != want {
				t.Errorf("order %v", order)
				break
			}
		}
	})
}

func TestReplayGoesFirstAndKeepsItsConcurrencySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l, g := New(Options{}), every(time.Second), newLog()
		l.MaxConcurrent = 1
		s := mustWait(t, p, "", l)
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("Ready before Sent: %v", err)
		}
		g.send(s)
		var wg sync.WaitGroup
		wg.Go(func() { g.send(mustWait(t, p, "", l)) })
		time.AfterFunc(time.Second/2, func() {
			hasty := l
			hasty.MaxWait = time.Second
			_, err := wait(t.Context(), p, "", hasty)
			if after := isBusy(t, err, WaitTooLong); after != 2500*time.Millisecond {
				t.Errorf("behind a replay and a waiter: retry after %v, want 2.5s", after)
			}
		})
		synctest.Wait()
		if err := s.Ready(t.Context()); err != nil { // MaxConcurrent 1: it keeps its own slot
			t.Fatalf("Ready: %v", err)
		}
		if s.Held().Waited != time.Second {
			t.Errorf("Waited %v, want 1s", s.Held().Waited)
		}
		g.send(s)
		pass(5 * time.Second)
		s.Release()
		wg.Wait()
		if at := g.sent(); len(at) != 3 || at[1] != time.Second || at[2] != 6*time.Second {
			t.Errorf("sent at %v", at)
		}
	})
}

func TestReadyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(10*time.Second)
		s := mustWait(t, p, "", l)
		s.Sent()
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { leave(gone) })
		if err := s.Ready(ctx); err != gone {
			t.Errorf("Ready: %v, want the cause", err)
		}
		if err := s.Ready(ctx); err != gone {
			t.Errorf("Ready: %v, want the cause", err)
		}
		time.AfterFunc(time.Second, s.Release)
		if err := s.Ready(t.Context()); !errors.Is(err, errReleased) {
			t.Errorf("Ready of a slot released meanwhile: %v", err)
		}
		synctest.Wait()
		if h := s.host; len(h.expiry) != 0 || h.timer.Stop() {
			t.Error("a timer or a waiter is left")
		}
		pass(8 * time.Second) // 10 s after the only request: nothing else was counted
		l.MaxWait = 5 * time.Second
		s = mustWait(t, p, "", l)
		s.Sent()
		if after := isBusy(t, s.Ready(t.Context()), WaitTooLong); after != 10*time.Second {
			t.Errorf("retry after %v", after)
		}
	})
}

func TestAReplayCountsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l, start := New(Options{}), every(time.Second), time.Now()
		s := mustWait(t, p, "", l)
		s.Sent()
		s.Sent()
		mustWait(t, p, "", l)
		if time.Since(start) != 2*time.Second {
			t.Errorf("the next went after %v, want 2s", time.Since(start))
		}
	})
}
