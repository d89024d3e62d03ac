package cache

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

func reset() fetch.Result { return fetch.Result{MaxAge: -1, Connected: true, Err: errDown} }

// ruleBy is rule under a dialect.
func ruleBy(t testing.TB, c *Cache, d robots.Dialect) (r Ruling, waited time.Duration) {
	t.Helper()
	began := time.Now()
	e, err := c.Lookup(t.Context(), Query{Origin: site}, d)
	if err != nil {
		t.Fatal(err)
	}
	return e.Under(d), time.Since(began)
}

// wantAll looks up site under each dialect, in a case with a meaning by RFC 9309 to the letter.
func wantAll(t testing.TB, c *Cache, name string, letter Meaning) {
	t.Helper()
	for _, d := range robots.Dialects() {
		r, _ := ruleBy(t, c, d)
		if want := wanted(d, name, letter); r.Meaning != want {
			t.Errorf("%s: %s: %v (%v), want %v", d.Name, name, r.Meaning, r.Err, want)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestOneFetchForAllDialects: clients of two dialects share a fetch, the entry and its text; the
// file is compiled for each.
func TestOneFetchForAllDialects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: time.Second}
		c := newCache(t, Options{Fetcher: f})
		two := []robots.Dialect{named("standard"), named("coccoc")}
		entries := make([]*Entry, len(two))
		var wg sync.WaitGroup
		for i, d := range two {
			wg.Go(func() { entries[i], _ = c.Lookup(t.Context(), Query{Origin: site}, d) })
		}
		wg.Wait()
		one, other := entries[0].Under(two[0]), entries[1].Under(two[1])
		if f.count() != 1 || entries[0] != entries[1] || one.Result != other.Result {
			t.Errorf("%d fetches, entries %p and %p, answers %p and %p", f.count(), entries[0], entries[1], one.Result, other.Result)
		}
		if one.File == nil || other.File == nil || one.File == other.File {
			t.Errorf("files %p and %p", one.File, other.File)
		}
	})
}

// TestNoFileAfter: under a dialect with NoFileAfter an origin that fails for so long without a stale file has no file; by
// RFC 9309 2.3.1.4 nothing is ever allowed.
func TestNoFileAfter(t *testing.T) {
	for _, tc := range []struct {
		name          string
		failure, last fetch.Result // last is the response of the last try
		before, after Meaning      // by RFC 9309 to the letter
	}{
		{"503", status(503), status(503), refused, refused},
		{"429", status(429), status(429), none, none},
		{"reset", reset(), reset(), refused, refused},
		{"no connection, then 503", unconnected(), status(503), nowhere, refused},
		{"503, then no connection", status(503), unconnected(), refused, nowhere},
	} {
		for _, d := range robots.Dialects() {
			t.Run(d.Name+"/"+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &script{answers: []fetch.Result{tc.failure}}
					c := newCache(t, Options{Fetcher: f})
					want := func(name string, letter Meaning) {
						t.Helper()
						if r, _ := ruleBy(t, c, d); r.Meaning != wanted(d, name, letter) {
							t.Fatalf("%s: %v (%v), want %v", name, r.Meaning, r.Err, wanted(d, name, letter))
						}
					}
					days := cmp.Or(d.NoFileAfter, 30*day) / day
					for range days {
						want(tc.name, tc.before)
						wait(day - time.Hour)
					}
					wait(days*time.Hour - time.Nanosecond)
					want(tc.name, tc.before)
					tries := f.count()
					f.answers = []fetch.Result{tc.last}
					// This is the maximum retry time.
					wait(30 * time.Minute)
					want(tc.name+" for long", tc.after)
					if f.count() != tries+1 {
						t.Errorf("%d fetches, want %d", f.count(), tries+1)
					}
				})
			})
		}
	}
}

// TestGivenUp: a Ruling tells an origin that failed for NoFileAfter from one without a file.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{status(503)}}
		c := newCache(t, Options{Fetcher: f})
		google := named("google")
		ruleBy(t, c, google)
		wait(30 * day)
		r, _ := ruleBy(t, c, google)
		if r.Meaning != NoFile || r.Err == nil || !r.Fetched().IsZero() || r.Result.Status != 503 || r.Stale {
			t.Errorf("%+v, fetched %v", r, r.Fetched())
		}
		f.answers = []fetch.Result{file(-1), status(503)}
		f.calls = 0
		wait(30 * time.Minute)
		if r, _ := ruleBy(t, c, google); r.Meaning != Rules || r.Stale {
			t.Errorf("a success does not bring it back: %+v", r)
		}
	})
}

// TestFailuresEnd: a settled response ends the failures of an origin, and so does the end of its
// entry: the count starts again.
func TestFailuresEnd(t *testing.T) {
	google := named("google")
	for _, tc := range []struct {
		name    string
		between func(f *script, c *Cache)
		first   Meaning
	}{
		{"404", func(f *script, _ *Cache) { f.answers = []fetch.Result{status(404)} }, NoFile},
		{"too many redirects", func(f *script, _ *Cache) {
			f.answers = []fetch.Result{{Status: 301, TooManyRedirects: true, Connected: true, MaxAge: -1}}
		}, NoFile},
		{"eviction", func(_ *script, c *Cache) { c.entries.Invalidate(key{origin: site}) }, Unreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{status(503)}}
				c := newCache(t, Options{Fetcher: f})
				ruleBy(t, c, google)
				wait(29 * day)
				tc.between(f, c)
				for i, want := range []Meaning{tc.first, Unreachable, Unreachable, NoFile} {
					if r, _ := ruleBy(t, c, google); r.Meaning != want {
						t.Fatalf("try %d: %+v, want %v", i, r, want)
					}
					f.answers = []fetch.Result{status(503)}
					wait([]time.Duration{day, 28 * day, 2 * day, 0}[i])
				}
			})
		})
	}
}

// TestLastStaleFile: a stale file is used for 30 days while its origin fails, and without a
// limit under dialects with NoFileAfter; coccoc uses the last response only.
func TestLastStaleFile(t *testing.T) {
	for _, tc := range []struct {
		name           string
		failure        fetch.Result
		within, beyond Meaning // by RFC 9309 to the letter
	}{
		{"503", status(503), rules, refused},
		{"429", status(429), none, none},
		{"reset", reset(), rules, refused},
		{"no connection", unconnected(), rules, nowhere},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{file(-1), tc.failure}}
				c, stop := start(t, Options{Fetcher: f})
				defer stop()
				wantAll(t, c, "200", rules)
				fetched := time.Now()
				wait(day)
				for time.Since(fetched) < 90*day {
					name, letter := tc.name+" after a file", tc.within
					if time.Since(fetched) >= 30*day {
						name, letter = tc.name+" for 30 days after a file", tc.beyond
					}
					wantAll(t, c, name, letter)
					for _, d := range robots.Dialects() {
						if r, _ := ruleBy(t, c, d); r.Stale != (wanted(d, name, letter) == rules) || r.Stale && !r.Fetched().Equal(r.Result.Fetched) {
							t.Errorf("%s: %+v", d.Name, r)
						}
					}
					<-time.After(3 * time.Hour)
				}
				if f.gap() < 30*time.Second {
					t.Errorf("tried again after %v", f.gap())
				}
			})
		})
	}
}

// TestStaleFileAndLaterFile: under a dialect with NoStale a client gets the new file when the
// others do, and the time of the next try until then.
func TestStaleFileAndLaterFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0), reset(), file(0)}, takes: time.Second}
		c := newCache(t, Options{Fetcher: f})
		standard, coccoc := named("standard"), named("coccoc")
		ruleBy(t, c, standard)
		wait(time.Minute)
		if r, waited := ruleBy(t, c, standard); !r.Stale || waited != time.Second {
			t.Fatalf("%+v after %v", r, waited)
		}
		r, waited := ruleBy(t, c, coccoc)
		if r.Meaning != Unreachable || waited != 0 || time.Until(r.Retry) != 30*time.Second || r.Err == nil {
			t.Fatalf("%+v after %v", r, waited)
		}
		wait(30*time.Second - 1)
		if again, waited := ruleBy(t, c, coccoc); again != r || waited != 0 {
			t.Fatalf("before its time: %+v after %v", again, waited)
		}
		wait(1)
		if r, waited := ruleBy(t, c, coccoc); r.Meaning != Rules || waited != time.Second {
			t.Fatalf("at its time: %+v after %v", r, waited)
		}
		if r, waited := ruleBy(t, c, standard); r.Meaning != Rules || r.Stale || waited != 0 || f.count() != 3 {
			t.Errorf("%+v after %v, %d fetches", r, waited, f.count())
		}
	})
}

// TestRetryBesideFreshFile: a stale file that is still fresh itself delays no retry under the
// dialects that do not use it.
func TestRetryBesideFreshFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1), status(429), file(-1)}}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		letter := named("rfc9309")
		ruleBy(t, c, letter)
		ruleBy(t, c, letter) // in use
		refresh, _ := usual.refreshTimes(day)
		wait(refresh) // the response is 429, while the file is fresh
		if r, _ := ruleBy(t, c, letter); r.Meaning != NoFile || f.count() != 2 {
			t.Fatalf("%+v, %d fetches", r, f.count())
		}
		wait(30 * time.Second)
		if r, _ := ruleBy(t, c, letter); r.Meaning != Rules || r.Stale || f.count() != 3 {
			t.Errorf("%+v, %d fetches", r, f.count())
		}
	})
}

// TestIgnoreCacheControl: under a dialect with IgnoreCacheControl a file is used for a day,
// whatever its Cache-Control; fetches for other dialects serve it too.
func TestIgnoreCacheControl(t *testing.T) {
	for name, answer := range map[string]fetch.Result{"file": file(time.Minute), "no file": {Status: 404, Connected: true, MaxAge: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{answer}, takes: time.Second}
				c := newCache(t, Options{Fetcher: f})
				standard, coccoc := named("standard"), named("coccoc")
				for _, step := range []struct {
					after   time.Duration
					dialect robots.Dialect
					fetches int
				}{
					{0, coccoc, 1},
					{time.Minute - 1, standard, 1},
					{1, coccoc, 1},
					{23 * time.Hour, coccoc, 1},
					{0, standard, 2}, // serves all dialects
					{day - 1, coccoc, 2},
					{1, coccoc, 3},
					{0, standard, 3},
				} {
					wait(step.after)
					before := f.count()
					_, waited := ruleBy(t, c, step.dialect)
					if f.count() != step.fetches || (waited > 0) != (step.fetches > before) {
						t.Fatalf("%+v: %d fetches, waited %v", step, f.count(), waited)
					}
				}
			})
		})
	}
}

// TestIgnoreCacheControlInBackground: an entry is refreshed by Cache-Control only if it is used
// under a dialect that heeds it, and no lookup waits for a refresh.
func TestIgnoreCacheControlInBackground(t *testing.T) {
	standard, coccoc := named("standard"), named("coccoc")
	for _, tc := range []struct {
		name    string
		used    []robots.Dialect
		every   time.Duration
		fetches [2]int // minimum and maximum in ten days
	}{
		{"by those who heed none", []robots.Dialect{coccoc}, time.Hour, [2]int{11, 12}},
		{"by those who heed it", []robots.Dialect{standard}, time.Minute, [2]int{2800, 3200}}, // every 280 s
		{"by both", []robots.Dialect{coccoc, standard}, time.Minute, [2]int{2800, 3200}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{file(5 * time.Minute)}, takes: 10 * time.Second}
				c, stop := start(t, Options{Fetcher: f})
				defer stop()
				ruleBy(t, c, tc.used[0]) // the first lookup waits
				for began := time.Now(); time.Since(began) < 10*day; {
					for _, d := range tc.used {
						if r, waited := ruleBy(t, c, d); waited != 0 || r.Meaning != Rules {
							t.Fatalf("%s: %v after %v, waited %v", d.Name, r.Meaning, time.Since(began), waited)
						}
					}
					<-time.After(tc.every)
				}
				if n := f.count(); n < tc.fetches[0] || n > tc.fetches[1] {
					t.Errorf("%d fetches, want %v", n, tc.fetches)
				}
			})
		})
	}
}

// TestIgnoreCacheControlIdle: the refresh by Cache-Control skips an entry that is only used
// under dialects that ignore it, and follows at the next other use. The refresh by MaxAge is
// unaffected.
func TestIgnoreCacheControlIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(time.Hour)}}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		standard, coccoc := named("standard"), named("coccoc")
		ruleBy(t, c, coccoc)
		ruleBy(t, c, coccoc)
		wait(55 * time.Minute) // it was due after 54
		if f.count() != 1 {
			t.Fatalf("%d fetches", f.count())
		}
		if _, waited := ruleBy(t, c, standard); waited != 0 {
			t.Errorf("within the hour a request waited %v", waited)
		}
		wait(time.Second)
		if f.count() != 2 {
			t.Errorf("used again, its refresh did not come: %d fetches", f.count())
		}
		ruleBy(t, c, coccoc)
		wait(22 * time.Hour) // it was due after 21.6
		if f.count() != 3 {
			t.Errorf("before its day was over: %d fetches", f.count())
		}
		wait(3 * day) // without lookups
		if f.count() != 3 || len(c.schedule.entries) != 0 {
			t.Errorf("an idle entry: %d fetches, %d scheduled", f.count(), len(c.schedule.entries))
		}
	})
}

// TestIgnoreCacheControlIsNoUse: use under a dialect that ignores Cache-Control does not extend
// the lifetime by Cache-Control.
func TestIgnoreCacheControlIsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0)}, takes: time.Second}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		standard, coccoc := named("standard"), named("coccoc")
		ruleBy(t, c, coccoc)
		ruleBy(t, c, coccoc)
		wait(time.Minute)
		if _, waited := ruleBy(t, c, standard); waited != time.Second || f.count() != 2 {
			t.Errorf("after its minute a request waited %v, %d fetches", waited, f.count())
		}
	})
}

// TestEvictedWhilePostponed: an entry that is evicted between its two possible refreshes leaves
// the schedule.
func TestEvictedWhilePostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := start(t, Options{Fetcher: &script{answers: []fetch.Result{file(time.Hour)}}})
		defer stop()
		rule(t, c)
		e, _ := c.entries.GetIfPresent(key{origin: site})
		wait(2 * time.Hour)
		scheduled := func() bool {
			return slices.ContainsFunc(c.schedule.entries, func(i scheduled) bool { return i.entry == e })
		}
		if !scheduled() {
			t.Fatal("not scheduled for the end of its day")
		}
		c.entries.Invalidate(key{origin: site})
		c.entries.CleanUp()
		if scheduled() {
			t.Error("evicted, it is scheduled still")
		}
		c.postpone(e, time.Now().Add(time.Hour))
		if scheduled() {
			t.Error("evicted before it was postponed, it is scheduled")
		}
	})
}

// TestUsedWhilePostponed: the refresh of an entry that is used again is not postponed.
func TestUsedWhilePostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{file(time.Hour)}}})
		ruleBy(t, c, named("coccoc"))
		wait(55 * time.Minute) // it was due after 54
		e, _ := c.schedule.take(time.Now())
		wanted, next := e.refreshWanted(time.Now())
		if wanted || next.IsZero() {
			t.Fatalf("unused, its refresh is wanted: %v, next %v", wanted, next)
		}
		ruleBy(t, c, named("standard")) // before refresh has postponed it
		c.postpone(e, next)
		if due, in := c.schedule.take(time.Now()); due != e {
			t.Errorf("in use, it is due in %v", in)
		}
	})
}

// TestGzipThatBreaksOff: such a text is a failed fetch for a dialect that decodes it. The copy from before
// stays in force, and the file is fetched again soon. Other dialects read the bytes.
func TestGzipThatBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := fetch.Result{URL: "https://example.com/robots.txt", Status: 200, MaxAge: -1, Connected: true, Body: []byte("\x1F\x8B\x08\x00")}
		f := &script{answers: []fetch.Result{broken}}
		c := newCache(t, Options{Fetcher: f})
		if r, _ := rule(t, c); r.Meaning != Unreachable || r.Err == nil || time.Until(r.Retry) > time.Hour {
			t.Errorf("at first: %+v", r)
		}
		f.answers = []fetch.Result{file(-1)}
		wait(time.Hour)
		if r, _ := rule(t, c); r.Meaning != Rules || r.Stale {
			t.Errorf("then: %+v", r)
		}
		f.answers = []fetch.Result{broken}
		wait(25 * time.Hour)
		if r, _ := rule(t, c); r.Meaning != Rules || !r.Stale || r.Err == nil || r.File.Rules() == 0 {
			t.Errorf("after a good copy: %+v", r)
		}
		if r, _ := ruleBy(t, c, named("rfc9309")); r.Meaning != Rules || r.Stale || r.File.Rules() != 0 {
			t.Errorf("under rfc9309: %+v", r)
		}
		f.answers = []fetch.Result{file(-1)}
		wait(time.Hour)
		rule(t, c)
		wait(time.Hour)
		if r, _ := rule(t, c); r.Meaning != Rules || r.Stale {
			t.Errorf("at last: %+v", r)
		}
	})
}
