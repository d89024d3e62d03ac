package cache

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/fetch"
)

const day = 24 * time.Hour

// wait advances the test clock by d and waits for everything that is due.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestNobodyWaitsForRefresh: no lookup waits for the refresh of an entry in use, whatever its
// ttl and however slow its origin, and no entry is older than it may be.
func TestNobodyWaitsForRefresh(t *testing.T) {
	for _, tc := range []struct {
		name   string
		maxAge time.Duration // of the response
		takes  time.Duration // of a fetch
		answer fetch.Result
		step   time.Duration // between requests
		total  time.Duration
		most   int // maximum number of fetches
	}{
		{"24 hours", -1, 0, file(-1), 10 * time.Minute, 10 * day, 12},
		{"24 hours, slow", -1, 19 * time.Second, file(-1), 10 * time.Minute, 10 * day, 12},
		{"ttl is MinAge", 0, 0, file(0), time.Second, time.Hour, 61},
		{"ttl is MinAge, slow", 0, 19 * time.Second, file(0), time.Second, time.Hour, 61},
		{"ttl is MinAge, as slow as may be", 0, 20*time.Second - 1, file(0), time.Second, time.Hour, 61},
		{"a lead shorter than a fetch", 70 * time.Second, 19 * time.Second, file(70 * time.Second), time.Second, time.Hour, 61},
		{"an hour", time.Hour, 10 * time.Second, file(time.Hour), 15 * time.Second, day, 28},
		{"no file", -1, 10 * time.Second, status(404), 10 * time.Minute, 10 * day, 12},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{tc.answer}, takes: tc.takes}
				c, stop := start(t, Options{Fetcher: f})
				defer stop()
				rule(t, c) // the first lookup waits
				for began := time.Now(); time.Since(began) < tc.total; {
					if _, waited := rule(t, c); waited != 0 {
						t.Fatalf("after %v a request waited %v", time.Since(began), waited)
					}
					if since, most := time.Since(f.lastBegun()), usual.ttl(tc.maxAge)+tc.takes; since > most {
						t.Fatalf("after %v no fetch was begun for %v", time.Since(began), since)
					}
					<-time.After(tc.step)
				}
				if f.count() > tc.most {
					t.Errorf("%d fetches, want at most %d", f.count(), tc.most)
				}
				if f.gap() < time.Minute+tc.takes {
					t.Errorf("fetched again after %v", f.gap())
				}
			})
		})
	}
}

func TestIdleLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: time.Second}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		rule(t, c)
		wait(23 * time.Hour) // its refresh was due, but the entry was unused
		if f.count() != 1 {
			t.Fatalf("an idle entry was fetched %d times", f.count())
		}
		if _, waited := rule(t, c); waited != 0 {
			t.Errorf("within its ttl a request waited %v", waited)
		}
		wait(2 * time.Second)
		if f.count() != 2 {
			t.Fatalf("used again, its refresh did not come: %d fetches", f.count())
		}
		wait(3 * day)
		if f.count() != 2 {
			t.Fatalf("an idle entry was fetched %d times", f.count())
		}
		if _, waited := rule(t, c); waited != time.Second {
			t.Errorf("after its ttl a request waited %v", waited)
		}
	})
}

// TestWithoutRun: without Run there are no refreshes, and no entry is used after its ttl.
func TestWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0)}, takes: time.Second}
		c := newCache(t, Options{Fetcher: f})
		rule(t, c)
		rule(t, c)
		wait(time.Minute - 1)
		if _, waited := rule(t, c); waited != 0 || f.count() != 1 {
			t.Errorf("waited %v, %d fetches", waited, f.count())
		}
		wait(1)
		if _, waited := rule(t, c); waited != time.Second || f.count() != 2 {
			t.Errorf("waited %v, %d fetches", waited, f.count())
		}
	})
}

// TestFailingWithoutCopy: lookups return the failure at once until the retry; then one of them
// fetches.
func TestFailingWithoutCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		answer fetch.Result
		want   Meaning
	}{
		"unreachable":   {status(503), Unreachable},
		"no connection": {unconnected(), NoConnection},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{tc.answer}, takes: time.Second}
				c, stop := start(t, Options{Fetcher: f})
				defer stop()
				r, _ := rule(t, c)
				for i, next := range []time.Duration{30, 60, 120, 240, 480, 960, 1800, 1800} {
					next *= time.Second
					if r.Meaning != tc.want || r.Err == nil || time.Until(r.Retry) != next {
						t.Fatalf("failure %d: %+v, next try in %v, want %v", i+1, r, time.Until(r.Retry), next)
					}
					wait(next - 1)
					if again, waited := rule(t, c); waited != 0 || again != r {
						t.Fatalf("before its time: %+v after %v", again, waited)
					}
					if f.count() != i+1 {
						t.Fatalf("%d fetches after %d failures", f.count(), i+1)
					}
					wait(1)
					var waited time.Duration
					if r, waited = rule(t, c); waited != time.Second {
						t.Fatalf("at its time a caller waited %v", waited)
					}
				}
			})
		})
	}
}

func TestSuccessEndsDoubling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{status(500), status(500), status(404), status(500)}}
		c := newCache(t, Options{Fetcher: f})
		rule(t, c)
		wait(30 * time.Second)
		if r, _ := rule(t, c); time.Until(r.Retry) != time.Minute {
			t.Fatalf("second failure: %+v", r)
		}
		wait(time.Minute)
		if r, _ := rule(t, c); r.Meaning != NoFile {
			t.Fatalf("%+v", r)
		}
		wait(day)
		if r, _ := rule(t, c); r.Meaning != Unreachable || time.Until(r.Retry) != 30*time.Second {
			t.Fatalf("first failure again: %+v", r)
		}
	})
}

// TestStaleFile: a stale file is used for 30 days while its origin fails; then nothing is allowed
// (RFC 9309 2.3.1.4).
func TestStaleFile(t *testing.T) {
	for name, failure := range map[string]fetch.Result{"unreachable": status(503), "no connection": unconnected()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{file(-1), failure}, takes: 10 * time.Second}
				c, stop := start(t, Options{Fetcher: f})
				defer stop()
				first, _ := rule(t, c)
				fetched := time.Now()
				for time.Since(fetched) < 30*day {
					r, waited := rule(t, c)
					if waited != 0 || r.Meaning != Rules || r.Result != first.Result || r.File != first.File || !r.Retry.IsZero() {
						t.Fatalf("after %v: %+v after %v", time.Since(fetched), r, waited)
					}
					if r.Stale != (f.count() > 1 && r.Err != nil) {
						t.Fatalf("after %v: %+v", time.Since(fetched), r)
					}
					if time.Since(fetched) > day && !r.Stale {
						t.Fatalf("after %v it is not said that the copy is old", time.Since(fetched))
					}
					<-time.After(5 * time.Minute)
				}
				r, waited := rule(t, c)
				if r.Meaning == Rules || r.Meaning == NoFile || waited != 0 || !r.Retry.After(time.Now()) || r.Err == nil {
					t.Fatalf("after 30 days: %+v after %v", r, waited)
				}
				// No fetch for 21.6 h, then at most one every half hour.
				if got := f.count(); got < 29*48-10 || got > 30*48 {
					t.Errorf("%d fetches", got)
				}
			})
		})
	}
}

func TestRetryInBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0), status(503), unconnected(), file(0)}}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		rule(t, c)
		for i, tc := range []struct {
			after time.Duration
			calls int
			stale bool
		}{
			{time.Minute - 1, 1, false},
			{1, 2, true},
			{30*time.Second - 1, 2, true},
			{1, 3, true},
			{time.Minute - 1, 3, true},
			{1, 4, false},
		} {
			rule(t, c) // in use
			wait(tc.after)
			r, waited := rule(t, c)
			if f.count() != tc.calls || r.Stale != tc.stale || r.Meaning != Rules || waited != 0 {
				t.Fatalf("step %d: %d fetches, %+v after %v", i, f.count(), r, waited)
			}
			if tc.calls == 3 && !errors.Is(r.Err, errDown) {
				t.Fatalf("step %d: Err = %v", i, r.Err)
			}
		}
	})
}

// TestOwnFailure: waiting callers get a failure of the proxy itself, and the cache does
// not keep it.
func TestOwnFailure(t *testing.T) {
	ours := fetch.Result{MaxAge: -1, Connected: true, OwnFailure: true, Err: errDown}
	t.Run("nothing known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &script{answers: []fetch.Result{ours, ours, file(-1)}}
			c := newCache(t, Options{Fetcher: f})
			for range 2 {
				if r, _ := rule(t, c); r.Meaning != NoConnection || !errors.Is(r.Err, errDown) || r.Retry.After(time.Now()) {
					t.Errorf("%+v", r)
				}
			}
			if r, _ := rule(t, c); r.Meaning != Rules || f.count() != 3 {
				t.Errorf("%d fetches, %+v", f.count(), r)
			}
		})
	})
	t.Run("an origin's row of failures", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &script{answers: []fetch.Result{status(503), ours, ours, status(503), file(-1)}}
			c := newCache(t, Options{Fetcher: f})
			rule(t, c)
			wait(30 * time.Second)
			for range 3 {
				rule(t, c)
			}
			if r, _ := rule(t, c); r.Meaning != Unreachable || time.Until(r.Retry) != time.Minute || f.count() != 4 {
				t.Errorf("%d fetches, the next in %v: %+v", f.count(), time.Until(r.Retry), r)
			}
		})
	})
}

// TestOwnFailureBesideAStaleFile: a file in memory stays in use after an own failure.
func TestOwnFailureBesideAStaleFile(t *testing.T) {
	ours := fetch.Result{MaxAge: -1, Connected: true, OwnFailure: true, Err: errDown}
	t.Run("it is refreshed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &script{answers: []fetch.Result{file(0), ours, file(-1)}}
			c, stop := start(t, Options{Fetcher: f})
			defer stop()
			rule(t, c)
			rule(t, c)        // in use
			wait(time.Minute) // its refresh ends with an own failure
			wait(30*time.Second - 1)
			if f.count() != 2 {
				t.Fatalf("%d fetches", f.count())
			}
			wait(1)
			if f.count() != 3 {
				t.Errorf("%d fetches in the background, want 3", f.count())
			}
			if r, waited := rule(t, c); r.Meaning != Rules || r.Stale || waited != 0 {
				t.Errorf("%+v after %v", r, waited)
			}
		})
	})
	t.Run("nothing can be asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &script{answers: []fetch.Result{file(0), ours}}
			c := newCache(t, Options{Fetcher: f})
			rule(t, c)
			wait(day)
			for range 2 {
				if r, _ := rule(t, c); r.Meaning != Rules || !r.Stale || !errors.Is(r.Err, errDown) {
					t.Errorf("%+v", r)
				}
			}
		})
	})
}

// TestIdleStaleFile: without lookups a failing origin is not retried; the next lookup waits for
// a retry, and gets the stale file if that fails too.
func TestIdleStaleFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0), status(503)}, takes: time.Second}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		rule(t, c)
		rule(t, c)
		wait(5 * day)
		if f.count() != 2 {
			t.Fatalf("%d fetches", f.count())
		}
		if r, waited := rule(t, c); !r.Stale || r.Meaning != Rules || waited != time.Second {
			t.Errorf("%+v after %v", r, waited)
		}
		if r, waited := rule(t, c); !r.Stale || waited != 0 {
			t.Errorf("%+v after %v", r, waited)
		}
		wait(30 * day)
		if r, _ := rule(t, c); r.Meaning != Unreachable || r.Stale {
			t.Errorf("after 30 days: %+v", r)
		}
	})
}

// TestStaleNoFile: the fact that there is no file is used for its ttl, and no longer.
func TestStaleNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{status(404), status(503)}}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		rule(t, c)
		fetched := time.Now()
		for time.Since(fetched) < 2*day {
			r, waited := rule(t, c)
			want := NoFile
			if time.Since(fetched) >= day {
				want = Unreachable
			}
			if r.Meaning != want || r.Stale || waited != 0 || (want == NoFile) != (r.Err == nil) {
				t.Fatalf("after %v: %+v after %v", time.Since(fetched), r, waited)
			}
			if want == Unreachable && !r.Retry.After(time.Now()) {
				t.Fatalf("after %v: next try was %v ago", time.Since(fetched), time.Since(r.Retry))
			}
			if e, _ := c.entries.GetIfPresent(key{origin: site}); time.Since(fetched) > day+time.Hour && e.stale != nil {
				t.Fatal("of no use any more, it is kept")
			}
			<-time.After(time.Minute)
		}
	})
}

// TestNoFileReplacesStaleFile: a site that removed its file and then fails has no stale file.
func TestNoFileReplacesStaleFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0), status(404), status(503)}}
		c := newCache(t, Options{Fetcher: f})
		for i, want := range []Meaning{Rules, NoFile, Unreachable} {
			if r, _ := rule(t, c); r.Meaning != want || r.Stale {
				t.Fatalf("fetch %d: %+v", i+1, r)
			}
			wait(day)
		}
	})
}

// TestRefreshCompiles: a refresh compiles the file under the dialects in use before lookups
// return it, and a stale file is compiled once.
func TestRefreshCompiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(0)}}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		old, _ := rule(t, c)
		rule(t, c)
		wait(time.Minute)
		e, ok := c.entries.GetIfPresent(key{origin: site})
		if !ok || e.last.files.Load() == nil {
			t.Fatal("not compiled")
		}
		r, _ := rule(t, c)
		if again, _ := rule(t, c); again.File != r.File || r.File == old.File {
			t.Error("a file is not the one compiled from its answer, once")
		}
	})
}
