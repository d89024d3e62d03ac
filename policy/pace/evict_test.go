package pace

import (
	"fmt"
	"math/rand"
	"testing"
	"testing/synctest"
	"time"
)

// refusedBy makes client request a host that answers 503 with a Retry-After.
func refusedBy(t *testing.T, p *Pacer, client, key string, retryAfter time.Duration) {
	t.Helper()
	l := every(time.Second)
	l.Key = key
	s := mustWait(t, p, client, l)
	s.Sent()
	s.BackOff(retryAfter, "id")
	s.Release()
}

// TestFullTableForgetsHostsOfTheLargestClient: one client fills the table with hosts in a
// back-off of an hour. Other clients still get space for new hosts, and their hosts are
// not forgotten.
func TestFullTableForgetsHostsOfTheLargestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, others = 1600, 50
		p := New(Options{MaxHosts: most})
		own := func(i int) string { return fmt.Sprintf("own-%d.test", i) }
		for i := range others {
			refusedBy(t, p, "modest", own(i), time.Hour)
		}
		for i := range 3 * most {
			refusedBy(t, p, "greedy", fmt.Sprintf("trap-%d.test", i), time.Hour)
		}
		for i := range 2 * most / evictPart {
			l := every(time.Second)
			l.Key = fmt.Sprintf("new-%d.test", i)
			mustWait(t, p, "modest", l).send()
		}
		if n := p.hosts.size(); n > most || int64(n) != p.hosts.known.Load() {
			t.Errorf("%d hosts known (%d counted), %d permitted", n, p.hosts.known.Load(), most)
		}
		for i := range others {
			if s, known := p.Host(own(i), ""); !known || s.BackOffUntil.IsZero() {
				t.Fatalf("the back-off of %s is forgotten", own(i))
			}
		}
	})
}

// TestLongestWaitsAreForgottenFirst: of one client's hosts, those with the longest
// back-off are forgotten first, in whatever order they were requested. Then those follow
// whose last request is oldest.
func TestLongestWaitsAreForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 160
		p := New(Options{MaxHosts: most})
		for i := range most {
			var retryAfter time.Duration
			switch {
			case i < most/2:
				retryAfter = time.Hour - time.Duration(i)*time.Second
			default:
				retryAfter = time.Second
			}
			refusedBy(t, p, "", fmt.Sprint(i), retryAfter)
			pass(time.Millisecond)
		}
		known := func(i int) bool { _, ok := p.Host(fmt.Sprint(i), ""); return ok }
		forgotten := func(from, to int) {
			t.Helper()
			for i := range most {
				if known(i) == (from <= i && i < to) {
					t.Errorf("host %d: known %v", i, known(i))
				}
			}
		}
		p.hosts.evict(p.hosts.holdings(time.Now()), most/evictPart, time.Now())
		forgotten(0, most/evictPart)
		p.hosts.evict(p.hosts.holdings(time.Now()), most/2, time.Now())
		forgotten(0, most/2+most/evictPart)
	})
}

// TestAForgottenHostIsNotForgottenAgainSoon: before a client's host can be forgotten a
// second time, the client must request many other hosts.
func TestAForgottenHostIsNotForgottenAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, rounds = 1600, 5
		p := New(Options{MaxHosts: most})
		l := every(time.Second)
		l.Key, l.MaxWait = "victim.test", 0
		arrived := 0
		for i := range most + rounds*most/evictPart {
			if s, err := p.Wait(t.Context(), "greedy", l); err == nil {
				s.Sent()
				s.BackOff(time.Hour, "id")
				s.Release()
				arrived++
			}
			refusedBy(t, p, "greedy", fmt.Sprintf("trap-%d.test", i), 30*time.Minute)
		}
		if arrived > rounds+2 {
			t.Errorf("%d requests arrived at a host that asked to be left alone, in %d turnovers", arrived, rounds)
		}
	})
}

// TestHostCountsAgainstItsLastClient: a host counts against the client that requested it
// last, not against the one that requested it first.
func TestHostCountsAgainstItsLastClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 160
		p := New(Options{MaxHosts: most})
		refusedBy(t, p, "greedy", "shared.test", 2*time.Minute)
		pass(2 * time.Minute)
		refusedBy(t, p, "modest", "shared.test", time.Hour)
		l := every(time.Second)
		l.Key, l.MaxWait = "shared.test", 0
		_, err := p.Wait(t.Context(), "greedy", l) // refused, so the host does not count against this client
		isBusy(t, err, BackedOff)
		for i := range 3 * most {
			refusedBy(t, p, "greedy", fmt.Sprint(i), time.Hour)
		}
		if _, known := p.Host("shared.test", ""); !known {
			t.Error("forgotten")
		}
	})
}

// TestRestoreKeepsTheShortestWaits: restored hosts count in the limit of the table, and
// one client's new hosts still find space.
func TestRestoreKeepsTheShortestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 160
		now := time.Now()
		var clocks []Clock
		for i := range 3 * most {
			clocks = append(clocks, Clock{Key: fmt.Sprint("trap-", i), BackOffUntil: now.Add(time.Hour)})
			if i%30 == 0 {
				clocks = append(clocks, Clock{Key: fmt.Sprint("fair-", i), BackOffUntil: now.Add(5 * time.Minute)})
			}
		}
		p := New(Options{MaxHosts: most})
		p.Restore(clocks)
		for i := range most / 2 {
			l := every(time.Second)
			l.Key = fmt.Sprint("new-", i)
			mustWait(t, p, "modest", l).send()
		}
		if n := p.hosts.size(); n > most {
			t.Errorf("%d hosts known, %d permitted", n, most)
		}
		for i := 0; i < 3*most; i += 30 {
			if _, known := p.Host(fmt.Sprint("fair-", i), ""); !known {
				t.Errorf("fair-%d is forgotten", i)
			}
		}
	})
}

// TestLevel compares level with its definition: the highest level at which enough hosts
// are removed.
func TestLevel(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 2000 {
		counts := make([]int, 1+rnd.Intn(8))
		sum := 0
		for i := range counts {
			counts[i] = rnd.Intn(30)
			sum += counts[i]
		}
		n := 1 + rnd.Intn(40)
		want := 0
		for most := range 30 {
			taken := 0
			for _, c := range counts {
				taken += max(0, c-most)
			}
			if taken >= n {
				want = most
			}
		}
		if got := level(counts, n); got != want {
			t.Fatalf("level(%v, %d) = %d, want %d", counts, n, got, want)
		}
	}
}
