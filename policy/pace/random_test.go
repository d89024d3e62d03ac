package pace

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

// A trial sends random requests to one host and checks each of them.
type trial struct {
	t *testing.T
	p *Pacer

	mu       sync.Mutex
	rnd      *rand.Rand
	last     time.Time
	at       []time.Time
	underWay int
	served   int
	step     time.Duration // the scale of all durations
}

func (r *trial) random(most time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.rnd.Int63n(int64(most)))
}

func (r *trial) chance(n int) bool { return r.random(time.Duration(n)) == 0 }

// occupy counts requests in flight and compares them with the limit.
func (r *trial) occupy(n, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay += n; r.underWay > most {
		r.t.Errorf("%d under way, %d permitted", r.underWay, most)
	}
}

// send sends on s and checks the gap to the last request.
func (r *trial) send(s *Slot, gap time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Sent()
	now := time.Now()
	if d := now.Sub(r.last); !r.last.IsZero() && d < gap {
		r.t.Errorf("sent %v after the one before, at least %v permitted", d, gap)
	}
	r.last = now
	r.at = append(r.at, now)
	r.served++
}

// request is one request of a client. It may wait, leave, dial, be replayed or become a
// stream.
func (r *trial) request(l Limits, gap time.Duration) {
	ctx := r.t.Context()
	if r.chance(3) {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, r.random(20*r.step))
		defer leave()
	}
	client := fmt.Sprint(int64(r.random(4)))
	take := r.p.Wait
	if r.chance(6) {
		take = r.p.WaitConnect
	}
	s, err := take(ctx, client, l)
	if err != nil {
		if !errors.Is(err, ErrTooBusy) && !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("Wait: %v", err)
		}
		return
	}
	defer s.Release()
	r.occupy(1, l.MaxConcurrent)
	defer func() { r.occupy(-1, l.MaxConcurrent) }()
	pass(r.random(r.step)) // the dial
	switch {
	case r.chance(8), s.Ready(ctx) != nil, r.chance(8): // the dial fails, the client leaves, the connection breaks
		return
	}
	r.send(s, gap)
	if r.chance(8) && s.Ready(ctx) == nil {
		pass(r.random(r.step/2 + 1))
		r.send(s, gap)
	}
	pass(r.random(3 * r.step)) // the body
	if r.chance(10) {
		s.BackOff(r.random(10*r.step)+1, "id")
	}
}

func (r *trial) run(n int, step time.Duration, limits func(*rand.Rand) (Limits, time.Duration)) {
	r.step = step
	var wg sync.WaitGroup
	for range n {
		r.mu.Lock()
		l, own := limits(r.rnd)
		r.mu.Unlock()
		wg.Go(func() { r.request(l, own) })
		if r.chance(2) {
			pass(r.random(2 * r.step))
		}
	}
	wg.Wait()
	h := r.p.hosts.lock("a.test")
	defer h.mu.Unlock()
	if len(h.expiry) != 0 || len(h.active)+len(h.yielded) != 0 || h.pages.limiter != (rateLimiter{state: h.pages.limiter.state, terms: h.pages.limiter.terms, last: h.pages.limiter.last}) {
		r.t.Errorf("left behind: %d queued, %d under way, %d unsent", len(h.expiry), len(h.active), h.pages.limiter.unsent)
	}
	if h.timer != nil && h.timer.Stop() {
		r.t.Error("left behind: a timer")
	}
	if r.served < n/20 {
		r.t.Errorf("only %d of %d went", r.served, n)
	}
}

// TestRandomRequestsKeepTheGap: whatever arrives, leaves and fails, two requests of one
// key are never closer than the gap, and no more than MaxConcurrent are in flight.
func TestRandomRequestsKeepTheGap(t *testing.T) {
	for seed := range int64(testkit.Rounds(60)) {
		synctest.Test(t, func(t *testing.T) {
			r := &trial{t: t, p: New(Options{}), rnd: rand.New(rand.NewSource(seed))}
			gap := 1 + r.random(time.Duration(1+r.rnd.Intn(100))*time.Second/10)
			l := rule(1/gap.Seconds(), 1, 0)
			if seed%2 == 0 {
				l = rule(100/gap.Seconds(), 1+r.rnd.Intn(9), gap)
			}
			l.MaxConcurrent, l.MaxQueue, l.MaxWait = 1+r.rnd.Intn(4), 5+r.rnd.Intn(50), 40*gap
			r.run(200, gap, func(*rand.Rand) (Limits, time.Duration) { return l, gap })
		})
	}
}

// TestRandomGroupsKeepTheirGaps: the same holds if each request has limits of its own.
func TestRandomGroupsKeepTheirGaps(t *testing.T) {
	for seed := range int64(testkit.Rounds(40)) {
		synctest.Test(t, func(t *testing.T) {
			r := &trial{t: t, p: New(Options{}), rnd: rand.New(rand.NewSource(seed))}
			r.run(200, time.Second, func(rnd *rand.Rand) (Limits, time.Duration) {
				gap := time.Duration(1+rnd.Intn(5)) * time.Second
				l := rule(1/gap.Seconds(), 1, 0)
				if rnd.Intn(2) == 0 {
					l = rule(5, 1+rnd.Intn(5), gap)
				}
				l.MaxConcurrent, l.MaxWait = 3, time.Minute
				return l, gap
			})
		})
	}
}

// TestRandomBurstsKeepTheRate: no period has more requests than the burst plus what the
// rate permits in it.
func TestRandomBurstsKeepTheRate(t *testing.T) {
	for seed := range int64(testkit.Rounds(30)) {
		synctest.Test(t, func(t *testing.T) {
			r := &trial{t: t, p: New(Options{}), rnd: rand.New(rand.NewSource(seed))}
			perSecond, burst := 0.1+10*r.rnd.Float64(), 2+r.rnd.Intn(8)
			l := rule(perSecond, burst, 0)
			l.MaxConcurrent, l.MaxWait = 1+r.rnd.Intn(20), time.Minute
			r.run(200, time.Duration(float64(time.Second)/perSecond), func(*rand.Rand) (Limits, time.Duration) { return l, 0 })
			for i := range r.at {
				for j := i; j < len(r.at); j++ {
					if most := float64(burst) + perSecond*r.at[j].Sub(r.at[i]).Seconds(); float64(j-i+1) > most+1e-6 {
						t.Fatalf("%d sent in %v, at most %.3f permitted", j-i+1, r.at[j].Sub(r.at[i]), most)
					}
				}
			}
		})
	}
}
