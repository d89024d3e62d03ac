package pace_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
)

// place returns a slot whose request was not sent yet.
func (f *fleet) place(from int, l pace.Limits) *pace.Slot {
	f.t.Helper()
	s, err := f.replicas[from].Wait(f.t.Context(), "", l)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(s.Release)
	return s
}

// TestCloseAndReleaseEndReserve: Ready ends when the Pacer is closed or the slot is
// released, and another request may have its turn.
func TestCloseAndReleaseEndReserve(t *testing.T) {
	for name, end := range map[string]func(*pace.Pacer, *pace.Slot){
		"closed":   func(p *pace.Pacer, _ *pace.Slot) { p.Close() },
		"released": func(_ *pace.Pacer, s *pace.Slot) { s.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, l := newFleet(t, 2), limits(10*time.Second)
				f.must(0, "", l)
				s := f.place(1, l)
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := s.Ready(t.Context()); err == nil || time.Since(f.began) != time.Second {
						t.Errorf("%v, after %v", err, time.Since(f.began))
					}
				})
				pass(time.Second)
				if n := f.replicas[1].Stats().Waiting; n != 1 {
					t.Errorf("%d wait", n)
				}
				end(f.replicas[1].Pacer, s)
				wg.Wait()
				s.Release()
				f.must(0, "", l)
				if d := f.sent[1].at; d > 11*time.Second || f.memory.Leases() != 0 {
					t.Errorf("the next was sent at %v; %d leases are held", d, f.memory.Leases())
				}
			})
		})
	}
}

// TestReadyOfAClosedPacer: a request that would have to wait is refused, and one that
// need not wait continues.
func TestReadyOfAClosedPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(10*time.Second)
		f.must(0, "", l)
		s := f.place(1, l)
		other := l
		other.Key = "b.test"
		at := f.place(1, other)
		f.replicas[1].Close()
		began := time.Now()
		if err := s.Ready(t.Context()); !errors.Is(err, pace.ErrClosed) {
			t.Errorf("Ready: %v", err)
		}
		if err := at.Ready(t.Context()); err != nil || !time.Now().Equal(began) {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}

// TestStreamReturnsItsLease: a request that becomes a stream returns its concurrency slot
// to the Store.
func TestStreamReturnsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(time.Second)
		l.MaxConcurrent = 1
		s := f.place(0, l)
		if err := s.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.send(0, s)
		if n := f.memory.Leases(); n != 1 {
			t.Errorf("%d leases are held", n)
		}
		if err := s.Detach(); err != nil || f.memory.Leases() != 0 {
			t.Errorf("Detach: %v; %d leases are held", err, f.memory.Leases())
		}
	})
}

// TestRedialReturnsTheReservation: a request whose connection failed returns its
// reservation.
func TestRedialReturnsTheReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(time.Hour)
		s := f.place(0, l)
		if err := s.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Redial()
		f.must(1, "", l)
		if d := time.Since(f.began); d > 0 {
			t.Errorf("sent after %v", d)
		}
	})
}

// TestReleaseEndsThePermit: a permit is not valid after the slot is released, even if the
// connection writes late.
func TestReleaseEndsThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(time.Hour)
		s := f.place(0, l)
		if err := s.Ready(t.Context()); err != nil || !s.Timely() {
			t.Fatal(err)
		}
		s.Release()
		f.must(1, "", l)
		if s.Timely() || s.Ready(t.Context()) == nil {
			t.Error("may still be sent")
		}
	})
}

// TestContentionIsForecast: a request that would wait too long behind those of other
// replicas is refused at once, with the estimated wait.
func TestContentionIsForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 4), limits(time.Second)
		var wg sync.WaitGroup
		for i := range 4 {
			for range 20 {
				wg.Go(func() { f.must(i, "", l) })
			}
		}
		pass(40 * time.Second) // each replica has sent ten
		asked := time.Now()
		hasty := l
		hasty.MaxWait = 30 * time.Second // three times what this replica's own requests would take
		err := f.try(0, "", hasty, 0)
		isBusy(t, err, pace.WaitTooLong)
		if d := time.Since(asked); d > 0 {
			t.Errorf("refused after %v", d)
		}
		if busy, _ := errors.AsType[*pace.BusyError](err); busy == nil || busy.RetryAfter < 35*time.Second || busy.RetryAfter > 55*time.Second {
			t.Errorf("%v", err)
		}
		f.must(0, "", l)
		wg.Wait()
		pass(2 * time.Minute)
		hasty.MaxWait = 2 * time.Second
		f.must(0, "", hasty) // no other replica is active
		f.must(0, "", hasty)
		f.must(0, "", hasty)
	})
}

// TestEstimateUsesTheTermsInForce: slots that the Store gave before the robots.txt was known say
// nothing about how long a request waits under its Crawl-delay.
func TestEstimateUsesTheTermsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(100*time.Microsecond)
		var wg sync.WaitGroup
		for i := range 9 { // a slot lasts a millisecond, which is ten gaps
			wg.Go(func() { f.must(i%3, "", l) })
		}
		wg.Wait()
		l.CrawlDelay, l.MaxWait = time.Second, 1500*time.Millisecond
		f.must(0, "", l)
	})
}

// TestEstimateKnowsTheSlotOfTheStore: a request does not go before the slot that the Store has
// given to the request before it. One slot that took long is no contention.
func TestEstimateKnowsTheSlotOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(10*time.Second)
		f.must(0, "", l)
		var wg sync.WaitGroup
		for _, i := range []int{1, 2, 0} {
			wg.Go(func() { f.must(i, "", l) })
			pass(time.Second)
		}
		pass(10 * time.Second) // the request of replica 0 has asked the Store: its slot begins at 30 s
		hasty := l
		hasty.MaxWait = time.Second
		for _, want := range []time.Duration{27 * time.Second, 7 * time.Second} {
			busy, ok := errors.AsType[*pace.BusyError](f.try(0, "", hasty, 0))
			if !ok || (busy.RetryAfter-want).Abs() > time.Second {
				t.Errorf("%v, want %v", busy, want)
			}
			pass(20 * time.Second)
		}
		wg.Wait()
	})
}

// TestReconnectIsNoticed: when the Store returns, a request that waited at the slower
// rate is sent sooner.
func TestReconnectIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(10*time.Second)
		f.leave()
		f.must(0, "", l)
		first := f.sent[0].at
		var wg sync.WaitGroup
		wg.Go(func() { f.must(0, "", l) })
		pass(5 * time.Second)
		f.comeBack()
		wg.Wait()
		if d := f.sent[1].at - first; d < 10*time.Second || d > 15*time.Second || f.sent[1].alone { // the 6 s alone filled a fifth of the bucket
			t.Errorf("sent %v after the one before: %+v", d, f.sent[1])
		}
	})
}

// A broken Store answers no request but never reports that it is unavailable.
type broken struct{ asked int }

func (b *broken) Standing() pace.Standing { return pace.Standing{} }
func (b *broken) Report(pace.Report)      {}
func (b *broken) Reserve(context.Context, pace.SlotRequest) (pace.Reservation, error) {
	b.asked++
	return pace.Reservation{}, errors.New("broken")
}

// TestFailingStoreLetsNothingOut: while the Store fails, nothing is sent, and the Store
// is not asked endlessly.
func TestFailingStoreLetsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(broken)
		p, l := pace.New(pace.Options{Store: b}), limits(time.Millisecond)
		l.MaxWait = 10 * time.Second
		s, err := p.Wait(t.Context(), "", l)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		isBusy(t, s.Ready(t.Context()), pace.WaitTooLong)
		if b.asked < 20 || b.asked > 60 {
			t.Errorf("asked %d times in 10 s", b.asked)
		}
		if h, _ := p.Host(l.Key, ""); !h.Sent.IsZero() || h.Waiting != 0 {
			t.Errorf("left behind: %+v", h)
		}
	})
}

// TestStoreOutageAtStart: replicas that start without the Store do not all send at once,
// and none sends faster than its share.
func TestStoreOutageAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, memory: storetest.NewMemory(10), began: time.Now()}
		for range 10 {
			s := f.memory.Join()
			s.Disconnect()
			f.add(s)
		}
		var wg sync.WaitGroup
		for i := range 10 {
			for range 5 {
				wg.Go(func() { f.must(i, "", limits(time.Second)) })
			}
		}
		wg.Wait()
		f.bounded(f.sent, time.Second, 10)
		for i := range 10 {
			f.spaced("alone", of(f.sent, i), 10*time.Second)
		}
		if d := f.sent[0].at; d < time.Second {
			t.Errorf("the first was sent at %v", d)
		}
	})
}

// TestShareOfABurst: without the Store, a replica has its share of the burst and of the
// concurrency limit, even if that is less than one.
func TestShareOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(time.Second)
		l.PerSecond, l.Burst, l.MaxConcurrent = 3, 9, 6
		f.must(0, "", l)
		pass(time.Second)
		f.leave()
		left := time.Since(f.began)
		var wg sync.WaitGroup
		for i := range 3 {
			for range 20 {
				wg.Go(func() { f.must(i, "", l) })
			}
		}
		wg.Wait()
		f.bounded(f.log(left, never), time.Second/3, 3)
		pass(time.Minute)
		again := time.Since(f.began)
		for range 5 {
			f.must(0, "", l)
		}
		if all := f.log(again, never); all[2].at != again || all[3].at < again+time.Second {
			t.Errorf("after a quiet time: %+v", all)
		}
		l.Key, l.MaxWait = "b.test", 0
		f.place(1, l)
		f.place(1, l)
		isBusy(t, f.try(1, "", l, 0), pace.ConcurrencyFull)
	})
}
