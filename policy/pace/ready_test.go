package pace

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// starts returns a slot of a request that was granted one and is still preparing.
func starts(t *testing.T, p *Pacer, client string, l Limits) *Slot {
	t.Helper()
	s, err := p.Wait(t.Context(), client, l)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return s
}

// TestReadyEstimateBehindOthers: a request with a long gap behind ready ones with short
// gaps is not refused as if those had the long gap too.
func TestReadyEstimateBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, quick := New(Options{}), rule(10, 5, 100*time.Millisecond)
		slow := quick
		slow.CrawlDelay, slow.MaxWait = 10*time.Second, 15*time.Second
		var slots []*Slot
		for range 4 {
			slots = append(slots, starts(t, p, "", quick))
			pass(2 * minLead)
		}
		last := starts(t, p, "", slow)
		var wg sync.WaitGroup
		mustWait(t, p, "", quick).send()
		start := time.Now()
		for _, s := range slots {
			wg.Go(func() {
				if err := s.Ready(t.Context()); err != nil {
					t.Error(err)
				}
				s.send()
			})
			synctest.Wait()
		}
		if err := last.Ready(t.Context()); err != nil {
			t.Fatalf("refused: %v", err)
		}
		if d := time.Since(start) - 10400*time.Millisecond; d < 0 || d > time.Millisecond {
			t.Errorf("went after %v, want 10.4s", time.Since(start))
		}
		wg.Wait()
	})
}

// TestEstimateIgnoresAReplayUnderItsOwnLimiter: a replay that waits for its client's own
// limiter delays no other request, and the estimate says so.
func TestEstimateIgnoresAReplayUnderItsOwnLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		s := mustWait(t, p, "slow", owned(l, 0.01, 1))
		s.Sent()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			s.send()
		})
		synctest.Wait()
		l.MaxWait = 1500 * time.Millisecond
		for range 5 {
			mustWait(t, p, "other", l).send()
		}
		wg.Wait()
	})
}

// TestRedialWaitsAnew: a request that has waited for nearly its MaxWait, and whose
// connection then failed, is not refused for that.
func TestRedialWaitsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		mustWait(t, p, "", l).send()
		hasty := l
		hasty.MaxWait = 1500 * time.Millisecond
		s := mustWait(t, p, "", hasty)
		var wg sync.WaitGroup
		wg.Go(func() { mustWait(t, p, "other", l).send() })
		synctest.Wait()
		s.Redial() // the other request takes the slot
		pass(200 * time.Millisecond)
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("refused: %v", err)
		}
		s.send()
		wg.Wait()
	})
}

// TestReadyIsNotRefusedByTheConcurrencyLimit: Ready needs no second concurrency slot.
func TestReadyIsNotRefusedByTheConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Millisecond)
		l.MaxConcurrent, l.MaxWait = 2, 10*time.Second
		s := starts(t, p, "", l)
		mustWait(t, p, "", l) // has the permit and never sends
		isBusy(t, s.Ready(t.Context()), WaitTooLong)
	})
}
