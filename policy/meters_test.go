package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
)

// onHour has ten requests of each host an hour.
var onHour = Host{Match: "*", Budget: Budget{Quota{Requests: 10}, time.Hour}}

func budgeted(t *testing.T, hosts ...Host) *Engine {
	t.Helper()
	e, err := New(Options{Cache: emptyCache{}, Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func toHost(host, path string) *Request {
	return &Request{Target: robots.Target{Origin: robots.Origin{Scheme: "http", Host: host, Port: 80}, PathQuery: path}}
}

// TestManyHosts: the table has a bound. Whoever fills it with small uses does not make the proxy forget what was used of other
// budgets, nor quotas.
func TestManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Options{
			Cache: emptyCache{}, Hosts: []Host{onHour}, Open: true,
			Clients: []Client{{Name: "lab-a", Networks: loopback, Quota: Quota{Requests: 1000}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		take := func(client, host string, n int) (taken int) {
			r := toHost(host, "/")
			for r.Client = client; taken < n; taken++ {
				if _, err := e.Take(t.Context(), r); err != nil {
					break
				}
			}
			return taken
		}
		const victims = 100
		for i := range victims {
			take("lab-a", fmt.Sprintf("victim%d.test", i), 5)
		}
		for i := range maxBudgets + maxBudgets/4 {
			take("", fmt.Sprintf("h%d.attack.test", i), 1)
		}
		if n := len(e.meters.all); n != maxBudgets+1 || e.meters.budgets != maxBudgets {
			t.Errorf("%d meters, %d are counted as those of budgets", n, e.meters.budgets)
		}
		for i := range victims {
			if n := take("", fmt.Sprintf("victim%d.test", i), 20); n != 5 {
				t.Errorf("%d more requests were taken of the five that were left", n)
			}
		}
		if uses, _ := e.ClientUses(); uses[0].Used.Requests != 5*victims {
			t.Errorf("the client has used %+v", uses[0].Used)
		}
		<-time.After(66 * time.Minute)
		e.ChangedUses()
		if n := len(e.meters.all); n != 1 || e.meters.budgets != 0 {
			t.Errorf("%d meters are left when all is over, %d of them of budgets", n, e.meters.budgets)
		}
	})
}

// TestUnusedHosts: requests that were not sent leave nothing in the table.
func TestUnusedHosts(t *testing.T) {
	e := budgeted(t, onHour)
	for i := range 50 {
		ticket, err := e.Take(t.Context(), toHost(fmt.Sprintf("h%d.test", i), "/"))
		if err != nil {
			t.Fatal(err)
		}
		ticket.GiveBack()
	}
	if e.ChangedUses(); len(e.meters.all) != 0 || e.meters.budgets != 0 {
		t.Errorf("%d meters are left", len(e.meters.all))
	}
}

// TestTooManyBudgets: a request to which more than so many budgets apply is refused.
func TestTooManyBudgets(t *testing.T) {
	const path = `/a%2Fb;x/..%5Cc//d/..;y%3Bz/e%5C..%2Fg`
	var spent robots.Effort
	entries := []Host{}
	for form := range forms(path, changesOf(path)&allChanges, &spent) {
		entries = append(entries, Host{Match: "*", Paths: []string{form + "$"}, Budget: onHour.Budget})
	}
	if len(entries) <= maxBudgetsOfRequest+1 {
		t.Fatalf("the path has %d forms", len(entries))
	}
	for n, want := range map[int]Reason{maxBudgetsOfRequest: ReasonUnreachable, maxBudgetsOfRequest + 1: ReasonTooComplex} {
		e := budgeted(t, entries[:n]...)
		if d := e.Decide(t.Context(), *toHost("a.test", path)); d.Verdict != Refuse || d.Reason != want {
			t.Errorf("%d budgets: %s", n, d.Reason)
		}
		entry := e.hosts.of(toHost("a.test", path))
		if found := len(entry.charges("a.test")); want != ReasonTooComplex && found != n {
			t.Errorf("%d of %d budgets apply", found, n)
		}
	}
}

// TestCheckBudgets: what is only looked at does not count.
func TestCheckBudgets(t *testing.T) {
	e, r := budgeted(t, onHour), toHost("a.test", "/")
	for i := range 11 {
		c := e.configFor(r)
		if err := e.spent(t.Context(), r, &c.host); (err != nil) != (i == 10) || err != nil && !errors.Is(err, ErrHeld) {
			t.Errorf("after %d requests: %v", i, err)
		}
		e.Take(t.Context(), r)
	}
	if len(e.meters.all) != 1 {
		t.Errorf("%d meters", len(e.meters.all))
	}
}

// TestBucketsOfAnotherClock: buckets that end after the present one belong to it, and those beyond the bound are added together.
func TestBucketsOfAnotherClock(t *testing.T) {
	hour := time.Hour.Milliseconds()
	m, now := Meter{Width: time.Hour, Span: 30 * time.Hour}, time.UnixMilli(100*hour+1)
	var many buckets
	for i := range int64(30) {
		many = append(many, Bucket{(72 + i) * hour, Use{Requests: 1}})
	}
	for _, c := range []struct {
		name  string
		b     buckets
		want  int64
		first int64
		n     int
	}{
		{"none", nil, 0, 0, 0},
		{"over", buckets{{70 * hour, Use{Requests: 1}}, {71 * hour, Use{Requests: 2}}}, 2, 71, 1},
		{"that ends now", buckets{{100 * hour, Use{Requests: 1}}, {101 * hour, Use{Requests: 2}}}, 3, 100, 2},
		{"that end later", buckets{{99 * hour, Use{Requests: 1}}, {101 * hour, Use{Requests: 2}}, {102 * hour, Use{Requests: 3}}, {900 * hour, Use{Requests: 4}}}, 10, 99, 2},
		{"that ends later alone", buckets{{900 * hour, Use{Requests: 4}}}, 4, 101, 1},
		{"empty", buckets{{99 * hour, Use{}}, {101 * hour, Use{Bytes: 1}}}, 0, 101, 1},
		{"too many", many, 30, 82, MaxBuckets},
	} {
		got := c.b.at(m, now)
		if got.sum().Requests != c.want || len(got) != c.n || c.n > 0 && got[0].End != c.first*hour {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestRepliesOutOfOrder: a reply of the store that was overtaken by a later one does not replace it, unless the store's clock was
// set back.
func TestRepliesOutOfOrder(t *testing.T) {
	now := time.Now()
	of := func(n int64) buckets { return buckets{{5, Use{Requests: n}}} }
	for _, c := range []struct {
		name string
		at   time.Duration
		n    int64
		want int64
	}{{"later", 1, 3, 3}, {"overtaken", -time.Second, 3, 5}, {"at the same time, with less", 0, 3, 5}, {"at the same time, with more", 0, 7, 7}, {"set back", -time.Hour, 3, 3}} {
		m := meter{known: of(5), heard: now}
		if m.learn(of(c.n), now.Add(c.at)); !reflect.DeepEqual(m.known, of(c.want)) {
			t.Errorf("%s: %+v", c.name, m.known)
		}
	}
}

// A listed is a QuotaStore that replies what a test has listed, and counts the calls.
type listed struct {
	used  Use
	away  bool
	calls int
}

func (l *listed) Take(_ context.Context, requests int64, all []Charge) (Count, error) {
	l.calls++
	if l.away {
		return Count{}, errors.New("away")
	}
	reply := Count{Now: time.Now()}
	for _, c := range all {
		if reply.Taken = requests > 0 && !c.Limit.IsReached(l.used); reply.Taken {
			l.used.Requests += requests
		}
		reply.Used = append(reply.Used, []Bucket{{c.end(reply.Now), l.used}})
	}
	return reply, nil
}

func (*listed) Replicas() int64 { return 2 }

// TestKnownUseIsAskedAgain: a request is not refused because of what the store has said long ago, and the store is not asked for each
// request that is refused.
func TestKnownUseIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &listed{used: Use{Requests: 9}}
		e, err := New(Options{Cache: emptyCache{}, Hosts: []Host{onHour}, Quotas: store})
		if err != nil {
			t.Fatal(err)
		}
		r := toHost("a.test", "/")
		c := e.configFor(r)
		check := func(when string, full bool, calls int) {
			t.Helper()
			store.calls = 0
			for range 3 {
				if err := e.spent(t.Context(), r, &c.host); (err != nil) != full {
					t.Errorf("%s: %v", when, err)
				}
			}
			if store.calls != calls {
				t.Errorf("%s: the store was asked %d times, want %d", when, store.calls, calls)
			}
		}
		check("at first", false, 0)
		e.Take(t.Context(), r)
		check("after the last request", true, 0)
		<-time.After(askAgain)
		check("later", true, 1)
		store.used.Requests--
		check("given back by another process", true, 0)
		<-time.After(askAgain)
		check("a second later", false, 1)
		e.Take(t.Context(), r)
		store.away = true
		<-time.After(askAgain)
		check("away", true, 1)
		if err := e.CheckTake(t.Context(), r); !errors.Is(err, ErrHeld) {
			t.Errorf("away: %v", err)
		}
	})
}

// TestShareWhileTelling: what the store is being told counts, too, for requests that find it unavailable meanwhile.
func TestShareWhileTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{listed: listed{away: true}}
		e, err := New(Options{Cache: emptyCache{}, Hosts: []Host{onHour}, Quotas: store})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var taken atomic.Int32
		for range 50 {
			all.Go(func() {
				if _, err := e.Take(t.Context(), toHost("a.test", "/")); err == nil {
					taken.Add(1)
				}
			})
		}
		if all.Wait(); taken.Load() != 5 {
			t.Errorf("%d were taken, the share is 5", taken.Load())
		}
	})
}

// slow is a QuotaStore whose calls take random times.
type slow struct {
	// mu guards listed.
	mu sync.Mutex
	listed
}

func (s *slow) Take(ctx context.Context, requests int64, all []Charge) (Count, error) {
	<-time.After(rand.N(time.Second))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed.Take(ctx, requests, all)
}
