package pace

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestChangedLimitsHandOutNothing sends one request under the limits before, waits, and
// sends another under after. The second is sent when after permits it, counted from the
// first.
func TestChangedLimitsHandOutNothing(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after Limits
		quiet, gap    time.Duration
	}{
		{"a crawl-delay appears", rule(1, 5, 0), rule(1, 5, 10*time.Second), 2 * time.Second, 10 * time.Second},
		{"a crawl-delay grows", rule(1, 5, time.Second), rule(1, 5, 10*time.Second), 3 * time.Second, 10 * time.Second},
		{"a crawl-delay shrinks", rule(100, 5, 10*time.Second), rule(100, 5, time.Second), 400 * time.Millisecond, time.Second},
		{"a crawl-delay goes, burst 1", rule(1, 1, 10*time.Second), rule(1, 1, 0), 200 * time.Millisecond, time.Second},
		{"a burst becomes 1", rule(1, 5, 0), rule(1, 1, 0), 100 * time.Millisecond, time.Second},
		{"a burst of 1 becomes 5", rule(1, 1, 0), rule(1, 5, 0), 100 * time.Millisecond, time.Second},
		{"a rate sinks", rule(10, 1, 0), rule(1, 1, 0), 50 * time.Millisecond, 950*time.Millisecond + 50*time.Millisecond},
		{"a rate rises: what was owed stays owed", rule(1, 1, 0), rule(10, 1, 0), 500 * time.Millisecond, 550 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, start := New(Options{}), time.Now()
				mustWait(t, p, "", c.before).Sent()
				pass(c.quiet)
				mustWait(t, p, "", c.after)
				if d := time.Since(start) - c.gap; d < 0 || d > 2 {
					t.Errorf("went after %v, want %v", time.Since(start), c.gap)
				}
			})
		})
	}
}

// TestEachGoesUnderTheLimitsItBrought: requests of two groups of one robots.txt share a
// queue, and each has its own limits.
func TestEachGoesUnderTheLimitsItBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := New(Options{}), newLog()
		slow, fast := rule(1, 1, 10*time.Second), rule(1, 1, 0)
		g.send(mustWait(t, p, "", fast))
		var wg sync.WaitGroup
		for _, l := range []Limits{slow, fast, slow} {
			wg.Go(func() { g.send(mustWait(t, p, "", l)) })
			pass(3 * time.Second) // the fast one could be sent at once, but does not overtake
		}
		wg.Wait()
		want := []time.Duration{0, 10 * time.Second, 11 * time.Second, 21 * time.Second}
		for i, at := range g.sent() {
			if d := at - want[i]; d < 0 || d > 10 {
				t.Fatalf("sent at %v, want %v", g.sent(), want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // no request is sent before one that was granted under a gap
		p := New(Options{})
		slow, fast := rule(10, 5, 10*time.Second), rule(10, 5, 0)
		s, start := mustWait(t, p, "", slow), time.Now()
		time.AfterFunc(time.Minute, s.Sent)
		mustWait(t, p, "", fast)
		if time.Since(start) != time.Minute {
			t.Errorf("went after %v", time.Since(start))
		}
	})
}

func TestDifferentKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Hour)
		l.MaxWait = 0
		for _, key := range []string{"a.test", "b.test", "c.test"} {
			l.Key = key
			mustWait(t, p, "", l).Sent()
		}
	})
}
