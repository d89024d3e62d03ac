package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// budget is a budget of requests and bytes.
func budget(requests, bytes int64, per time.Duration) policy.Budget {
	return policy.Budget{Quota: policy.Quota{Requests: requests, Bytes: bytes}, Per: per}
}

// to is a request to a host.
func to(host, pathQuery string) *policy.Request {
	r := ask("FooBot/1.0", pathQuery)
	r.Origin.Host = host
	return &r
}

// budgeted returns an Engine with entries.
func budgeted(t testing.TB, entries ...policy.Host) *policy.Engine {
	return engine(t, file(""), policy.Options{Hosts: entries})
}

// sleep waits in a synctest bubble.
func sleep(d time.Duration) { <-time.After(d) }

// taken returns how many requests of n were taken.
func taken(t testing.TB, e *policy.Engine, n int, r *policy.Request) (taken int) {
	t.Helper()
	for range n {
		switch _, err := e.Take(t.Context(), r); {
		case err == nil:
			taken++
		case !errors.Is(err, policy.ErrHeld) || errors.Is(err, policy.ErrQuota):
			t.Fatal(err)
		}
	}
	return taken
}

// TestBudget: a request counts until its bucket, a twelfth of the period, is older than the period.
func TestBudget(t *testing.T) {
	// The clock of synctest begins at midnight UTC.
	synctest.Test(t, func(t *testing.T) {
		e, r := budgeted(t, policy.Host{Match: "*.test", Budget: budget(3, 0, time.Hour)}), to("a.test", "/")
		began := time.Now()
		for _, c := range []struct {
			after time.Duration
			takes int
			until time.Duration
		}{
			{0, 1, 0},
			{5*time.Minute - time.Millisecond, 1, 0},                        // in the first bucket
			{5 * time.Minute, 1, 65 * time.Minute},                          // at its end: in the second
			{65*time.Minute - time.Millisecond, 0, 65 * time.Minute},        // the whole first bucket counts
			{65 * time.Minute, 2, 70 * time.Minute},                         // and then nothing of it
			{70*time.Minute - time.Nanosecond, 0, 70 * time.Minute},         // the second
			{70 * time.Minute, 1, 2*time.Hour + 10*time.Minute},             // the buckets from 65 and 70 minutes on
			{2*time.Hour + 10*time.Minute, 2, 2*time.Hour + 15*time.Minute}, // that from 65 minutes is over
			{48 * time.Hour, 3, 49*time.Hour + 5*time.Minute},
		} {
			sleep(c.after - time.Since(began))
			if n := taken(t, e, c.takes, r); n != c.takes {
				t.Errorf("after %v: %d were taken, want %d", c.after, n, c.takes)
			}
			if c.until == 0 {
				continue
			}
			_, err := e.Take(t.Context(), r)
			full, ok := errors.AsType[*policy.HoldError](err)
			if !ok || full.Until.Sub(began) != c.until || full.Reason != policy.ReasonBudget || full.Detail != "The budget of this host is used up: 3 requests in 1 h (budget in hosts)" {
				t.Errorf("after %v: %v, %+v", c.after, err, full)
			}
			if asked := e.CheckTake(t.Context(), r); asked == nil || asked.Error() != err.Error() {
				t.Errorf("after %v: CheckTake: %v", c.after, asked)
			}
			if all := e.Budgets("a.test"); len(all) != 1 || all[0].Match != "*.test" || all[0].Used.Requests != 3 || all[0].Next.Sub(began) != c.until {
				t.Errorf("after %v: %+v", c.after, all)
			}
		}
		if n := taken(t, e, 5, to("b.test", "/")); n != 3 {
			t.Errorf("another host: %d", n)
		}
		if n := taken(t, e, 5, to("a.example", "/")); n != 5 || e.Budgets("a.example") != nil {
			t.Errorf("a host without an entry: %d", n)
		}
	})
}

// TestNoPeriodHasMoreThanTheBudget compares an Engine with a list of all requests, at random times: no period of the length has more
// than the budget, a request is refused only if buckets that are not older than the period are full, and the time at which the next
// request fits is exact.
func TestNoPeriodHasMoreThanTheBudget(t *testing.T) {
	for seed := range uint64(testkit.Rounds(20)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 56))
			per := time.Duration(random.IntN(100)+1)*time.Minute + time.Duration(random.IntN(1000))*time.Millisecond
			b := budget(random.Int64N(5), random.Int64N(5000), per)
			if b.Requests == 0 {
				b.Bytes++
			}
			width := (per + 12*time.Millisecond - 1) / (12 * time.Millisecond) * time.Millisecond
			e, r := budgeted(t, policy.Host{Match: "*", Budget: b}), to("a.test", "/")
			type use struct {
				at    time.Time
				bytes int64
			}
			var used []use
			within := func(now time.Time, most time.Duration) (u policy.Use) {
				for _, one := range used {
					if now.Sub(one.at) <= most {
						u = u.Plus(policy.Use{Requests: 1, Bytes: one.bytes}, 1)
					}
				}
				return u
			}
			refused := 0
			for range 300 {
				sleep(time.Duration(random.Int64N(int64(per / 4))))
				now := time.Now()
				ticket, err := e.Take(t.Context(), r)
				if before := within(now, per); err == nil && b.IsReached(before) {
					t.Fatalf("seed %d: taken beside %+v in %v, the budget is %+v", seed, before, per, b)
				}
				full, ok := errors.AsType[*policy.HoldError](err)
				switch {
				case err == nil:
					n := random.Int64N(2000)
					ticket.AddBytes(n)
					used = append(used, use{now, n})
				case !ok || !b.IsReached(within(now, per+width)):
					t.Fatalf("seed %d: %v, although %v and a bucket have only %+v", seed, err, per, within(now, per+width))
				case random.IntN(2) == 0:
					refused++
					sleep(time.Until(full.Until) - time.Nanosecond)
					if e.CheckTake(t.Context(), r) == nil {
						t.Fatalf("seed %d: it fits before %v", seed, full.Until)
					}
					sleep(time.Nanosecond)
					if err := e.CheckTake(t.Context(), r); err != nil {
						t.Fatalf("seed %d: it does not fit at %v: %v", seed, full.Until, err)
					}
				}
			}
			if refused == 0 || len(used) < 10 {
				t.Errorf("seed %d: %d were refused, and %d taken", seed, refused, len(used))
			}
		})
	}
}

// TestBudgetGivesBack: what was not sent does not count, unless it has been forgotten already.
func TestBudgetGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := budgeted(t, policy.Host{Match: "*", Budget: budget(2, 0, time.Hour)}), to("a.test", "/")
		first, err := e.Take(t.Context(), r)
		testkit.Must(t, err)
		first.GiveBack()
		if n := taken(t, e, 5, r); n != 2 {
			t.Errorf("%d were taken after one was given back", n)
		}
		sleep(2 * time.Hour)
		late, err := e.Take(t.Context(), r)
		testkit.Must(t, err)
		sleep(2 * time.Hour)
		if n := taken(t, e, 1, r); n != 1 {
			t.Error("nothing fits after two hours")
		}
		late.GiveBack()
		if n := taken(t, e, 5, r); n != 1 {
			t.Errorf("%d were taken after one was given back that did not count any more, want 1", n)
		}
	})
}

// TestBudgetOfWaitingRequests: a request counts from when it is sent, however long it has waited since it was taken.
func TestBudgetOfWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := budgeted(t, policy.Host{Match: "*", Budget: budget(2, 0, time.Hour)}), to("a.test", "/")
		var waiting []policy.Ticket
		for range 4 {
			for range 2 {
				ticket, err := e.Take(t.Context(), r)
				testkit.Must(t, err)
				waiting = append(waiting, ticket)
			}
			sleep(2 * time.Hour)
		}
		sent := 0
		for _, ticket := range waiting {
			if err := ticket.Renew(); err == nil {
				sent++
			} else if !errors.Is(err, policy.ErrHeld) {
				t.Error(err)
			} else {
				ticket.GiveBack()
			}
		}
		if sent != 2 {
			t.Errorf("%d were sent at once, want 2", sent)
		}
		sleep(50 * time.Minute)
		if n := taken(t, e, 1, r); n != 0 {
			t.Error("the requests that were sent do not count")
		}
		sleep(20 * time.Minute)
		if n := taken(t, e, 5, r); n != 2 {
			t.Errorf("%d were taken after the period, want 2", n)
		}
	})
}

// TestBudgetOfBytes: bytes count from when they were received, however long ago the request was sent.
func TestBudgetOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := budgeted(t, policy.Host{Match: "*", Budget: budget(0, 1000, time.Hour)}), to("a.test", "/")
		long, err := e.Take(t.Context(), r)
		testkit.Must(t, err)
		sleep(10 * time.Hour)
		long.AddBytes(999)
		if n := taken(t, e, 2, r); n != 2 {
			t.Errorf("%d requests were taken of a budget of bytes", n)
		}
		long.AddBytes(1)
		_, err = e.Take(t.Context(), r)
		full, ok := errors.AsType[*policy.HoldError](err)
		if !ok || full.Detail != "The budget of this host is used up: 1000 B in 1 h (budget in hosts)" || time.Until(full.Until) != 65*time.Minute {
			t.Errorf("%v, %+v", err, full)
		}
	})
}

// TestBudgetOfPaths: the budget of an entry with paths counts the requests to them alone, each host has its own, and if a path has
// several forms all budgets apply.
func TestBudgetOfPaths(t *testing.T) {
	entries := []policy.Host{
		{Match: "*.test", Paths: []string{"/data/"}, Budget: budget(2, 0, time.Hour)},
		{Match: "*.test", Paths: []string{"/secret"}, Budget: budget(3, 0, time.Hour)},
		{Match: "a.test", Paths: []string{"/free/"}},
		{Match: "*", Budget: budget(4, 0, time.Hour)},
	}
	for _, c := range []struct {
		name     string
		requests []*policy.Request
		want     []int
	}{
		{"one entry", []*policy.Request{to("a.test", "/data/x"), to("a.test", "/data/y"), to("a.test", "/secret"), to("a.test", "/")}, []int{2, 0, 3, 4}},
		{"another host", []*policy.Request{to("a.test", "/data/x"), to("b.test", "/data/x"), to("c.example", "/data/x")}, []int{2, 2, 4}},
		{"an entry without a budget", []*policy.Request{to("a.test", "/free/x")}, []int{9}},
		{"robots.txt", []*policy.Request{to("a.test", "/robots.txt"), to("a.test", "/")}, []int{4, 0}},
		{"several forms", []*policy.Request{to("a.test", "/data/../secret"), to("a.test", "/data/"), to("a.test", "/secret")}, []int{2, 0, 1}},
		{"several forms, one of which is full", []*policy.Request{to("a.test", "/secret"), to("a.test", "/data/../secret"), to("a.test", "/data/")}, []int{3, 0, 2}},
	} {
		e := budgeted(t, entries...)
		for i, r := range c.requests {
			if n := taken(t, e, 9, r); n != c.want[i] {
				t.Errorf("%s: %d of %s%s were taken, want %d", c.name, n, r.Origin.Host, r.PathQuery, c.want[i])
			}
		}
	}
	connect := to("a.test", "/data/x")
	connect.Method = "CONNECT"
	if n := taken(t, budgeted(t, entries...), 9, connect); n != 4 {
		t.Errorf("CONNECT: %d", n)
	}
}

// TestBudgetCountsFetches: fetches of robots.txt count, and are not stopped.
func TestBudgetCountsFetches(t *testing.T) {
	e, r := budgeted(t, policy.Host{Match: "*", Paths: []string{"/data/"}, Budget: budget(1, 0, time.Hour)}, policy.Host{Match: "*", Budget: budget(3, 1000, time.Hour)}), to("a.test", "/")
	for range 2 {
		e.CountFetch(fileOf(r.Origin)).AddBytes(100)
	}
	if n := taken(t, e, 5, r); n != 1 {
		t.Errorf("%d requests beside two fetches", n)
	}
	e.CountFetch(fileOf(r.Origin))
	if all := e.Budgets("a.test"); len(all) != 2 || all[0].Used != (policy.Use{}) || all[1].Used != (policy.Use{Requests: 4, Bytes: 200}) {
		t.Errorf("%+v", all)
	}
}

// TestQuotaAndBudget: what one refuses does not count in the other, and the error is that which lasts longer.
func TestQuotaAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file(""), policy.Options{
			Hosts:   []policy.Host{{Match: "*.test", Budget: budget(4, 0, time.Hour)}},
			Clients: []policy.Client{{Name: "lab-a", PasswordHash: "$2y$05$abcdefghijklmnopqrstuuW1EtsHQOUQ0MFbVGVyLLtfdGFHN6Aaa", Quota: policy.Quota{Requests: 3}}}, Open: true,
		})
		mine, others := to("a.test", "/"), to("a.test", "/")
		mine.Client = "lab-a"
		for _, c := range []struct {
			r    *policy.Request
			want error
		}{{mine, nil}, {mine, nil}, {mine, nil}, {mine, policy.ErrQuota}, {others, nil}, {others, policy.ErrHeld}, {mine, policy.ErrQuota}} {
			if _, err := e.Take(t.Context(), c.r); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
		sleep(23*time.Hour + 30*time.Minute)
		taken(t, e, 9, others)
		if _, err := e.Take(t.Context(), mine); !errors.Is(err, policy.ErrHeld) {
			t.Errorf("half an hour before midnight: %v", err)
		}
		if use, _ := e.ClientUses(); use[0].Used.Requests != 3 {
			t.Errorf("%+v", use[0].Used)
		}
	})
}

// TestBudgetAfterAReload: what was counted counts on under the new options.
func TestBudgetAfterAReload(t *testing.T) {
	renew := func(t *testing.T, e *policy.Engine, b policy.Budget) *policy.Engine {
		t.Helper()
		next, err := e.Renew(policy.Options{Cache: &cache.Cache{}, Hosts: []policy.Host{{Match: "*", Budget: b}}})
		testkit.Must(t, err)
		return next
	}
	r := to("a.test", "/")
	for _, c := range []struct {
		name     string
		after    time.Duration
		from, to policy.Budget
		want     int
	}{
		{"a greater budget", 0, budget(3, 0, time.Hour), budget(5, 0, time.Hour), 2},
		{"a smaller budget", 0, budget(3, 0, time.Hour), budget(2, 0, time.Hour), 0},
		{"bytes too", 0, budget(3, 0, time.Hour), budget(9, 100, time.Hour), 6},
		{"a longer period", 30 * time.Minute, budget(3, 0, time.Hour), budget(5, 0, 24*time.Hour), 2},
		{"a longer period, when all is forgotten", 2 * time.Hour, budget(3, 0, time.Hour), budget(5, 0, 24*time.Hour), 5},
		{"a shorter period, within the bucket of the longer one", time.Minute, budget(3, 0, 24*time.Hour), budget(5, 0, time.Hour), 2},
		{"a shorter period", 3*time.Hour + 5*time.Minute, budget(3, 0, 24*time.Hour), budget(5, 0, time.Hour), 5},
		{"no budget", time.Minute, budget(3, 0, time.Hour), policy.Budget{}, 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := budgeted(t, policy.Host{Match: "*", Budget: c.from})
			old, err := e.Take(t.Context(), r)
			testkit.Must(t, err)
			if n := taken(t, e, 5, r); n != 2 {
				t.Errorf("%d were taken at first", n+1)
			}
			sleep(c.after)
			next := renew(t, e, c.to)
			if n := taken(t, next, 9, r); n != c.want {
				t.Errorf("%s: %d were taken, want %d", c.name, n, c.want)
			}
			// A request that was taken before the reload does not change the length of the buckets.
			old.AddBytes(1)
			if c.to.Requests > 0 && next.CheckTake(t.Context(), r) == nil {
				t.Errorf("%s: one more fits after the end of a request that was taken before", c.name)
			}
		})
	}
}

// TestUsesOfTheProcessBefore: what a process before this one has counted counts on, whatever the file has beside it. Only what has
// changed is saved again.
func TestUsesOfTheProcessBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entry := policy.Host{Match: "*", Budget: budget(3, 0, time.Hour)}
		e := budgeted(t, entry)
		taken(t, e, 2, to("a.test", "/"))
		sleep(10 * time.Minute)
		taken(t, e, 1, to("a.test", "/"))
		given, err := e.Take(t.Context(), to("b.test", "/"))
		testkit.Must(t, err)
		changed := e.ChangedUses()
		if len(changed) != 2 || e.ChangedUses() != nil {
			t.Fatalf("%+v", changed)
		}
		text, err := json.Marshal(changed)
		testkit.Must(t, err)
		var read []policy.MeterUse
		testkit.Must(t, json.Unmarshal(text, &read))
		for i := range read {
			if until := read[i].Until(); time.Until(until) != 65*time.Minute {
				t.Errorf("%+v counts until %v", read[i], until)
			}
		}
		good := read[slices.IndexFunc(read, func(u policy.MeterUse) bool { return u.Name == "budget:a.test" })]
		with := func(change func(*policy.MeterUse)) policy.MeterUse {
			bad := good
			bad.Buckets = slices.Clone(good.Buckets)
			change(&bad)
			return bad
		}
		for name, bad := range map[string]policy.MeterUse{
			"no name": with(func(u *policy.MeterUse) { u.Name = "" }), "a long name": with(func(u *policy.MeterUse) { u.Name = fmt.Sprintf("%600d", 1) }),
			"no width": with(func(u *policy.MeterUse) { u.Width = 0 }), "a negative span": with(func(u *policy.MeterUse) { u.Span = -1 }),
			"a negative use": with(func(u *policy.MeterUse) { u.Buckets[0].Requests = -1 }), "too large a use": with(func(u *policy.MeterUse) { u.Buckets[0].Bytes = 1 << 60 }),
			"no order": with(func(u *policy.MeterUse) { slices.Reverse(u.Buckets) }), "too many buckets": with(func(u *policy.MeterUse) { u.Buckets = slices.Repeat(u.Buckets[:1], 100) }),
			"a negative limit": with(func(u *policy.MeterUse) { u.Limit.Bytes = -1 }), "nothing": {},
		} {
			if n := taken(t, engine(t, file(""), policy.Options{Hosts: []policy.Host{entry}, Used: []policy.MeterUse{bad}}), 5, to("a.test", "/")); n != 3 {
				t.Errorf("%s: %d were taken of 3", name, n)
			}
		}
		next := engine(t, file(""), policy.Options{Hosts: []policy.Host{entry}, Used: read})
		if n := taken(t, next, 5, to("a.test", "/")) + 10*taken(t, next, 5, to("b.test", "/")); n != 20 {
			t.Errorf("%d were taken by the next process", n)
		}
		sleep(55 * time.Minute)
		if n := taken(t, next, 5, to("a.test", "/")); n != 2 {
			t.Errorf("%d were taken when the first bucket is over", n)
		}
		given.GiveBack()
		if changed := e.ChangedUses(); len(changed) != 1 || len(changed[0].Buckets) != 0 || changed[0].Until().After(time.Now()) {
			t.Errorf("what was given back: %+v", changed)
		}
	})
}

// TestSharedBudget: processes that share a store keep one budget. While it is away, each has its share of what was left, and tells
// the store of it later.
func TestSharedBudget(t *testing.T) {
	var store sharedQuota
	var all []*policy.Engine
	for range 3 {
		all = append(all, engine(t, file(""), policy.Options{Quotas: &store, Hosts: []policy.Host{{Match: "*", Budget: budget(100, 0, time.Hour)}}}))
	}
	r := to("a.test", "/")
	for _, e := range all {
		taken(t, e, 10, r)
	}
	for _, e := range all {
		e.CheckTake(t.Context(), r)
		taken(t, e, 1, r) // so that each knows of the others
	}
	store.away = true
	n := 0
	for _, e := range all {
		n += taken(t, e, 100, r)
	}
	if n < 66 || n > 72 {
		t.Errorf("while the store was away, %d of about 67 were taken", n)
	}
	store.away = false
	for _, e := range all {
		e.TellStore(t.Context())
		e.TellStore(t.Context())
	}
	if used := store.used["budget:a.test"].Requests; used != int64(33+n) {
		t.Errorf("the store knows of %d requests, %d were taken", used, 33+n)
	}
	given, err := all[0].Take(t.Context(), to("b.test", "/"))
	testkit.Must(t, err)
	given.GiveBack()
	given.AddBytes(5)
	all[0].CountFetch(fileOf(to("b.test", "/").Origin))
	all[0].TellStore(t.Context())
	if used := store.used["budget:b.test"]; used != (policy.Use{Requests: 1, Bytes: 5}) {
		t.Errorf("%+v", used)
	}
}

// TestBudgetsThatAreNone: an entry with such a budget is refused.
func TestBudgetsThatAreNone(t *testing.T) {
	for name, b := range map[string]policy.Budget{
		"negative requests": budget(-1, 0, time.Hour), "negative bytes": budget(0, -1, time.Hour), "no period": budget(1, 0, 0),
		"a short period": budget(1, 0, time.Minute-1), "a long period": budget(1, 0, 31*24*time.Hour+1),
	} {
		if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Hosts: []policy.Host{{Match: "a.test", Budget: b}}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestNoBudgetCostsNothing: for a host without a budget, nothing is allocated.
func TestNoBudgetCostsNothing(t *testing.T) {
	e := budgeted(t, policy.Host{Match: "a.test", Budget: budget(1, 0, time.Hour)}, policy.Host{Match: "*.example"})
	r, o := to("www.example", "/"), robots.Origin{Scheme: "https", Host: "other.test", Port: 443}
	if n := testing.AllocsPerRun(100, func() {
		ticket, err := e.Take(t.Context(), r)
		if err != nil || e.CheckTake(t.Context(), r) != nil {
			t.Error("refused")
		}
		ticket.AddBytes(5)
		e.CountFetch(fileOf(o))
	}); n > 1 {
		// The Request of the fetch is one.
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTake(b *testing.B) {
	for _, host := range []string{"none.example", "a.test"} {
		b.Run(host, func(b *testing.B) {
			e, r := budgeted(b, policy.Host{Match: "*.test", Budget: budget(1<<40, 0, time.Hour)}), to(host, "/")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Take(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
