package pace

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

// restart returns a Pacer with the state of p, stored as JSON and read again.
func restart(t testing.TB, p *Pacer, o Options) *Pacer {
	t.Helper()
	kept, err := json.Marshal(p.Clocks(time.Now(), time.Time{}))
	if err != nil {
		t.Fatal(err)
	}
	var clocks []Clock
	if err := json.Unmarshal(kept, &clocks); err != nil {
		t.Fatal(err)
	}
	next := New(o)
	next.chance = func() float64 { return 0 }
	next.Restore(clocks)
	return next
}

// TestRestartKeepsTheGap: after a restart at any time, a request under the limits after
// is sent as long after the last request as after says, and no later.
func TestRestartKeepsTheGap(t *testing.T) {
	const most = 10 * time.Minute
	for seed := range int64(testkit.Rounds(400)) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewSource(seed))
			limits := func(most time.Duration) (l Limits, gap time.Duration) {
				gap = 1 + time.Duration(rnd.Int63n(int64(most)))
				switch rnd.Intn(3) {
				case 0:
					return rule(100/gap.Seconds(), 1+rnd.Intn(9), gap), gap
				case 1:
					return rule(1/gap.Seconds(), 1, 0), gap
				}
				return rule(1/gap.Seconds(), 2+rnd.Intn(9), 0), gap // when the burst is spent: one request per gap
			}
			before, held := limits(most)
			p := newExact()
			for range 1 + rnd.Intn(5) {
				mustWait(t, p, "", before).send()
			}
			last := time.Now()
			after, gap := limits(max(held, minQuiet))
			for range 1 + rnd.Intn(3) { // a burst that has begun may end and begin again
				pass(time.Duration(rnd.Int63n(int64(gap))))
				p = restart(t, p, Options{})
			}
			s := mustWait(t, p, "", after)
			s.Sent()
			if d := time.Since(last) - gap; d < 0 && -d > gap/1e9 || d > 2*gap {
				t.Errorf("seed %d: %v after the last, want %v; sent under %+v, asked under %+v", seed, time.Since(last), gap, before, after)
			}
			begun := time.Now()
			s.Release()
			again := mustWait(t, p, "", after)
			if d := time.Since(begun); after.Burst == 1 && d < gap-gap/1e9 {
				t.Errorf("seed %d: the next went after %v, want %v", seed, d, gap)
			}
			again.Release()
		})
	}
}

func TestRestartLetsNothingMoreOut(t *testing.T) {
	sends := func(n int, l Limits) func(*testing.T, *Pacer) {
		return func(t *testing.T, p *Pacer) {
			for range n {
				mustWait(t, p, "", l).send()
			}
		}
	}
	seconds := func(ss ...int) (at []time.Duration) {
		for _, s := range ss {
			at = append(at, time.Duration(s)*time.Second)
		}
		return at
	}
	for _, c := range []struct {
		name   string
		before func(*testing.T, *Pacer)
		quiet  time.Duration // time before the restart
		down   time.Duration
		after  Limits
		at     []time.Duration // times since the restart at which requests are sent
	}{
		{"nothing sent", sends(0, rule(1, 1, 0)), 0, 0, rule(1, 3, 0), seconds(0, 0, 0, 1)},
		{"a crawl-delay", sends(1, rule(1, 1, 10*time.Second)), time.Second, 2 * time.Second, rule(1, 1, 10*time.Second), seconds(7, 17)},
		{"a crawl-delay appears", sends(1, rule(1, 5, 0)), time.Second, 0, rule(1, 1, 10*time.Second), seconds(9, 19)},
		{"a crawl-delay grows", sends(1, rule(1, 5, time.Second)), 50 * time.Second, 0, rule(1, 1, time.Minute), seconds(10, 70)},
		{"a crawl-delay goes", sends(1, rule(1, 1, time.Minute)), 10 * time.Second, 0, rule(1, 1, 0), seconds(0, 1)},
		{"a long gap, much later", sends(1, rule(1, 1, time.Hour)), 30 * time.Minute, 20 * time.Minute, rule(1, 1, time.Hour), seconds(600)},
		{"a burst is spent", sends(1, rule(1, 5, 0)), 0, 0, rule(1, 5, 0), seconds(1, 2, 3)},
		{"a burst comes back", sends(5, rule(1, 5, 0)), time.Second, 2 * time.Second, rule(1, 5, 0), seconds(0, 0, 0, 1)},
		{"a slow burst is remembered", sends(5, rule(0.01, 5, 0)), 200 * time.Second, 100 * time.Second, rule(0.01, 5, 0), seconds(0, 0, 0, 100)},
		{"assets are spent", sends(2, assets(rule(1, 1, 0), 20)), time.Second, time.Second, assets(rule(1, 1, 0), 20), seconds(0, 0, 1)},
		{"assets where there were none", sends(1, rule(1, 1, 0)), 0, 0, assets(rule(1, 1, 0), 3), seconds(0, 0, 0, 1)},
		{"a page after assets", sends(20, assets(rule(1, 1, 0), 20)), 0, 0, rule(1, 1, 0), seconds(0, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newExact()
				c.before(t, p)
				pass(c.quiet)
				clocks := p.Clocks(time.Now(), time.Time{})
				pass(c.down)
				p = New(Options{})
				p.Restore(clocks)
				begun := time.Now()
				for i, want := range c.at {
					mustWait(t, p, "", c.after).send()
					if d := time.Since(begun) - want; d < 0 || d > 10 {
						t.Errorf("request %d went after %v, want %v", i, time.Since(begun), want)
					}
				}
			})
		})
	}
}

func TestBackOffOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a back-off that the origin asked for
		p, l := newExact(), rule(10, 5, 0)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, 20*time.Minute)
		pass(5 * time.Minute)
		p = restart(t, p, Options{})
		if s := p.Stats(); s.BackedOff != 1 {
			t.Errorf("%d hosts are paused", s.BackedOff)
		}
		goesAfter(t, p, l, 15*time.Minute)
	})
	synctest.Test(t, func(t *testing.T) { // a back-off that the proxy chose is doubled, and later forgiven
		p, l := newExact(), rule(10, 5, 0)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, 0)
		for _, want := range []int{2, 4, 8} {
			pass(30 * time.Second)
			p = restart(t, p, Options{})
			pass(28 * time.Minute)
			p = restart(t, p, Options{})
			goesAfter(t, p, l, 0)
			beginBackOff(p, l.Key, 0)
			goesAfter(t, p, l, time.Duration(want)*time.Minute)
		}
		pass(15 * time.Minute)
		p = restart(t, p, Options{})
		pass(15 * time.Minute)
		goesAfter(t, p, l, 0)
		beginBackOff(p, l.Key, 0)
		goesAfter(t, p, l, time.Minute)
	})
}

func TestLatencyOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), adaptive(rule(10, 5, 0))
		slow := func() {
			s := mustWait(t, p, "", l)
			s.Sent()
			pass(4 * time.Second)
			s.Answered("/", true)
			s.Release()
		}
		slow()
		pass(time.Second)
		p = restart(t, p, Options{})
		if s := p.Stats(); s.Slowed != 1 {
			t.Errorf("%d hosts are slowed", s.Slowed)
		}
		goesAfter(t, p, l, 0) // five seconds after the last request
		goesAfter(t, p, l, 4*time.Second)
		pass(5 * time.Minute)
		p = restart(t, p, Options{})
		pass(5 * time.Minute) // ten minutes without a response
		goesAfter(t, p, l, 0)
		goesAfter(t, p, l, 0)
	})
}

func TestRestoredHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		clocks := make([]Clock, 100)
		for i := range clocks {
			clocks[i] = Clock{Key: fmt.Sprint(i), Sent: now.Add(-time.Duration(i) * time.Second), Gap: 10 * time.Minute}
		}
		p := New(Options{MaxHosts: 60})
		p.Restore(clocks[:60])
		if n := p.hosts.size(); n != 60 || p.hosts.known.Load() != 60 {
			t.Fatalf("%d hosts known (%d counted)", n, p.hosts.known.Load())
		}
		if n := len(p.Clocks(time.Now(), time.Time{})); n != 60 {
			t.Errorf("%d clocks of 60 hosts", n)
		}
		if p.Restore(clocks); p.hosts.size() > 60 || int64(p.hosts.size()) != p.hosts.known.Load() {
			t.Errorf("%d hosts known (%d counted), 60 permitted", p.hosts.size(), p.hosts.known.Load())
		}
		p = New(Options{MaxHosts: 60})
		p.Restore(clocks[:60])
		pass(10*time.Minute - 30*time.Second) // 29 were sent slightly less than half a minute ago, and one exactly half a minute ago
		if p.hosts.sweepAll(); p.hosts.size() != 30 {
			t.Errorf("%d hosts left", p.hosts.size())
		}
		pass(time.Minute)
		if p.hosts.sweepAll(); p.hosts.size() != 0 || p.hosts.known.Load() != 0 {
			t.Errorf("%d hosts left (%d counted)", p.hosts.size(), p.hosts.known.Load())
		}
	})
}

// TestClockAsJSON fixes the JSON that a store keeps, and restores it unchanged.
func TestClockAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), adaptive(rule(0.01, 1, time.Minute))
		s := mustWait(t, p, "", l)
		s.Sent()
		pass(2 * time.Second)
		s.Answered("/", true)
		s.BackOff(0, "id")
		s.Release()
		l.Key, l.PerSecond, l.CrawlDelay = "b.test", 1, 0
		mustWait(t, p, "", l).send()
		pass(10 * time.Second)
		l = assets(rule(0.1, 1, 0), 20)
		l.Key = "b.test"
		for range 2 {
			mustWait(t, p, "", l).send()
		}
		const want = `{"key":"a.test","sent":"2000-01-01T00:00:00Z","gap_ns":100000000000,` +
			`"paused_until":"2000-01-01T00:01:02Z","pause_length_ns":60000000000,"paused_by":"id","slow_average_ns":2000000000,"answered_at":"2000-01-01T00:00:02Z"}` + "\n" +
			`{"key":"b.test","sent":"2000-01-01T00:00:02Z","assets_sent":"2000-01-01T00:00:12Z","gap_ns":20000000000}` + "\n"
		for range 2 {
			clocks := p.Clocks(time.Now(), time.Time{})
			slices.SortFunc(clocks, func(a, b Clock) int { return strings.Compare(a.Key, b.Key) })
			var got strings.Builder
			for _, c := range clocks {
				if err := json.NewEncoder(&got).Encode(c); err != nil {
					t.Fatal(err)
				}
			}
			if got.String() != want { // the clock of synctest begins in 2000
				t.Errorf("got\n%swant\n%s", got.String(), want)
			}
			p = restart(t, p, Options{})
		}
	})
}

func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newExact()
		to := func(key string, l Limits) *Slot {
			l.Key = key
			s := mustWait(t, p, "", l)
			s.send()
			return s
		}
		keys := func(since time.Time, want ...string) {
			t.Helper()
			got := make(map[string]bool)
			for _, c := range p.Clocks(time.Now(), since) {
				got[c.Key] = true
			}
			for _, key := range want {
				if !got[key] {
					t.Errorf("%s is left out", key)
				}
			}
			if len(got) != len(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		begun := time.Now()
		to("quick", rule(1, 1, 0))
		to("slow", rule(1, 1, 10*time.Minute))
		l := rule(1, 1, 0)
		l.Key = "waiting"
		mustWait(t, p, "", l).Release() // never sent
		keys(time.Time{}, "quick", "slow")
		keys(begun, "quick", "slow")
		keys(begun.Add(1))
		pass(30 * time.Second)
		at := time.Now()
		to("assets", assets(rule(1, 1, 0), 5))
		beginBackOff(p, "paused", 0)
		keys(at, "assets", "paused")
		pass(30 * time.Second) // another group may have a Crawl-delay of a minute
		keys(time.Time{}, "slow", "assets", "paused")
		pass(5 * time.Minute)
		beginBackOff(p, "paused", time.Second)
		keys(time.Time{}, "slow", "paused")
		l = adaptive(rule(1, 1, 0))
		l.Key = "answers slowly"
		s := mustWait(t, p, "", l)
		s.Sent()
		pass(2 * time.Minute)
		at = time.Now()
		s.Answered("/", true)
		s.Release()
		keys(at, "answers slowly")
		pass(10 * time.Minute)
		keys(time.Time{}, "paused") // a back-off is remembered for 30 minutes
		pass(20 * time.Minute)
		keys(time.Time{})
	})
}

// BenchmarkClocks calls Clocks with a full table, in which all hosts have changed or none
// has.
func BenchmarkClocks(b *testing.B) {
	p, l := New(Options{}), rule(1, 1, time.Hour)
	for i := range defaultMaxHosts {
		l.Key = fmt.Sprintf("host-%d.test", i)
		s, err := wait(b.Context(), p, "", l)
		if err != nil {
			b.Fatal(err)
		}
		s.send()
	}
	for name, since := range map[string]time.Time{"all": {}, "none": time.Now()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = len(p.Clocks(time.Now(), since))
			}
			if since.IsZero() != (n == defaultMaxHosts) || n != 0 && n != defaultMaxHosts {
				b.Errorf("%d clocks", n)
			}
		})
	}
	clocks := p.Clocks(time.Now(), time.Time{})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			New(Options{}).Restore(clocks)
		}
	})
}

// TestBackOffBegunWhileClocksAreRead: a back-off under a BackOffKey is among the next Clocks if the
// last ones were read between the response that began it and its beginning.
func TestBackOffBegunWhileClocksAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), rule(1, 5, 0)
		l.BackOffKey = "shared"
		s := mustWait(t, p, "", l)
		defer s.Release()
		s.Sent()
		var read time.Time
		p.chance = func() float64 {
			pass(time.Second)
			read = time.Now()
			pass(time.Second)
			return 0
		}
		s.BackOff(0, "id")
		if !slices.ContainsFunc(p.Clocks(time.Now(), read), func(c Clock) bool { return c.Key == l.BackOffKey }) {
			t.Error("the back-off is not among the clocks that have changed")
		}
	})
}
