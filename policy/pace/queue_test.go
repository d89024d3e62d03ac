package pace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

func TestCallerThatLeavesCostsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l, g := New(Options{}), every(time.Second), newLog()
		gone := errors.New("the client left")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx, leave := context.WithCancelCause(t.Context())
				if i%2 == 1 { // from the middle of the queue
					time.AfterFunc(1500*time.Millisecond, func() { leave(gone) })
				}
				defer leave(nil)
				s, err := wait(ctx, p, "", l)
				if err != nil {
					if err != gone {
						t.Errorf("Wait: %v, want the context's cause", err)
					}
					return
				}
				g.send(s)
				s.Release()
			})
			synctest.Wait() // in order
		}
		wg.Wait()
		at := g.sent()
		spaced(t, at, time.Second, 2)
		if len(at) != 11 { // ten that stay, and the second one, which was sent at 1 s
			t.Errorf("%d went, want 11", len(at))
		}
	})
}

func TestCallerThatLeavesGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxConcurrent = 1
		s := mustWait(t, p, "", l)
		s.Sent()
		h := p.hosts.lock(l.Key)
		w, err := h.ask(&request{process: &p.process, host: h, limits: l}, true)
		h.mu.Unlock()
		if err != nil || w == nil {
			t.Fatal("not enqueued")
		}
		pass(time.Second)
		s.Release() // w is granted now, and leaves before it notices
		<-w.ready
		h.withdraw(w)
		l.MaxWait = 0
		mustWait(t, p, "", l)
	})
	t.Run("one who left already gets nothing", func(t *testing.T) {
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		leave(gone)
		if s, err := New(Options{}).Wait(ctx, "", every(time.Second)); s != nil || err != gone {
			t.Errorf("got %v, %v", s, err)
		}
	})
}

func TestMaxWaitIsKnownAtOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		l      Limits
		queued int           // requests that wait already; one was just sent
		after  time.Duration // when the new request arrives
		est    time.Duration // its estimated wait
	}{
		{"what the limiter owes", rule(0.1, 1, 0), 0, 0, 10 * time.Second},
		{"less by what has passed", rule(0.1, 1, 0), 0, 4 * time.Second, 6 * time.Second},
		{"position x gap", rule(1, 1, 0), 5, 0, 6 * time.Second},
		{"position x crawl-delay", rule(10, 9, 5*time.Second), 3, time.Second, 19 * time.Second},
		{"position x rate, burst spent", rule(2, 2, 0), 5, 0, 2500 * time.Millisecond},
		{"never less than a second", rule(10, 1, 0), 0, 0, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Options{})
				mustWait(t, p, "", c.l).Sent()
				ctx, leave := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range c.queued {
					wg.Go(func() {
						if s, err := wait(ctx, p, "", c.l); err == nil {
							s.Sent()
						}
					})
				}
				synctest.Wait()
				pass(c.after)
				start, l := time.Now(), c.l
				l.MaxWait = c.est - time.Microsecond
				_, err := wait(ctx, p, "", l)
				after := isBusy(t, err, WaitTooLong)
				if d := after - max(c.est, minRetry); d < 0 || d > time.Microsecond {
					t.Errorf("RetryAfter %v, want %v", after, max(c.est, minRetry))
				}
				if time.Since(start) != 0 {
					t.Errorf("refused after %v, not at once", time.Since(start))
				}
				l.MaxWait = c.est + time.Microsecond // and the estimate is correct
				s := mustWait(t, p, "", l)
				if d := time.Since(start) - c.est; d < -time.Microsecond || d > time.Microsecond || s.Held().Waited != time.Since(start) {
					t.Errorf("went after %v (Waited says %v), estimated %v", time.Since(start), s.Held().Waited, c.est)
				}
				leave()
				wg.Wait()
			})
		})
	}
}

func TestMaxWaitAtTheConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxConcurrent, l.MaxWait = 1, 30*time.Second
		s := mustWait(t, p, "", l) // a long download
		s.Sent()
		start := time.Now()
		_, err := wait(t.Context(), p, "", l)
		if after := isBusy(t, err, ConcurrencyFull); after != l.MaxWait || time.Since(start) != l.MaxWait {
			t.Errorf("refused after %v, retry after %v", time.Since(start), after)
		}
		s.Release()
		l.MaxWait = 0
		mustWait(t, p, "", l) // the refused request took no slot
	})
}

func TestMaxWaitOfExactlyTheWaitSuffices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := every(time.Second)
		l.MaxWait = 5 * time.Second
		if at := demand(t, New(Options{}), l, 6, 0); len(at) != 6 {
			t.Errorf("went at %v", at)
		}
	})
}

// TestTheTimeThatOthersTake: the estimate for a request behind others with other limits
// uses the limits of the others.
func TestTheTimeThatOthersTake(t *testing.T) {
	slow, quick := rule(100, 1, 2*time.Second), rule(10, 1, 0)
	for _, c := range []struct {
		name   string
		queued []Limits
		own    Limits
		est    time.Duration
	}{
		{"quick behind slow", []Limits{slow, slow, slow}, quick, 6100 * time.Millisecond},
		{"slow behind quick", []Limits{quick, quick, quick}, slow, 2300 * time.Millisecond},
		{"mixed", []Limits{quick, slow, quick}, slow, 4200 * time.Millisecond},
		{"a client's own others", []Limits{slow, slow}, quick, 4100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Options{})
				mustWait(t, p, "", quick).send()
				var wg sync.WaitGroup
				for i, l := range c.queued {
					client := fmt.Sprint(i)
					if len(c.queued) == 2 {
						client = "newcomer"
					}
					wg.Go(func() { mustWait(t, p, client, l).send() })
					synctest.Wait()
				}
				start, hasty := time.Now(), c.own
				hasty.MaxWait = time.Second
				_, err := p.Wait(t.Context(), "newcomer", hasty)
				after := isBusy(t, err, WaitTooLong)
				mustWait(t, p, "newcomer", c.own).send()
				if went := time.Since(start); after < went-10*time.Millisecond || after > went+10*time.Millisecond || went < c.est-10*time.Millisecond || went > c.est+10*time.Millisecond {
					t.Errorf("went after %v, foretold %v, want %v", went, after, c.est)
				}
				wg.Wait()
			})
		})
	}
}

func TestMaxQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxQueue = 3
		mustWait(t, p, "", l).Sent()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { mustWait(t, p, fmt.Sprint(i), l).Sent() })
		}
		synctest.Wait()
		_, err := wait(t.Context(), p, "z", l)
		if after := isBusy(t, err, QueueFull); after != 4*time.Second {
			t.Errorf("retry after %v, want 4s", after)
		}
		pass(time.Second + time.Millisecond)
		wg.Go(func() { mustWait(t, p, "z", l).Sent() })
		wg.Wait()
	})
}

func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		mustWait(t, p, "", l).Sent()
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		ask := func(client string, n int) {
			for i := range n {
				wg.Go(func() {
					s := mustWait(t, p, client, l)
					mu.Lock()
					defer mu.Unlock()
					order = append(order, fmt.Sprint(client, i))
					s.Sent()
				})
				synctest.Wait()
			}
		}
		ask("a", 4)
		ask("b", 2)
		ask("c", 1)
		wg.Wait()
		want := []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}
		if !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

// TestFairQueue compares the estimated position of a new request with what the queue then
// does.
func TestFairQueue(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 500 {
		var of queue
		q := &of.waiting
		var all []*waiter
		p := New(Options{})
		for range rnd.Intn(60) {
			switch k := rnd.Intn(5); {
			case k > 1 || len(q.lines) == 0:
				w := &waiter{request: &request{process: &p.process, host: new(host), queue: &of, limits: every(time.Second), client: fmt.Sprint(rnd.Intn(6))}}
				all = append(all, w)
				ahead, _ := w.host.queueAhead(w.request, 0, 0, time.Time{})
				q.push(w)
				if got := slices.Index(q.inOrder(), w); got != ahead {
					t.Fatalf("position %d, foretold %d", got, ahead)
				}
			case k == 1:
				w := q.inOrder()[rnd.Intn(q.size())]
				q.remove(w)
				all = slices.DeleteFunc(all, func(o *waiter) bool { return o == w })
			default:
				w := q.lines[0].waiters[0]
				q.remove(w)
				q.tookTurn(w.client)
				all = slices.DeleteFunc(all, func(o *waiter) bool { return o == w })
			}
		}
		if q.size() != len(all) {
			t.Fatalf("%d in the queue, want %d", q.size(), len(all))
		}
		for _, want := range q.inOrder() {
			if q.lines[0].waiters[0] != want {
				t.Fatal("inOrder is not the order")
			}
			q.remove(want)
			q.tookTurn(want.client)
		}
		if q.lines != nil {
			t.Fatal("an empty queue keeps something")
		}
	}
}

func TestThousandsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Hour)
		mustWait(t, p, "", l).Sent()
		ctx, leave := context.WithCancel(t.Context())
		l.MaxWait = 1e6 * time.Hour
		waiters := testkit.Rounds(3_000)
		for i := range waiters {
			go func() {
				if _, err := wait(ctx, p, fmt.Sprint(i%97), l); !errors.Is(err, context.Canceled) {
					t.Errorf("Wait: %v", err)
				}
			}()
		}
		synctest.Wait()
		h := p.hosts.lock(l.Key)
		if len(h.expiry) != waiters {
			t.Errorf("%d wait, want %d", len(h.expiry), waiters)
		}
		h.mu.Unlock()
		leave()
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.expiry) != 0 || h.pages.waiting.lines != nil || h.pages.limiter.unsent+h.pages.limiter.preparing != 0 || h.timer.Stop() {
			t.Errorf("left behind: %d waiters, %d unsent", len(h.expiry), h.pages.limiter.unsent)
		}
	})
}

func TestCloseRefusesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		held := mustWait(t, p, "", l)
		held.Sent()
		outcomes := make(chan error, 3)
		for range 2 {
			go func() {
				_, err := wait(t.Context(), p, "", l)
				outcomes <- err
			}()
		}
		synctest.Wait()
		p.Close()
		for range 2 {
			if err := <-outcomes; err != ErrClosed {
				t.Errorf("who waited: %v", err)
			}
		}
		if _, err := wait(t.Context(), p, "", l); err != ErrClosed {
			t.Errorf("who would have to wait: %v", err)
		}
		other := l
		other.Key = "other.test"
		mustWait(t, p, "", other).Release() // a request that need not wait
		held.Release()
		if h := p.hosts.lock(l.Key); len(h.expiry) != 0 || len(h.active) != 0 {
			t.Errorf("%d wait, %d leases are held", len(h.expiry), len(h.active))
		} else {
			h.mu.Unlock()
		}
	})
}

// TestFullQueueIsShared: a client that fills the queue of a host does not keep others
// out. The queue drops the last request of the client with the most.
func TestFullQueueIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxConcurrent, l.MaxQueue = 1, 5
		busy, err := p.WaitConnect(t.Context(), "greedy", l)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		full := make(map[string]int)
		var wg sync.WaitGroup
		for i := range 9 {
			client := "greedy"
			if i >= 6 {
				client = "honest"
			}
			wg.Go(func() {
				s, err := p.WaitConnect(t.Context(), client, l)
				if e := (*BusyError)(nil); errors.As(err, &e) && e.Reason == QueueFull {
					mu.Lock()
					defer mu.Unlock()
					full[client]++
				} else if err != nil {
					t.Error(err)
				}
				s.Release()
			})
			synctest.Wait()
		}
		busy.Release()
		wg.Wait()
		if want := map[string]int{"greedy": 3, "honest": 1}; !maps.Equal(full, want) {
			t.Errorf("refused: %v, want %v", full, want)
		}
	})
}

// TestTunnelsAndRequestsTakeTurns: dials of tunnels that take long leave every second
// slot to requests, whatever the number of clients and however long the dials have
// waited.
func TestTunnelsAndRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxConcurrent = 2
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if s, err := p.WaitConnect(ctx, fmt.Sprint("greedy", i%3), l); err == nil {
						pass(10 * time.Second)
						s.Release()
					}
				}
			})
		}
		pass(time.Minute)
		for range 3 {
			start := time.Now()
			go1(t, p, "honest", l, func() {})
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("waited %v", took)
			}
		}
		stop()
		wg.Wait()
	})
}
