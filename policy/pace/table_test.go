package pace

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

func (t *table) size() int {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].hosts)
		t.shards[i].mu.Unlock()
	}
	return n
}

// sweepAll removes every idle host and reports whether there were any.
func (t *table) sweepAll() bool {
	before := t.known.Load()
	t.holdings(time.Now())
	return t.known.Load() < before
}

// use sends one request and then does whatever its slot still needs.
func use(l Limits, then func(*Pacer, *Slot)) func(*testing.T, *Pacer) {
	return func(t *testing.T, p *Pacer) {
		s := mustWait(t, p, "", l)
		s.Sent()
		then(p, s)
	}
}

// TestForgettingNeverShortensAWait requests a host and sweeps at intervals. The host must
// be known as long as it could delay a request.
func TestForgettingNeverShortensAWait(t *testing.T) {
	release := func(_ *Pacer, s *Slot) { s.Release() }
	for _, c := range []struct {
		name  string
		use   func(*testing.T, *Pacer)
		known time.Duration // at least this long; zero: always
	}{
		{"a short gap: another group may ask for more", use(every(time.Second), release), time.Minute},
		{"a long gap", use(every(10*time.Minute), release), 10 * time.Minute},
		{"a burst must be whole again", use(rule(0.01, 5, 0), release), 100 * time.Second},
		{"a burst that a crawl-delay forbids", use(rule(1, 5, 10*time.Second), release), time.Minute},
		{"a gap of before", use(rule(1, 1, 20*time.Minute), func(p *Pacer, s *Slot) {
			s.Release()
			_, _ = wait(t.Context(), p, "", Limits{Key: "a.test", PerSecond: 1, Burst: 1, MaxConcurrent: 1})
		}), 20 * time.Minute},
		{"a pause and what it would double", use(every(time.Second), func(p *Pacer, s *Slot) {
			s.Release()
			beginBackOff(p, "a.test", 0)
		}), 31 * time.Minute},
		{"slow answers", use(adaptive(every(time.Second)), func(_ *Pacer, s *Slot) {
			pass(2 * time.Second)
			s.Answered("/", true)
			s.Release()
		}), 10*time.Minute + 2*time.Second},
		{"a client's own clock", use(owned(every(time.Second), 0.002, 1), release), 500 * time.Second},
		{"the assets' clock", use(assets(rule(0.1, 1, 0), 20), func(p *Pacer, s *Slot) {
			s.Release()
			for range 19 {
				mustWait(t, p, "", assets(rule(0.1, 1, 0), 20)).send()
			}
		}), 200 * time.Second},
		{"a place", use(every(time.Second), func(*Pacer, *Slot) {}), 0},
		{"a stream", use(every(time.Second), func(_ *Pacer, s *Slot) { _ = s.Detach() }), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newExact()
				begun := time.Now()
				c.use(t, p)
				if c.known == 0 {
					pass(1000 * time.Hour)
				} else {
					pass(c.known - time.Since(begun) - time.Second)
				}
				if p.hosts.sweepAll(); p.hosts.size() != 1 {
					t.Fatal("forgotten too early")
				}
				if c.known > 0 {
					pass(2 * time.Second)
					if !p.hosts.sweepAll() || p.hosts.size() != 0 || p.hosts.known.Load() != 0 {
						t.Error("not forgotten")
					}
				}
			})
		})
	}
}

func TestHostsAreForgottenOnUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		for i := range testkit.Rounds(20_000) {
			l.Key = fmt.Sprint(i)
			s := mustWait(t, p, "", l)
			s.Sent()
			s.Release()
			pass(time.Second)
		}
		// 60 hosts are too young to be forgotten
		if n := p.hosts.size(); n > 1000 || int64(n) != p.hosts.known.Load() {
			t.Errorf("%d hosts known (%d counted)", n, p.hosts.known.Load())
		}
	})
}

func TestAFullTableRefusesNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{MaxHosts: 100}), every(time.Second)
		var slots []*Slot
		for i := range 100 {
			l.Key = fmt.Sprint(i)
			slots = append(slots, mustWait(t, p, "", l))
		}
		l.Key = "one too many"
		_, err := wait(t.Context(), p, "", l)
		if after := isBusy(t, err, HostsFull); after != time.Minute {
			t.Errorf("retry after %v", after)
		}
		slots[7].Release()
		l.Key = "7"
		mustWait(t, p, "", l).Release() // a known host continues
		pass(time.Minute)
		l.Key = "one too many"
		mustWait(t, p, "", l) // after RetryAfter
	})
}

func TestAHostForgottenUnderOnesHandsIsFoundAnew(t *testing.T) {
	tab := newTable(10, time.Time{})
	for range 200 {
		old := tab.lock("a.test")
		found := make(chan *host)
		go func() {
			h := tab.lock("a.test")
			h.mu.Unlock()
			found <- h
		}()
		for range 20 {
			runtime.Gosched() // let it find the old host
		}
		for i := range tab.shards {
			sh := &tab.shards[i]
			sh.mu.Lock()
			if sh.hosts["a.test"] == old {
				tab.forget(sh, "a.test", old)
			}
			sh.mu.Unlock()
		}
		old.mu.Unlock()
		if <-found == old {
			t.Fatal("given a host that is forgotten")
		}
	}
}

func TestAHostInUseIsNotForgotten(t *testing.T) {
	p := New(Options{MaxHosts: 64})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			l := rule(1e6, 1000, 0)
			for j := range 2000 {
				l.Key = fmt.Sprint((i + j) % 8)
				s, err := wait(t.Context(), p, "", l)
				if err != nil {
					t.Errorf("Wait: %v", err)
					return
				}
				h := p.hosts.lock(l.Key)
				h.mu.Unlock()
				if h != s.host {
					t.Error("forgotten")
				}
				s.Release()
			}
		})
		wg.Go(func() {
			for j := range 2000 { // never sent: idle at once
				sh := &p.hosts.shards[j%shards]
				sh.mu.Lock()
				p.hosts.sweep(sh)
				sh.mu.Unlock()
			}
		})
	}
	wg.Wait()
}
