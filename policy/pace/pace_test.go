package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule returns Limits that never delay a request except by the rate.
func rule(perSecond float64, burst int, delay time.Duration) Limits {
	return Limits{
		Key: "a.test", PerSecond: perSecond, Burst: burst, CrawlDelay: delay,
		MaxConcurrent: 1 << 20, MaxWait: 24 * time.Hour, MaxQueue: 1 << 20,
	}
}

func every(gap time.Duration) Limits { return rule(1/gap.Seconds(), 1, 0) }

func pass(d time.Duration) { <-time.After(d) }

// A log contains the times at which requests were sent, since its start.
type log struct {
	mu    sync.Mutex
	start time.Time
	at    []time.Duration
}

func newLog() *log { return &log{start: time.Now()} }

func (g *log) send(s *Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Sent()
	g.at = append(g.at, time.Since(g.start))
}

func (g *log) sent() []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.at)
}

// demand sends n requests that all arrive at once. Each dials first.
func demand(t *testing.T, p *Pacer, l Limits, n int, dial time.Duration) []time.Duration {
	t.Helper()
	g := newLog()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			s, err := p.Wait(t.Context(), "", l)
			if err != nil {
				t.Errorf("Wait: %v", err)
				return
			}
			if dial > 0 {
				pass(dial)
			}
			if err := s.Ready(t.Context()); err != nil {
				t.Errorf("Ready: %v", err)
			}
			g.send(s)
			s.Release()
		})
	}
	wg.Wait()
	return g.sent()
}

// spaced fails unless each of at is a gap after the one before, and at most slack more.
func spaced(t *testing.T, at []time.Duration, gap, slack time.Duration) {
	t.Helper()
	for i := 1; i < len(at); i++ {
		if d := at[i] - at[i-1]; d < gap || d > gap+slack {
			t.Errorf("request %d came %v after the one before, want %v", i, d, gap)
		}
	}
}

func mustWait(t *testing.T, p *Pacer, client string, l Limits) *Slot {
	t.Helper()
	s, err := wait(t.Context(), p, client, l)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return s
}

// wait calls Wait and Ready for a request whose connection is ready at once.
func wait(ctx context.Context, p *Pacer, client string, l Limits) (*Slot, error) {
	s, err := p.Wait(ctx, client, l)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// wakes reports whether the passing of time alone will permit a request.
func wakes(h *host) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, wake := h.next(time.Now())
	return wake != never
}

// isBusy fails unless err is a BusyError with this reason. It returns RetryAfter.
func isBusy(t *testing.T, err error, r Reason) time.Duration {
	t.Helper()
	var b *BusyError
	if !errors.As(err, &b) || !errors.Is(err, ErrTooBusy) || b.Reason != r {
		t.Fatalf("error %v, want busy: %v", err, r)
	}
	return b.RetryAfter
}

func TestSpacingIsExact(t *testing.T) {
	for _, gap := range []time.Duration{10 * time.Second, time.Second, 50 * time.Millisecond, time.Second / 3, 49 * time.Second, 7 * time.Hour / 11} {
		for name, l := range map[string]Limits{"requests_per_second": every(gap), "crawl-delay": rule(1000, 5, gap)} {
			t.Run(fmt.Sprint(name, " ", gap), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l.MaxWait = 1000 * time.Hour
					at := demand(t, New(Options{}), l, 100, 0)
					if at[0] != 0 {
						t.Errorf("the first came after %v", at[0])
					}
					spaced(t, at, gap, gap/1e9+2)
				})
			})
		}
	}
}

func TestTheGapCountsFromSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dial = 700 * time.Millisecond
		at := demand(t, New(Options{}), every(time.Second), 10, dial)
		if at[0] != dial {
			t.Errorf("the first came after %v", at[0])
		}
		spaced(t, at, time.Second, 2) // the others dial in time
	})
	synctest.Test(t, func(t *testing.T) { // the first connection is slow, the second is fast
		p, l, g := New(Options{}), rule(100, 10, time.Second), newLog()
		first := mustWait(t, p, "", l)
		var wg sync.WaitGroup
		wg.Go(func() { g.send(mustWait(t, p, "", l)) })
		pass(5 * time.Second)
		if len(g.sent()) != 0 {
			t.Error("a second was granted before the first was sent")
		}
		if wakes(first.host) {
			t.Error("a timer runs that can permit nothing")
		}
		g.send(first)
		wg.Wait()
		spaced(t, g.sent(), time.Second, 2)
	})
}

// TestWrittenCountsOnce: a request counts once, whoever reports it first.
func TestWrittenCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l, start := New(Options{}), every(time.Second), time.Now()
		s := mustWait(t, p, "", l)
		s.Written()
		s.Written()
		s.Release()
		s = mustWait(t, p, "", l)
		s.Written()
		s.Sent() // by another way, and so again
		s.Written()
		mustWait(t, p, "", l)
		if d := time.Since(start) - 3*time.Second; d < 0 || d > 5 {
			t.Errorf("the next went after %v, want 3s", time.Since(start))
		}
	})
}

func TestBurstNeverSpendsWhatCrawlDelayForbids(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(10, 50, 2*time.Second)
		spaced(t, demand(t, p, l, 10, 0), 2*time.Second, 2)
		pass(time.Hour)
		spaced(t, demand(t, p, l, 10, 0), 2*time.Second, 2)
	})
}

func TestTheSlowerRuleWins(t *testing.T) {
	for _, c := range []struct {
		name string
		l    Limits
		gap  time.Duration
	}{
		{"crawl-delay slower", rule(1, 1, 3*time.Second), 3 * time.Second},
		{"rate slower", rule(0.25, 1, time.Second), 4 * time.Second},
		{"equal", rule(0.5, 1, 2*time.Second), 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spaced(t, demand(t, New(Options{}), c.l, 20, 0), c.gap, 2)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a burst under a faster Crawl-delay: first the gap of the Crawl-delay, then that of the rate
		at := demand(t, New(Options{}), rule(1, 3, 100*time.Millisecond), 6, 0)
		spaced(t, at[:3], 100*time.Millisecond, 2)
		spaced(t, at[3:], time.Second-2, 10) // the rounding that delayed the first of them
	})
}

func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := demand(t, New(Options{}), rule(1, 5, 0), 8, 0)
		if at[4] != 0 || at[5] < time.Second || at[7] < 3*time.Second || at[7] > 3*time.Second+10 {
			t.Errorf("burst 5, 1/s: sent at %v", at)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a permit that was granted but not used counts as well
		p, l := New(Options{}), rule(1, 2, 0)
		l.MaxWait = 0
		a, _ := mustWait(t, p, "", l), mustWait(t, p, "", l)
		pass(time.Hour)
		_, err := p.Wait(t.Context(), "", l)
		isBusy(t, err, WaitTooLong)
		a.Release()
		mustWait(t, p, "", l)
	})
	synctest.Test(t, func(t *testing.T) { // a request that waits for these to be sent needs no timer
		for _, waits := range []Limits{rule(1, 2, 0), rule(1, 2, time.Second)} {
			p, l := New(Options{}), rule(1, 2, 0)
			a, b := mustWait(t, p, "", l), mustWait(t, p, "", l)
			var wg sync.WaitGroup
			wg.Go(func() { mustWait(t, p, "", waits) })
			synctest.Wait()
			if waits.CrawlDelay > 0 {
				b.Release()
			}
			if wakes(a.host) {
				t.Error("a timer runs that can permit nothing")
			}
			a.Sent()
			b.Sent()
			wg.Wait()
		}
	})
}

func TestUnusableLimitsRefuse(t *testing.T) {
	good := rule(1, 1, 0)
	with := func(change func(*Limits)) Limits {
		l := good
		change(&l)
		return l
	}
	for name, l := range map[string]Limits{
		"zero":             {},
		"no key":           with(func(l *Limits) { l.Key = "" }),
		"no rate":          with(func(l *Limits) { l.PerSecond = 0 }),
		"negative rate":    with(func(l *Limits) { l.PerSecond = -1 }),
		"NaN":              with(func(l *Limits) { l.PerSecond = math.NaN() }),
		"no burst":         with(func(l *Limits) { l.Burst = 0 }),
		"negative burst":   with(func(l *Limits) { l.Burst = -1 }),
		"no concurrency":   with(func(l *Limits) { l.MaxConcurrent = 0 }),
		"negative delay":   with(func(l *Limits) { l.CrawlDelay = -1 }),
		"negative at once": with(func(l *Limits) { l.MaxConcurrent = -1 }),
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{})
			for _, ask := range []func(context.Context, string, Limits) (*Slot, error){p.Wait, p.WaitConnect} {
				if s, err := ask(t.Context(), "", l); s != nil || !errors.Is(err, ErrLimits) {
					t.Errorf("got %v, %v; want ErrLimits", s, err)
				}
			}
		})
	}
}

func TestExtremeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(math.Inf(1), math.MaxInt, 0)
		for range 1000 {
			mustWait(t, p, "", l).Sent()
		}
		l = rule(math.SmallestNonzeroFloat64, 1, 0)
		l.Key = "slow.test"
		mustWait(t, p, "", l).Sent()
		_, err := p.Wait(t.Context(), "", l)
		isBusy(t, err, WaitTooLong)
		l.Key, l.MaxWait = "slower.test", math.MaxInt64
		l.CrawlDelay = math.MaxInt64
		mustWait(t, p, "", l).Sent()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := p.Wait(ctx, "", l); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v, want the deadline", err)
		}
	})
}

func TestThroughputUnderDemand(t *testing.T) {
	const handOver = time.Millisecond // from the permit to a reused connection
	for _, c := range []struct {
		perSecond, least float64
	}{{1, 0.99}, {20, 0.96}} {
		t.Run(fmt.Sprint(c.perSecond, "/s"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 1000
				at := demand(t, New(Options{}), rule(c.perSecond, 1, 0), n+1, handOver)
				got := n / (at[n] - at[0]).Seconds() / c.perSecond
				if got < c.least || got > 1 {
					t.Errorf("%.2f %% of what is permitted", 100*got)
				}
			})
		})
	}
}

func TestSlotIsHarmlessAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *Slot
		none.Sent()
		none.Release()
		if none.Held().Waited != 0 || none.Detach() == nil || none.Ready(t.Context()) == nil {
			t.Error("a nil slot gave something")
		}
		p, l := New(Options{}), every(time.Second)
		l.MaxConcurrent, l.MaxWait = 1, 0
		s := mustWait(t, p, "", l)
		s.Release()
		s.Release()
		s.Sent()
		if s.Detach() == nil || s.Ready(t.Context()) == nil {
			t.Error("a released slot gave something")
		}
		mustWait(t, p, "", l) // Sent counted nothing, and the second Release returned nothing
		_, err := p.Wait(t.Context(), "", l)
		isBusy(t, err, WaitTooLong)
	})
}

func TestErrors(t *testing.T) {
	for r, text := range map[Reason]string{
		WaitTooLong: "pace: the wait is too long, retry after 1 s",
		QueueFull:   "pace: the queue is full, retry after 1 s",
		StreamsFull: "pace: too many streams to the host are open, retry after 1 s",
		HostsFull:   "pace: too many hosts at once, retry after 1 s",
		Reason(99):  "pace: busy, retry after 1 s",
	} {
		if got := busy(r, 0).Error(); got != text {
			t.Errorf("%d: %q, want %q", r, got, text)
		}
	}
}
