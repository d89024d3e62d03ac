package pace

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func adaptive(l Limits) Limits { l.Adapt = true; return l }

func assets(l Limits, burst int) Limits { l.AssetBurst = burst; return l }

func owned(l Limits, perSecond float64, burst int) Limits {
	l.Client = Rate{perSecond, burst}
	return l
}

// send sends at once and releases the slot.
func (s *Slot) send() {
	s.Sent()
	s.Release()
}

// TestDiallingCostsNoSlot: connections are prepared before the turn of their requests.
// New and reused connections are mixed, and one that is slower than usual makes no other
// request lose its slot.
func TestDiallingCostsNoSlot(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  time.Duration
		dial func(i int) time.Duration
	}{
		{"cold alone", time.Second, func(int) time.Duration { return 300 * time.Millisecond }},
		{"every other one warm", time.Second, func(i int) time.Duration { return time.Duration(i%2) * 300 * time.Millisecond }},
		{"dialling takes several gaps", 50 * time.Millisecond, func(int) time.Duration { return 180 * time.Millisecond }},
		{"one hangs", time.Second, func(i int) time.Duration { return time.Duration(i%10/9) * 8 * time.Second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 101
				p, l, g := New(Options{}), rule(1000, 9, c.gap), newLog()
				l.MaxConcurrent = 6
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						s, err := p.Wait(t.Context(), "", l)
						if err != nil {
							t.Error(err)
							return
						}
						pass(c.dial(i))
						if err := s.Ready(t.Context()); err != nil {
							t.Error(err)
						}
						g.send(s)
						s.Release()
					})
					synctest.Wait()
				}
				wg.Wait()
				at := g.sent()
				for i := range at[1:] {
					if d := at[i+1] - at[i]; d < c.gap {
						t.Errorf("%v apart, want %v", d, c.gap)
					}
				}
				if took, least := at[n-1], (n-1)*c.gap; took > least*101/100+c.dial(9) {
					t.Errorf("all were sent after %v, permitted were %v", took, least)
				}
			})
		})
	}
}

// TestNoRequestOvertakesOnAReadyConnection: requests with a short Crawl-delay do not
// starve those with a long one if dialling takes longer than the short delay.
func TestNoRequestOvertakesOnAReadyConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 10 * time.Minute
		p, ctx := New(Options{}), t.Context()
		var mu sync.Mutex
		sent := map[string]int{}
		var wg sync.WaitGroup
		end := time.Now().Add(span)
		ask := func(client string, l Limits) {
			wg.Go(func() {
				for time.Now().Before(end) {
					s, err := p.Wait(ctx, client, l)
					if err != nil {
						t.Error(err)
						return
					}
					pass(180 * time.Millisecond)
					if err := s.Ready(ctx); err != nil {
						t.Error(err)
					}
					s.send()
					mu.Lock()
					sent[client]++
					mu.Unlock()
				}
			})
		}
		l := rule(5, 1, 0)
		l.MaxConcurrent = 8
		for range 4 {
			ask("quick", l)
		}
		l.CrawlDelay = 5 * time.Second
		ask("slow", l)
		wg.Wait()
		if most := int(span / (5 * time.Second)); sent["slow"] < most/2 || sent["quick"] < sent["slow"] {
			t.Errorf("sent %v, of the slow at most %d", sent, most)
		}
	})
}

// TestReplayUnderItsOwnLimiterHoldsUpNobody: a replay that waits for its client's own
// limiter delays no other request.
func TestReplayUnderItsOwnLimiterHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l, start := New(Options{}), every(time.Second), time.Now()
		s := mustWait(t, p, "slow", owned(l, 0.05, 1))
		s.Sent()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Ready(t.Context()); err != nil || time.Since(start) < 20*time.Second {
				t.Errorf("the replay: %v after %v", err, time.Since(start))
			}
			s.send()
		})
		synctest.Wait()
		for i := range 10 {
			mustWait(t, p, "other", l).send()
			if d := time.Since(start) - time.Duration(i+1)*time.Second; d < 0 || d > time.Millisecond {
				t.Errorf("request %d went after %v", i, time.Since(start))
			}
		}
		wg.Wait()
	})
}

// TestRedialGivesThePermitBack: nobody waits for a request whose connection failed. The
// request waits for another turn.
func TestRedialGivesThePermitBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l, start := New(Options{}), every(time.Second), time.Now()
		s := mustWait(t, p, "", l)
		s.Redial()
		goesAfter(t, p, l, 2*minLead) // others wait this long for a preparing request
		s.BackOff(10*time.Second, "id")
		pass(5 * time.Second) // dialling
		if err := s.Ready(t.Context()); err != nil || time.Since(start) != 10*time.Second+2*minLead {
			t.Errorf("went after %v, in the pause: %v", time.Since(start), err)
		}
		if h := s.Held(); h.Waited != 5*time.Second || h.BackOff != 5*time.Second {
			t.Errorf("held %+v", h)
		}
		s.Sent()
		s.Redial() // there is no permit to give back
		goesAfter(t, p, l, time.Second)
	})
}

// TestARefusedWaitCounts: the wait for the permit is recorded even if the request is
// refused.
func TestARefusedWaitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(10*time.Second)
		s := mustWait(t, p, "", l)
		s.Sent()
		time.AfterFunc(time.Second, func() { s.BackOff(time.Hour, "id") })
		s.limits.MaxWait = time.Minute
		isBusy(t, s.Ready(t.Context()), BackedOff)
		if h := s.Held(); h.Waited != time.Second {
			t.Errorf("held %+v", h)
		}
	})
}

// TestAClientsOwnRateHoldsUpNobodyElse: a client with a rate of its own gets the turns
// that this rate permits, and the others get all the rest.
func TestAClientsOwnRateHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		var mu sync.Mutex
		sent := map[string][]time.Duration{}
		start := time.Now()
		var wg sync.WaitGroup
		ask := func(client string, l Limits, n int) {
			for range n {
				wg.Go(func() {
					s := mustWait(t, p, client, l)
					mu.Lock()
					sent[client] = append(sent[client], time.Since(start))
					mu.Unlock()
					s.send()
				})
				synctest.Wait()
			}
		}
		ask("slow", owned(l, 0.1, 1), 4)
		ask("other", l, 27)
		wg.Wait()
		spaced(t, sent["slow"], 10*time.Second, 20*time.Millisecond)
		all := slices.Concat(sent["slow"], sent["other"])
		slices.Sort(all)
		spaced(t, all, time.Second, 2)
		if last := all[len(all)-1]; last > 30*time.Second+time.Millisecond {
			t.Errorf("the last went after %v", last)
		}
	})
}

// TestEstimateWithClientRates: a request behind a client with a slow rate of its own is
// not told to wait for that client's whole queue. A request of the slow client is.
func TestEstimateWithClientRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), every(time.Second)
		slow := owned(l, 0.1, 1)
		var wg sync.WaitGroup
		for client, l := range map[string]Limits{"slow": slow, "other": l} {
			for range 9 {
				wg.Go(func() { mustWait(t, p, client, l).send() })
				synctest.Wait()
			}
		}
		l.MaxWait, slow.MaxWait = time.Second, time.Second
		_, err := p.Wait(t.Context(), "other", l)
		if after := isBusy(t, err, WaitTooLong); after < 9*time.Second || after > 11*time.Second {
			t.Errorf("the other: retry after %v, true are about 9s", after)
		}
		_, err = p.Wait(t.Context(), "slow", slow)
		if after := isBusy(t, err, WaitTooLong); after < 89*time.Second || after > 91*time.Second {
			t.Errorf("the slow one: retry after %v, true are 90s", after)
		}
		wg.Wait()
	})
}

func TestAssetsShareABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), rule(1, 1, 0)
		start := time.Now()
		mustWait(t, p, "", l).send()
		for range 10 {
			mustWait(t, p, "", assets(l, 10)).send()
		}
		if time.Since(start) != 0 {
			t.Errorf("a page and its ten assets took %v", time.Since(start))
		}
		mustWait(t, p, "", assets(l, 10)).send() // the eleventh asset waits for the rate
		mustWait(t, p, "", l).send()             // the next page uses another limiter
		if d := time.Since(start) - time.Second; d < 0 || d > 2 {
			t.Errorf("then an asset and a page took %v, want 1s", time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // with a Crawl-delay, assets have no burst
		p, l, start := New(Options{}), assets(rule(5, 5, 2*time.Second), 10), time.Now()
		for range 5 {
			mustWait(t, p, "", l).send()
		}
		if d := time.Since(start) - 8*time.Second; d < 0 || d > 10 {
			t.Errorf("five took %v, want 8s", time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // assets share the concurrency limit and the back-off
		p, l := newExact(), rule(1, 1, 0)
		l.MaxConcurrent = 1
		s := mustWait(t, p, "", l)
		s.Sent()
		time.AfterFunc(time.Second, func() { s.BackOff(0, "id"); s.Release() })
		start := time.Now()
		mustWait(t, p, "", assets(l, 10)).send()
		if time.Since(start) != time.Second+time.Minute {
			t.Errorf("went after %v", time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a client's own slow rate also limits its assets in the long run
		p, l, start := New(Options{}), assets(owned(rule(1, 1, 0), 0.1, 1), 3), time.Now()
		for range 5 {
			mustWait(t, p, "", l).send()
		}
		if time.Since(start) != 20*time.Second {
			t.Errorf("five took %v, want 20s", time.Since(start))
		}
	})
}

// answer sends a request, waits for the response and releases the slot.
func answer(s *Slot, took time.Duration, fine bool) {
	s.Sent()
	pass(took)
	s.Answered("/", fine)
	s.Release()
}

func TestSlowAnswersLowerTheRate(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []time.Duration
		want    time.Duration
	}{
		{"no answer", nil, 0},
		{"a quick one", []time.Duration{999 * time.Millisecond}, 0},
		{"a slow one", []time.Duration{4 * time.Second}, 4 * time.Second},
		{"a fourth of the difference", []time.Duration{4 * time.Second, 8 * time.Second}, 5 * time.Second},
		{"quick again", []time.Duration{1200 * time.Millisecond, 0}, 0},
		{"longer than the most", []time.Duration{time.Minute}, maxSpacing},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := New(Options{}), adaptive(rule(10, 1, 0))
				for _, took := range c.answers {
					answer(mustWait(t, p, "", l), took, true)
				}
				s := mustWait(t, p, "", l)
				if s.Held().Slowed != c.want {
					t.Errorf("slowed to %v, want %v", s.Held().Slowed, c.want)
				}
				s.send()
				if want := min(1, int(c.want)); p.Stats().Slowed != want {
					t.Errorf("%d hosts are slowed, want %d", p.Stats().Slowed, want)
				}
				goesAfter(t, p, l, max(c.want, 100*time.Millisecond))
				pass(slowFor)
				mustWait(t, p, "", l).send()
				goesAfter(t, p, l, 100*time.Millisecond) // the average is forgotten
			})
		})
	}
}

func TestWhatSlowAnswersDoNot(t *testing.T) {
	t.Run("a quick error does not make it faster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, l := New(Options{}), adaptive(rule(10, 1, 0))
			answer(mustWait(t, p, "", l), 4*time.Second, true)
			answer(mustWait(t, p, "", l), 0, false)
			goesAfter(t, p, l, 4*time.Second)
		})
	})
	t.Run("turned off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, l := New(Options{}), rule(10, 1, 0)
			answer(mustWait(t, p, "", l), 4*time.Second, true)
			mustWait(t, p, "", l).send()
			goesAfter(t, p, l, 100*time.Millisecond)
		})
	})
	t.Run("a burst does not get past it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, l := New(Options{}), adaptive(rule(10, 5, 0))
			answer(mustWait(t, p, "", l), 4*time.Second, true)
			goesAfter(t, p, l, 0)
			goesAfter(t, p, l, 4*time.Second)
		})
	})
	t.Run("a longer Crawl-delay rules", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, l := New(Options{}), adaptive(rule(10, 1, 6*time.Second))
			answer(mustWait(t, p, "", l), 4*time.Second, true)
			goesAfter(t, p, l, 2*time.Second)
			goesAfter(t, p, l, 6*time.Second)
		})
	})
}

// twoHosts returns a Pacer with two hosts. a.test has one request in flight and three
// that wait for a minute each. b.test has a stream and is in a back-off. end releases
// everything.
func twoHosts(t *testing.T, pause time.Duration) (p *Pacer, end func()) {
	p, l := newExact(), every(time.Minute)
	s := mustWait(t, p, "", l)
	s.Sent()
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() { mustWait(t, p, fmt.Sprint(i), l).send() })
	}
	other := l
	other.Key = "b.test"
	stream := mustWait(t, p, "", other)
	stream.Sent()
	stream.BackOff(pause, "id")
	if err := stream.Detach(); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return p, func() {
		stream.Release()
		s.Release()
		wg.Wait()
	}
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := twoHosts(t, 30*time.Second)
		want := Stats{Hosts: 2, Waiting: 3, UnderWay: 1, Streams: 1, BackedOff: 1, BackOffs: 1}
		if got := p.Stats(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		end()
		if got, want := p.Stats(), (Stats{Hosts: 2, BackOffs: 1}); got != want {
			t.Errorf("at rest: got %+v, want %+v", got, want)
		}
	})
}
