package pace

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newExact returns a Pacer without jitter.
func newExact() *Pacer {
	p := New(Options{})
	p.chance = func() float64 { return 0 }
	return p
}

// beginBackOff calls Slot.BackOff for the last request of the host.
func beginBackOff(p *Pacer, key string, retryAfter time.Duration) time.Duration {
	h := p.hosts.lock(key)
	s := &Slot{request{process: &p.process, host: h, sent: h.pages.limiter.last}}
	h.mu.Unlock()
	left, _ := s.BackOff(retryAfter, "id")
	return left
}

// goesAfter sends one request and fails unless it was sent after want.
func goesAfter(t *testing.T, p *Pacer, l Limits, want time.Duration) {
	t.Helper()
	start := time.Now()
	s := mustWait(t, p, "", l)
	s.Sent()
	s.Release()
	if d := time.Since(start) - want; d < 0 || d > 2 {
		t.Errorf("went after %v, want %v", time.Since(start), want)
	}
}

func TestBackOffHonoursRetryAfter(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		5 * time.Second: 5 * time.Second,
		time.Hour:       time.Hour,
		100 * time.Hour: time.Hour,
		0:               time.Minute,
		-time.Second:    time.Minute,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := newExact(), rule(10, 5, 0)
				goesAfter(t, p, l, 0)
				beginBackOff(p, l.Key, asked)
				beginBackOff(p, l.Key, time.Second) // a shorter back-off does not shorten the longer one
				goesAfter(t, p, l, want)
			})
		})
	}
}

func TestBackOffDoublesAndForgives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), rule(10, 5, 0)
		goesAfter(t, p, l, 0)
		for i, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			beginBackOff(p, l.Key, 0)
			pass(time.Duration(i) * time.Second)
			beginBackOff(p, l.Key, 0) // a response to a request from before the back-off: no further incident
			goesAfter(t, p, l, time.Duration(want)*time.Minute-time.Duration(i)*time.Second)
			pass(29 * time.Minute)
			goesAfter(t, p, l, 0)
		}
		pass(time.Minute) // 30 minutes in total since the last back-off
		beginBackOff(p, l.Key, 0)
		goesAfter(t, p, l, time.Minute)
	})
	synctest.Test(t, func(t *testing.T) { // late responses after the back-off, without a request since
		p, l := newExact(), rule(10, 5, 0)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, 0)
		pass(2 * time.Minute)
		beginBackOff(p, l.Key, 0)
		goesAfter(t, p, l, 0)
	})
}

func TestBackOffRefusesWaitsThatAreTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), every(time.Second)
		mustWait(t, p, "", l).Sent()
		start := time.Now()
		var wg sync.WaitGroup
		for _, c := range []struct {
			maxWait, goes, retry time.Duration
			why                  Reason
		}{
			{maxWait: time.Minute, goes: 30500 * time.Millisecond},
			{maxWait: 30 * time.Second, retry: 31 * time.Second, why: BackedOff}, // the back-off lasts another 29.5 s
			{maxWait: 32 * time.Second, goes: 31500 * time.Millisecond},
			{maxWait: 31 * time.Second, retry: 32 * time.Second, why: WaitTooLong}, // includes the queue behind the back-off
		} {
			wg.Go(func() {
				l := l
				l.MaxWait = c.maxWait
				s, err := wait(t.Context(), p, "", l)
				want := c.goes
				if c.retry > 0 {
					want = 500 * time.Millisecond // refused when the back-off begins
					if after := isBusy(t, err, c.why); after != c.retry {
						t.Errorf("retry after %v, want %v", after, c.retry)
					}
				}
				if d := time.Since(start) - want; d < 0 || d > 10 {
					t.Errorf("done after %v, want %v", time.Since(start), want)
				}
				s.Sent()
			})
			synctest.Wait()
		}
		pass(500 * time.Millisecond)
		beginBackOff(p, l.Key, 30*time.Second)
		l.MaxWait = 10 * time.Second
		_, err := wait(t.Context(), p, "", l)
		if after := isBusy(t, err, BackedOff); after != 32*time.Second {
			t.Errorf("a newcomer: retry after %v, want 32s", after)
		}
		_, err = p.WaitConnect(t.Context(), "", l) // a back-off also refuses dials
		if after := isBusy(t, err, BackedOff); after != 30*time.Second {
			t.Errorf("a dial: retry after %v, want 30s", after)
		}
		wg.Wait()
	})
}

// TestMaxBackOff: a request may wait long for its turn, but not long for a back-off.
func TestMaxBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), every(time.Minute)
		l.MaxWait, l.MaxBackOff = 1000*time.Hour, 10*time.Minute
		mustWait(t, p, "", l).Sent()
		start := time.Now()
		var wg sync.WaitGroup
		var last atomic.Int64
		for range 20 {
			wg.Go(func() {
				mustWait(t, p, "", l).Sent()
				last.Store(int64(time.Since(start)))
			})
		}
		wg.Wait()
		if got := time.Duration(last.Load()); got != 20*time.Minute {
			t.Errorf("the last of the queue went after %v, want 20m", got)
		}
		start = time.Now()
		beginBackOff(p, l.Key, l.MaxBackOff)
		mustWait(t, p, "", l).Sent()
		if got := time.Since(start); got != l.MaxBackOff {
			t.Errorf("the request went after %v, want after the back-off", got)
		}
		start = time.Now()
		wg.Go(func() {
			_, err := wait(t.Context(), p, "", l)
			if after := isBusy(t, err, BackedOff); after < 11*time.Minute || time.Since(start) != time.Second {
				t.Errorf("the waiting request was refused after %v, retry after %v; want when the back-off begins", time.Since(start), after)
			}
		})
		pass(time.Second)
		beginBackOff(p, l.Key, 11*time.Minute)
		wg.Wait()
		for _, ask := range []func(context.Context, string, Limits) (*Slot, error){p.Wait, p.WaitConnect} {
			_, err := ask(t.Context(), "", l)
			if after := isBusy(t, err, BackedOff); after < 11*time.Minute || time.Since(start) != time.Second {
				t.Errorf("a newcomer was refused after %v, retry after %v; want at once", time.Since(start), after)
			}
		}
	})
}

func TestBackOffHoldsDialsAndReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), rule(10, 5, 0)
		beginBackOff(p, l.Key, 20*time.Second) // a host that is not known yet
		start := time.Now()
		s, err := p.WaitConnect(t.Context(), "", l)
		if err != nil || time.Since(start) != 20*time.Second {
			t.Fatalf("WaitConnect: %v after %v", err, time.Since(start))
		}
		s.Sent()
		beginBackOff(p, l.Key, 20*time.Second)
		if err := s.Ready(t.Context()); err != nil || time.Since(start) != 40*time.Second {
			t.Errorf("Ready: %v after %v", err, time.Since(start))
		}
		s.Sent()
		l.Key, l.MaxConcurrent, l.MaxWait = "b.test", 1, 15*time.Second
		s = mustWait(t, p, "", l)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.WaitConnect(t.Context(), "", l)
			isBusy(t, err, BackedOff)
		})
		wg.Go(func() {
			s.Sent()
			beginBackOff(p, l.Key, 14*time.Second)
			isBusy(t, s.Ready(t.Context()), BackedOff)
		})
		synctest.Wait()
		beginBackOff(p, l.Key, time.Minute)
		now := time.Now()
		wg.Wait()
		if time.Since(now) != 0 {
			t.Error("not refused at once")
		}
	})
}

// TestForgivenStaysForgiven: a Retry-After does not bring back the length of a back-off that is forgiven.
func TestForgivenStaysForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), rule(10, 5, 0)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, 0)
		<-time.After(time.Minute + BackOffMemory)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, time.Second)
		<-time.After(2 * time.Second)
		goesAfter(t, p, l, 0)
		if got := beginBackOff(p, l.Key, 0); got != time.Minute {
			t.Errorf("the next back-off lasts %v", got)
		}
	})
}

// TestMergedLengthCounts: of two back-offs, the greater length counts, also if it is that of the one that ends sooner.
func TestMergedLengthCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), rule(10, 5, 0)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, 20*time.Minute)
		<-time.After(time.Second)
		since := time.Now()
		p.MergeBackOff(l.Key, BackOff{Until: since.Add(10 * time.Minute), Length: 8 * time.Minute})
		if all := p.Clocks(time.Now(), since); len(all) != 1 || all[0].BackOffLength != 8*time.Minute {
			t.Errorf("not stored: %+v", all)
		}
		goesAfter(t, p, l, 20*time.Minute-time.Second)
		<-time.After(time.Second) // a request that is sent before the end is no further incident
		goesAfter(t, p, l, 0)
		if got := beginBackOff(p, l.Key, 0); got != 16*time.Minute {
			t.Errorf("the next back-off lasts %v", got)
		}
	})
}

// TestEndedBackOffIsNotMergedAgain: what another process reports that does not know yet that an operator has ended the back-off
// does not bring it back. A new back-off counts.
func TestEndedBackOffIsNotMergedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(1, 1, 0)
		goesAfter(t, p, l, 0)
		old := BackOff{Until: time.Now().Add(time.Hour), Length: time.Hour}
		p.MergeBackOff(l.Key, old)
		pass(10 * time.Second)
		p.EndBackOff(l.Key)
		old.Until = old.Until.Add(-sameEnd / 2)
		p.MergeBackOff(l.Key, old)
		goesAfter(t, p, l, 0)
		p.MergeBackOff(l.Key, BackOff{Until: time.Now().Add(time.Minute)})
		goesAfter(t, p, l, time.Minute)
		// By now no report of the old one is under way: the site has asked for the same end again.
		p.MergeBackOff(l.Key, old)
		goesAfter(t, p, l, time.Until(old.Until))
	})
}
