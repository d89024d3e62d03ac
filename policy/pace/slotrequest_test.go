package pace_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/policy/pace/storetest"
)

// A recorder is a Store that keeps the requests it gets. Both halves of a call take some
// time.
type recorder struct {
	pace.Store
	half time.Duration

	mu    sync.Mutex
	asked []pace.SlotRequest
}

func (r *recorder) Reserve(ctx context.Context, a pace.SlotRequest) (pace.Reservation, error) {
	r.mu.Lock()
	r.asked = append(r.asked, a)
	r.mu.Unlock()
	pass(r.half)
	defer pass(r.half)
	return r.Store.Reserve(ctx, a)
}

func (r *recorder) last() pace.SlotRequest { return r.asked[len(r.asked)-1] }

func newRecorder(half time.Duration) (*recorder, *pace.Pacer) {
	r := &recorder{Store: storetest.NewMemory(1).Join(), half: half}
	return r, pace.New(pace.Options{Store: r})
}

func ready(t *testing.T, p *pace.Pacer, client string, l pace.Limits) *pace.Slot {
	t.Helper()
	s, err := p.Wait(t.Context(), client, l)
	if err == nil {
		t.Cleanup(s.Release)
		err = s.Ready(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSlotRequest: the Store gets the terms of each limiter of this process.
func TestSlotRequest(t *testing.T) {
	strict, burst := limits(time.Second), limits(time.Second)
	strict.CrawlDelay = 2 * time.Second
	burst.PerSecond, burst.Burst = 10, 5
	owned, asset := burst, burst
	owned.Client, asset.AssetBurst = pace.Rate{PerSecond: 0.5, Burst: 1}, 3
	host := pace.Limiter{Limit: limiter.Limit{PerSecond: 10, Burst: 5}}
	for name, c := range map[string]struct {
		limits pace.Limits
		clocks []pace.Limiter
		width  time.Duration
	}{
		"a gap":                {strict, []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1, Burst: 1, Gap: 2 * time.Second}}}, 2 * time.Second / 64},
		"a burst":              {burst, []pace.Limiter{host}, 0},
		"an asset":             {asset, []pace.Limiter{{Name: "assets", Limit: limiter.Limit{PerSecond: 10, Burst: 3}}}, 0},
		"a client with a rate": {owned, []pace.Limiter{host, {Name: "client:c", Limit: limiter.Limit{PerSecond: 0.5, Burst: 1, Gap: 2 * time.Second}}}, 2 * time.Second / 64},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := newRecorder(0)
				c.limits.MaxConcurrent, c.limits.MaxWait = 7, 10*time.Second
				for range 2 {
					s := ready(t, p, "c", c.limits)
					a := r.last()
					if a.Key != "a.test" || a.MaxConcurrent != 7 || a.Window != c.width || a.MaxWait > 10*time.Second || a.MaxWait < 7*time.Second || a.Lease != nil || a.Unused {
						t.Errorf("asked for %+v", a)
					}
					if !slices.Equal(a.Limiters, c.clocks) {
						t.Errorf("by clocks %+v, want %+v", a.Limiters, c.clocks)
					}
					s.Sent()
					for i := range c.clocks {
						c.clocks[i].Sent = time.Now()
					}
				}
			})
		})
	}
}

// TestBackOffIsKnownFromAReservation: a Reservation reports a back-off, and each
// SlotRequest does too.
func TestBackOffIsKnownFromAReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRecorder(0)
		l := limits(time.Second)
		b := pace.BackOff{Until: time.Now().Add(time.Hour), Length: time.Minute}
		r.Report(pace.Report{Key: l.Key, BackOff: b})
		l.MaxWait = time.Minute
		for range 3 {
			s, err := p.Wait(t.Context(), "", l)
			if err == nil {
				err = s.Ready(t.Context())
				s.Release()
			}
			isBusy(t, err, pace.BackedOff)
		}
		if len(r.asked) != 1 {
			t.Errorf("asked %d times", len(r.asked))
		}
		l.MaxWait = 2 * time.Hour
		ready(t, p, "", l)
		if got := r.last().BackOff; !got.Until.Equal(b.Until) || got.Length != b.Length || time.Now().Before(b.Until) {
			t.Errorf("told of %+v at %v", got, time.Now())
		}
	})
}

// TestBackOffThatBeginsDuringReserve: the reply of the Store does not contain the
// back-off yet.
func TestBackOffThatBeginsDuringReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newRecorder(100 * time.Millisecond)
		l := limits(time.Second)
		first := ready(t, p, "", l)
		first.Sent()
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			ready(t, p, "", l)
			if d := time.Since(began); d < 30*time.Second {
				t.Errorf("sent after %v", d)
			}
		})
		pass(1150 * time.Millisecond) // the second half of the call
		first.BackOff(30*time.Second, "id")
		wg.Wait()
	})
}

// TestCallerThatLeavesDuringReserve: a reservation for a caller that has left is given
// back.
func TestCallerThatLeavesDuringReserve(t *testing.T) {
	for name, leave := range map[string]func(*pace.Slot, context.CancelFunc){
		"released":  func(s *pace.Slot, _ context.CancelFunc) { s.Release() },
		"cancelled": func(_ *pace.Slot, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory(1)
				r := &recorder{Store: m.Join(), half: 100 * time.Millisecond}
				p, l := pace.New(pace.Options{Store: r}), limits(10*time.Second)
				s, err := p.Wait(t.Context(), "", l)
				if err != nil {
					t.Fatal(err)
				}
				ready(t, p, "", l).Sent()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := s.Ready(ctx); err == nil {
						t.Error("is ready")
					}
				})
				pass(10150 * time.Millisecond)
				leave(s, cancel)
				wg.Wait()
				s.Release()
				if n := m.Leases(); n != 1 { // that of the first request
					t.Errorf("%d leases are held", n)
				}
			})
		})
	}
}
