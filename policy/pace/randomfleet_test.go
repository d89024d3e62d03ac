package pace_test

import (
	"context"
	"errors"
	"math/rand"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// TestRandomFleetsKeepTheGap: replicas keep the gap and leave no state behind, whatever
// arrives, leaves, is late, fails or causes a back-off.
func TestRandomFleetsKeepTheGap(t *testing.T) {
	for seed := range int64(testkit.Rounds(40)) {
		synctest.Test(t, func(t *testing.T) { randomFleet(t, rand.New(rand.NewSource(seed)), false) })
	}
}

// TestRandomFleetsKeepTheBound: replicas keep the average rate while the Store comes and
// goes. Each time, one request may be early.
func TestRandomFleetsKeepTheBound(t *testing.T) {
	for seed := range int64(testkit.Rounds(40)) {
		synctest.Test(t, func(t *testing.T) { randomFleet(t, rand.New(rand.NewSource(seed)), true) })
	}
}

func randomFleet(t *testing.T, rnd *rand.Rand, flapping bool) {
	const gap = time.Second
	n := 2 + rnd.Intn(4)
	f, l := newFleet(t, n), limits(gap)
	l.MaxConcurrent, l.MaxWait = n+rnd.Intn(4), time.Minute
	if rnd.Intn(2) == 0 {
		l.PerSecond, l.Burst, l.CrawlDelay = 100, 1+rnd.Intn(5), gap
	}
	var wg sync.WaitGroup
	for range 150 {
		r := randomRequest{f: f, from: rnd.Intn(n), kind: rnd.Intn(10), dial: random(rnd, gap), late: random(rnd, gap/4), took: random(rnd, 3*gap)}
		wg.Go(func() { r.send(l) })
		pass(random(rnd, gap))
		if flapping && rnd.Intn(20) == 0 {
			f.flap(rnd)
		}
	}
	wg.Wait()
	f.comeBack()
	f.must(0, "", l)
	if flapping {
		f.bounded(f.sent, gap, n)
	} else {
		f.spaced("all", f.sent, gap)
	}
	if len(f.sent) < 50 {
		t.Errorf("only %d were sent", len(f.sent))
	}
	if p := f.memory.Leases(); p != 0 {
		t.Errorf("left behind: %d places", p)
	}
	for _, r := range f.replicas {
		if s := r.Stats(); s.Waiting != 0 || s.UnderWay != 0 {
			t.Errorf("left behind: %+v", s)
		}
	}
}

func random(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rnd.Int63n(int64(most)))
}

// flap makes the Store unavailable or available, for some replicas or for all.
func (f *fleet) flap(rnd *rand.Rand) {
	from := time.Since(f.began)
	for _, r := range f.replicas {
		if rnd.Intn(3) == 0 {
			continue
		}
		if rnd.Intn(2) == 0 {
			r.store.FailNext()
		} else {
			r.store.Disconnect()
			r.Recheck()
		}
	}
	pass(random(rnd, 10*time.Second))
	f.comeBack()
	f.flaps = append(f.flaps, [2]time.Duration{from, time.Since(f.began)})
}

// A randomRequest is a request that may go wrong in several ways.
type randomRequest struct {
	f                *fleet
	from, kind       int
	dial, late, took time.Duration
}

func (r *randomRequest) send(l pace.Limits) {
	ctx := r.f.t.Context()
	if r.kind == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, 5*r.took)
		defer leave()
	}
	err := r.try(ctx, l)
	if err != nil && !errors.Is(err, pace.ErrTooBusy) && !errors.Is(err, context.DeadlineExceeded) {
		r.f.t.Error(err)
	}
}

func (r *randomRequest) try(ctx context.Context, l pace.Limits) error {
	s, err := r.f.replicas[r.from].Wait(ctx, string(rune('a'+r.kind)), l)
	if err != nil {
		return err
	}
	defer s.Release()
	pass(r.dial)
	if r.kind == 1 {
		return nil // the origin does not answer
	}
	for again := range 2 {
		if err := s.Ready(ctx); err != nil {
			return err
		}
		if r.kind == 2 && again == 0 {
			s.Redial()
			continue
		}
		if r.kind == 3 {
			pass(r.late)
		}
		if r.kind == 4 {
			return nil // the connection breaks
		}
		for !s.Timely() {
			if err := s.Ready(ctx); err != nil {
				return err
			}
		}
		r.f.send(r.from, s)
		if r.kind != 5 { // and the request is replayed
			break
		}
	}
	pass(r.took)
	if r.kind == 6 && r.took < time.Second {
		s.BackOff(r.took+1, "id")
	}
	if r.kind == 7 {
		return s.Detach()
	}
	return nil
}
