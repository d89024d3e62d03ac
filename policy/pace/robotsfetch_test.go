package pace

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fetchLimits returns l for a fetch of robots.txt.
func fetchLimits(l Limits, shared bool) Limits {
	l.First, l.Shared = true, shared
	return l
}

// go1 sends one request of a client under l, and records the time under a name.
func go1(t *testing.T, p *Pacer, client string, l Limits, note func()) {
	t.Helper()
	s, err := p.Wait(t.Context(), client, l)
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Release()
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
		return
	}
	note()
	s.Sent()
}

// TestFirstGoesFirst: a fetch of robots.txt goes in the turn of the client that caused
// it, before that client's requests, and does not count in the limit of the queue.
// However many fetches one client causes, other clients keep their turns.
func TestFirstGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxQueue = 4
		start := time.Now()
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		send := func(name string, l Limits) {
			wg.Go(func() {
				go1(t, p, name, l, func() {
					mu.Lock()
					defer mu.Unlock()
					if l.First {
						name += " fetch"
					}
					order = append(order, name+" "+time.Since(start).Round(time.Millisecond).String())
				})
			})
			synctest.Wait()
		}
		for _, client := range []string{"a", "b", "b", "c", "c"} {
			send(client, l)
		}
		if _, err := p.Wait(t.Context(), "c", l); !errors.Is(err, ErrTooBusy) {
			t.Errorf("the queue is not full: %v", err)
		}
		for range 3 {
			send("c", fetchLimits(l, false))
		}
		wg.Wait()
		want := []string{"a 0s", "b 1s", "c fetch 2s", "b 3s", "c fetch 4s", "c fetch 5s", "c 6s", "c 7s"}
		if !slices.Equal(order, want) {
			t.Errorf("sent %q, want %q", order, want)
		}
	})
}

// TestFirstKeepsTheCrawlDelay: a fetch keeps the Crawl-delay of the last request, even if
// its own limits have none.
func TestFirstKeepsTheCrawlDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{})
		start := time.Now()
		go1(t, p, "a", rule(1, 1, 10*time.Second), func() {})
		go1(t, p, "a", fetchLimits(rule(1, 1, 0), false), func() {
			if waited := time.Since(start).Round(time.Millisecond); waited != 10*time.Second {
				t.Errorf("the fetch goes after %v", waited)
			}
		})
	})
}

// An absentStore is unavailable, and was shared with three other processes.
type absentStore struct {
	Store
	since time.Time
}

func (s absentStore) Standing() Standing {
	return Standing{StoreAway: true, Slowdown: 4, Since: s.since}
}

// TestFetchKeepsItsShareOfTheCrawlDelay: while the Store is unavailable, each fetch keeps this process's share of the
// Crawl-delay, however many fetches there are.
func TestFetchKeepsItsShareOfTheCrawlDelay(t *testing.T) {
	redirected := rule(1, 1, 0)
	redirected.Redirected = true
	for name, fetch := range map[string]Limits{"of the host": fetchLimits(rule(1, 1, 0), false), "redirected to the host": redirected} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Options{Store: absentStore{since: time.Now()}})
				pass(time.Hour)
				go1(t, p, "a", rule(1, 1, 10*time.Second), func() {})
				for range 3 {
					start := time.Now()
					go1(t, p, "a", fetch, func() {
						if waited := time.Since(start).Round(time.Millisecond); waited != 40*time.Second {
							t.Errorf("the fetch goes after %v, want 40s", waited)
						}
					})
				}
			})
		})
	}
}

// TestSharedSlot: the one request after a fetch may share its slot. All other requests
// and fetches keep the gap.
func TestSharedSlot(t *testing.T) {
	for name, l := range map[string]Limits{"a rate": every(time.Second), "a crawl delay": rule(100, 1, time.Second), "a burst": rule(1, 2, time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, g := New(Options{}), newLog()
				shared := fetchLimits(l, true)
				for _, l := range []Limits{shared, l, l, shared, shared, l, l} {
					go1(t, p, "a", l, func() { g.at = append(g.at, time.Since(g.start).Round(time.Millisecond)) })
				}
				want := []time.Duration{0, 0, 1 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 4 * time.Second}
				if !slices.Equal(g.at, want) {
					t.Errorf("sent after %v, want %v", g.at, want)
				}
			})
		})
	}
}

// TestSharedSlotIsNotForUnshared: a request with Unshared keeps its gap to a fetch, and
// the next request cannot share a slot with it.
func TestSharedSlotIsNotForUnshared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, l := New(Options{}), newLog(), every(time.Second)
		unshared := l
		unshared.Unshared = true
		for _, l := range []Limits{fetchLimits(l, true), unshared, l} {
			go1(t, p, "a", l, func() { g.at = append(g.at, time.Since(g.start).Round(time.Millisecond)) })
		}
		if want := []time.Duration{0, 1 * time.Second, 2 * time.Second}; !slices.Equal(g.at, want) {
			t.Errorf("sent after %v, want %v", g.at, want)
		}
	})
}

// TestSharedSlotIsNotKept: the slot of a fetch cannot be shared later.
func TestSharedSlotIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, l := New(Options{}), newLog(), every(time.Second)
		go1(t, p, "a", fetchLimits(l, true), func() {})
		pass(time.Minute)
		g.start = time.Now()
		for range 3 {
			go1(t, p, "a", l, func() { g.at = append(g.at, time.Since(g.start).Round(time.Millisecond)) })
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(g.at, want) {
			t.Errorf("sent after %v, want %v", g.at, want)
		}
	})
}

// TestSharedSlotAfterAnother: the request after a fetch keeps its own gap to the request
// before the fetch. The fetch itself need not keep it, because the Crawl-delay is in the
// file.
func TestSharedSlotAfterAnother(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		first bool // a request was sent before; otherwise the process is new, and one may have been sent before its start
	}{"a request": {Options{}, true}, "a restart": {Options{}, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if !c.first {
					c.o.Since = time.Now()
				}
				p, g := New(c.o), newLog()
				note := func() { g.at = append(g.at, time.Since(g.start).Round(time.Millisecond)) }
				plain, delayed := rule(1, 1, 0), rule(1, 1, 3*time.Second)
				want := []time.Duration{1 * time.Second, 3 * time.Second, 6 * time.Second}
				if c.first {
					go1(t, p, "a", plain, func() {})
				}
				for _, l := range []Limits{fetchLimits(plain, true), delayed, delayed} {
					go1(t, p, "a", l, note)
				}
				if !slices.Equal(g.at, want) {
					t.Errorf("sent after %v, want %v", g.at, want)
				}
			})
		})
	}
}

// TestFetchesOfOneClientLeaveAConcurrencySlot: fetches that take long to connect hold all slots but
// one, and another client continues at its own pace.
func TestFetchesOfOneClientLeaveAConcurrencySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		l.MaxConcurrent = 2
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if s, err := p.Wait(ctx, "greedy", fetchLimits(l, true)); err == nil {
						pass(10 * time.Second)
						s.Release()
					}
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		for range 10 {
			go1(t, p, "honest", l, func() {})
		}
		if took := time.Since(start); took > 25*time.Second { // one was granted a slot before anybody waited
			t.Errorf("ten requests took %v", took)
		}
		stop()
		wg.Wait()
	})
}

// TestFetchesTakeTurns: requests and fetches of other clients are sent between the
// fetches of one client, however many it causes.
func TestFetchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if s, err := p.Wait(ctx, "greedy", fetchLimits(l, false)); err == nil {
						if s.Ready(ctx) == nil {
							s.Sent()
						}
						s.Release()
					}
				}
			})
		}
		synctest.Wait()
		for _, l := range []Limits{l, fetchLimits(l, false), l, l} {
			start := time.Now()
			go1(t, p, "honest", l, func() {})
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("waited %v", took)
			}
		}
		stop()
		wg.Wait()
	})
}
