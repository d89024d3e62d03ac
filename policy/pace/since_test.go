package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSinceHoldsHostsThatAreNotKnown: hosts count as having received a request at Since.
func TestSinceHoldsHostsThatAreNotKnown(t *testing.T) {
	const ago = 4 * time.Second
	for _, c := range []struct {
		name  string
		since time.Duration // time since Options.Since
		l     Limits
		waits time.Duration
	}{
		{"a crawl-delay", ago, rule(1, 1, 10*time.Second), 6 * time.Second},
		{"a rate", ago, every(5 * time.Second), time.Second},
		{"a burst is spent", ago, rule(0.1, 5, 0), 6 * time.Second},
		{"assets are spent", ago, assets(rule(0.1, 5, 0), 20), 6 * time.Second},
		{"a gap that is over", ago, rule(1, 1, 4*time.Second), 0},
		{"a minute", ago, rule(1, 1, time.Minute), 56 * time.Second},
		{"more than a minute", ago, rule(1, 1, time.Minute+1), 0},
		{"a rate of less than one a minute", ago, rule(0.016, 5, 0), 0},
		{"a minute ago", time.Minute, rule(1, 1, time.Minute), 0},
		{"the clock was set back", -time.Hour, rule(1, 1, 10*time.Second), 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Options{Since: time.Now().Add(-c.since).Round(0)})
				goesAfter(t, p, c.l, c.waits)
				if d := max(c.l.CrawlDelay, time.Second); c.l.Burst == 1 && c.l.PerSecond == 1 {
					goesAfter(t, p, c.l, d) // from now on the host is known
				}
			})
		})
	}
}

// TestSinceAfterTheStart: Since no longer matters some time after the start, and a later
// process has a Since of its own.
func TestSinceAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // after a minute, Since does not delay a burst
		p := New(Options{Since: time.Now().Add(-time.Minute)})
		for range 5 {
			goesAfter(t, p, rule(0.02, 5, 0), 0)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(1, 1, 10*time.Second)
		goesAfter(t, p, l, 0) // a zero Since delays nothing
		pass(8 * time.Second)
		p = restart(t, p, Options{Since: time.Now()})
		goesAfter(t, p, l, 10*time.Second) // the restored clock has no later request
		p = restart(t, p, Options{Since: time.Now().Add(-9 * time.Second)})
		goesAfter(t, p, l, 10*time.Second) // the restored clock has a later request
		p = restart(t, p, Options{Since: time.Now().Add(time.Second)})
		goesAfter(t, p, rule(1, 1, 90*time.Second), 90*time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // the limits of the first request do not decide for the next one
		p, now := New(Options{Since: time.Now()}), time.Now()
		for delay, want := range map[time.Duration]time.Duration{2 * time.Minute: 0, 10 * time.Second: 10 * time.Second, time.Hour: 0} {
			l := rule(1, 5, delay)
			l.MaxWait = 0
			s, err := wait(t.Context(), p, "", l)
			if err == nil {
				s.Release()
			} else if after := isBusy(t, err, WaitTooLong); after != want {
				t.Errorf("%v: retry after %v, want %v", delay, after, want)
			}
			if (err == nil) != (want == 0) {
				t.Errorf("%v: %v, %v after the start", delay, err, time.Since(now))
			}
		}
	})
}

// TestTheClockWasSetBack: a time in the future counts as now.
func TestTheClockWasSetBack(t *testing.T) {
	restored := func(c Clock) *Pacer {
		c.Key = "a.test"
		p := newExact()
		p.Restore([]Clock{c})
		return p
	}
	in := func(d time.Duration) time.Time { return time.Now().Add(d).Round(0) }
	synctest.Test(t, func(t *testing.T) {
		goesAfter(t, restored(Clock{Sent: in(time.Hour), Gap: 10 * time.Second}), rule(1, 1, 10*time.Second), 10*time.Second)
		goesAfter(t, restored(Clock{Sent: in(1 << 62)}), rule(1, 5, 0), time.Second)
		goesAfter(t, restored(Clock{AssetsSent: in(time.Hour)}), assets(rule(1, 1, 0), 5), time.Second)
		goesAfter(t, restored(Clock{BackOffUntil: in(24 * time.Hour), BackOffLength: 24 * time.Hour}), rule(1, 1, 0), time.Hour)
		p := restored(Clock{SlowAverage: 8 * time.Second, AnsweredAt: in(24 * time.Hour)})
		goesAfter(t, p, adaptive(rule(10, 5, 0)), 0)
		goesAfter(t, p, adaptive(rule(10, 5, 0)), 8*time.Second)
		pass(2 * time.Minute)
		goesAfter(t, p, adaptive(rule(10, 5, 0)), 0)
		pass(8 * time.Minute)
		goesAfter(t, p, adaptive(rule(10, 5, 0)), 0)
		goesAfter(t, p, adaptive(rule(10, 5, 0)), 100*time.Millisecond)                        // ten minutes without a response
		p = restored(Clock{Sent: in(-200 * 365 * 24 * time.Hour), Gap: -1, BackOffLength: -1}) // or the clock was never set
		goesAfter(t, p, rule(1, 1, 10*time.Second), 0)
	})
}
