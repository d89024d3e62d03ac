package pace

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// named returns Limits of a host that shares its rate with others, but not its back-off.
func named(l Limits, host string) Limits {
	l.Key, l.BackOffKey = "192.0.2.1", host
	return l
}

// TestBackOffHoldsOneHostOfSeveral: hosts that share a rate keep the gap together. Only the
// host that answered 503 has a back-off, for all clients.
func TestBackOffHoldsOneHostOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), every(time.Second)
		busy, fine := named(l, "busy.test"), named(l, "fine.test")
		s := mustWait(t, p, "a", busy)
		s.Sent()
		s.BackOff(10*time.Second, "id")
		s.Release()

		begun, g := time.Now(), newLog()
		var all sync.WaitGroup
		went := make(chan time.Duration, 1)
		all.Go(func() { // the first request in the queue of its client
			mustWait(t, p, "a", busy).send()
			went <- time.Since(begun)
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() { s := mustWait(t, p, "a", fine); g.send(s); s.Release() })
			synctest.Wait()
		}
		all.Wait()
		if at := g.sent(); len(at) != 3 || at[0] > time.Second+2 {
			t.Errorf("the other host was asked at %v", at)
		}
		spaced(t, g.sent(), time.Second, 2)
		if d := <-went; d != 10*time.Second {
			t.Errorf("the host that is backed off was asked after %v", d)
		}
		if s, _ := p.Host("192.0.2.1", ""); !s.BackOffUntil.IsZero() {
			t.Error("the address is backed off")
		}
	})
}

// TestWaitingForTheBackOffOfOneHost: when a long back-off begins, only the requests to that
// host are refused, and its permits are taken back.
func TestWaitingForTheBackOffOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), every(time.Second)
		l.MaxWait = 20 * time.Second
		busy, fine := named(l, "busy.test"), named(l, "fine.test")
		first := mustWait(t, p, "", busy)
		first.Sent()
		begun := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := p.Wait(t.Context(), "", busy)
			isBusy(t, err, BackedOff)
			if d := time.Since(begun); d != 100*time.Millisecond {
				t.Errorf("refused after %v, not at once", d)
			}
		})
		synctest.Wait()
		all.Go(func() {
			mustWait(t, p, "", fine).send()
			if d := time.Since(begun); d > 2*time.Second+2 {
				t.Errorf("the other host was asked after %v", d)
			}
		})
		pass(100 * time.Millisecond)
		first.BackOff(time.Minute, "id")
		all.Wait()
		_, err := p.WaitConnect(t.Context(), "", busy)
		isBusy(t, err, BackedOff)
		if s, err := p.WaitConnect(t.Context(), "", fine); err != nil {
			t.Errorf("WaitConnect for the other host: %v", err)
		} else {
			s.Release()
		}
		isBusy(t, first.Ready(t.Context()), BackedOff) // a replay
	})
}

// TestAHostApartIsKept: a host stays in the table while a slot uses its back-off, and can
// be forgotten after that.
func TestAHostApartIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), named(every(time.Second), "busy.test")
		s := mustWait(t, p, "", l)
		s.Sent()
		pass(time.Hour)
		if p.hosts.sweepAll(); p.hosts.size() != 2 {
			t.Fatalf("%d hosts known while a slot is held, want 2", p.hosts.size())
		}
		p.hosts.evict(p.hosts.holdings(time.Now()), 10, time.Now())
		s.BackOff(time.Minute, "id")
		s.Release()
		s.Release()
		hasty := l
		hasty.MaxWait = 0
		_, err := p.Wait(t.Context(), "", hasty)
		isBusy(t, err, BackedOff)
		if n := s.backOffHost.pins.Load(); n != 0 {
			t.Errorf("%d pins left", n)
		}
		pass(time.Hour)
		if p.hosts.sweepAll(); p.hosts.size() != 0 {
			t.Errorf("%d hosts known, want none", p.hosts.size())
		}
	})
}

// TestRestoredBackOffHoldsOneHostOfSeveral: a back-off that was restored, or that another
// process reported, applies to its host alone.
func TestRestoredBackOffHoldsOneHostOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), every(time.Second)
		s := mustWait(t, p, "", named(l, "busy.test"))
		s.Sent()
		s.BackOff(time.Minute, "id")
		s.Release()
		next := newExact()
		next.Restore(p.Clocks(time.Now(), time.Time{}))
		mustWait(t, next, "", named(l, "told.test")).send()
		next.MergeBackOff("told.test", BackOff{Until: time.Now().Add(time.Minute)})
		l.MaxWait = 10 * time.Second
		for _, host := range []string{"busy.test", "told.test"} {
			_, err := next.Wait(t.Context(), "", named(l, host))
			isBusy(t, err, BackedOff)
		}
		mustWait(t, next, "", named(l, "fine.test")).send()
	})
}
