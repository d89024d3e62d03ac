package pace_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
)

// TestFleetKeepsOneGap: three replicas, one host, Crawl-delay 1, 60 requests.
func TestFleetKeepsOneGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(time.Second)
		l.PerSecond, l.CrawlDelay = 100, time.Second
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() { f.must(i%3, "", l) })
		}
		wg.Wait()
		f.spaced("all", f.sent, time.Second)
		if d := f.sent[59].at - f.sent[0].at; len(f.sent) != 60 || d > 61*time.Second {
			t.Errorf("the last of %d came %v after the first", len(f.sent), d)
		}
		for i := range 3 {
			if n := len(of(f.sent[:30], i)); n < 9 || n > 11 {
				t.Errorf("replica %d had %d of the first 30", i, n)
			}
		}
	})
}

// TestBackOffIsShared: a request that has its turn at another replica gives it up.
func TestBackOffIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(time.Second)
		s, err := f.replicas[0].Wait(t.Context(), "", l)
		if err != nil || s.Ready(t.Context()) != nil {
			t.Fatal(err)
		}
		f.send(0, s)
		var wg sync.WaitGroup
		wg.Go(func() { f.must(1, "", l) })
		wg.Go(func() { f.must(0, "", l) })
		hasty := l
		hasty.MaxWait = 10 * time.Second
		for range 2 {
			wg.Go(func() { isBusy(t, f.try(1, "hasty", hasty, 0), pace.BackedOff) })
		}
		pass(100 * time.Millisecond)
		s.BackOff(time.Minute, "id")
		s.Release()
		wg.Wait()
		if len(f.sent) != 3 || f.sent[1].at < 60100*time.Millisecond || f.sent[2].at > 77*time.Second {
			t.Errorf("sent: %v", f.sent)
		}
	})
}

// TestBackOffOfOneClientIsNotShared: only the replica that got the 429 knows the client's back-off, also after more
// reservations. The back-off of the host that it becomes is shared.
func TestBackOffOfOneClientIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(time.Second)
		l.MaxWait = 10 * time.Second
		backOff := func(client string) {
			s, err := f.replicas[0].Wait(t.Context(), client, l)
			if err != nil || s.Ready(t.Context()) != nil {
				t.Fatal(err)
			}
			f.send(0, s)
			s.BackOff(time.Minute, "id")
			s.Release()
		}
		s, err := f.replicas[0].Wait(t.Context(), "b", l)
		if err != nil || s.Ready(t.Context()) != nil {
			t.Fatal(err)
		}
		f.send(0, s)
		s.Succeeded()
		s.Release()
		backOff("a")
		for range 2 {
			f.must(0, "b", l)
			f.must(1, "a", l)
			isBusy(t, f.try(0, "a", l, 0), pace.BackedOff)
		}
		backOff("b")
		for i := range f.replicas {
			isBusy(t, f.try(i, "c", l, 0), pace.BackedOff)
		}
	})
}

func isBusy(t *testing.T, err error, r pace.Reason) {
	t.Helper()
	if busy, ok := errors.AsType[*pace.BusyError](err); !ok || busy.Reason != r {
		t.Errorf("%v, want %v", err, r)
	}
}

// TestConcurrencyLimitIsShared: replicas share the concurrency slots of a host, and
// return them.
func TestConcurrencyLimitIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(time.Millisecond)
		l.PerSecond, l.Burst, l.MaxConcurrent = 1000, 100, 2
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				if err := f.try(i%3, "", l, 10*time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := 2; i < len(f.sent); i++ {
			if d := f.sent[i].at - f.sent[i-2].at; d < 10*time.Second || d > 11*time.Second {
				t.Errorf("sent %v after the last but one", d)
			}
		}
		l.MaxWait = 5 * time.Second
		for i := range 2 {
			wg.Go(func() { f.try(i, "", l, 10*time.Second) })
		}
		synctest.Wait()
		isBusy(t, f.try(2, "", l, 0), pace.ConcurrencyFull)
		wg.Wait()
	})
}

// TestMaxBackOffIsOfAllReplicas: MaxBackOff also applies to a back-off that another replica
// reported.
func TestMaxBackOffIsOfAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(time.Second)
		l.MaxBackOff = 10 * time.Minute
		s, err := f.replicas[0].Wait(t.Context(), "", l)
		if err != nil || s.Ready(t.Context()) != nil {
			t.Fatal(err)
		}
		s.Sent()
		s.BackOff(11*time.Minute, "id")
		s.Release()
		synctest.Wait()
		began := time.Now()
		isBusy(t, f.try(1, "", l, 0), pace.BackedOff)
		if took := time.Since(began); took > time.Second {
			t.Errorf("refused after %v, want at once", took)
		}
		pass(2 * time.Minute)
		f.must(1, "", l)
	})
}

// TestCallerThatLeavesReturnsItsReservation: a caller that leaves gives its reservation
// back.
func TestCallerThatLeavesReturnsItsReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(10*time.Second)
		f.must(0, "", l)
		s, err := f.replicas[1].Wait(t.Context(), "", l)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if err := s.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ready: %v", err)
		}
		s.Release()
		f.must(0, "", l)
		f.spaced("all", f.sent, 10*time.Second)
		if d := f.sent[1].at; d > 11*time.Second {
			t.Errorf("the next was sent at %v", d)
		}
	})
}

// TestMissedSlotIsReservedAnew: a request that missed its slot reserves another one.
func TestMissedSlotIsReservedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 2), limits(10*time.Second)
		s, err := f.replicas[0].Wait(t.Context(), "", l)
		if err != nil || s.Ready(t.Context()) != nil || !s.Timely() {
			t.Fatal(err)
		}
		pass(time.Second)
		if s.Timely() {
			t.Error("still timely after a second")
		}
		if err := s.Ready(t.Context()); err != nil || !s.Timely() || time.Since(f.began) != time.Second {
			t.Errorf("not at once: %v, after %v", err, time.Since(f.began))
		}
		pass(time.Second)
		f.must(1, "", l)
		var wg sync.WaitGroup
		wg.Go(func() { f.must(1, "", l) })
		if err := s.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		f.send(0, s)
		s.Release()
		wg.Wait()
		f.spaced("all", f.sent, 10*time.Second)
	})
}
