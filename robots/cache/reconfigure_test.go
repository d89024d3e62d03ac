package cache

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

func reconfigure(t *testing.T, c *Cache, o Options) <-chan struct{} {
	t.Helper()
	over, err := c.Reconfigure(o)
	if err != nil {
		t.Fatal(err)
	}
	return over
}

// isDrained reports whether a channel is closed.
func isDrained(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestReconfigureAppliesNewTimes: entries are as old and as fresh as if they had been fetched
// with the new times, and nothing is fetched earlier.
func TestReconfigureAppliesNewTimes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer fetch.Result
		before Options
		age    time.Duration // at the time of the change
		after  Options
		fresh  time.Duration // time from the first fetch
	}{
		{"max_age, longer", file(-1), Options{MaxAge: time.Hour}, 30 * time.Minute, Options{MaxAge: 10 * time.Hour}, 10 * time.Hour},
		{"max_age, shorter", file(-1), Options{MaxAge: 10 * time.Hour}, 30 * time.Minute, Options{MaxAge: time.Hour}, time.Hour},
		{"max_age, over", file(-1), Options{MaxAge: 10 * time.Hour}, 2 * time.Hour, Options{MaxAge: time.Hour}, 2 * time.Hour},
		{"min_age, longer", file(0), Options{}, 30 * time.Second, Options{MinAge: time.Hour}, time.Hour},
		{"min_age, shorter", file(0), Options{MinAge: time.Hour}, time.Minute, Options{MinAge: 2 * time.Minute}, 2 * time.Minute},
		{"retry, longer", status(503), Options{}, 10 * time.Second, Options{Retry: 5 * time.Minute}, 5 * time.Minute},
		{"retry, shorter", unconnected(), Options{Retry: 10 * time.Minute}, 10 * time.Second, Options{Retry: 20 * time.Second}, 20 * time.Second},
		{"nothing", file(time.Hour), Options{}, time.Minute, Options{}, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{tc.answer}}
				tc.before.Fetcher, tc.after.Fetcher = f, f
				c := newCache(t, tc.before)
				first, _ := rule(t, c)
				wait(tc.age)
				if !isDrained(reconfigure(t, c, tc.after)) {
					t.Error("the Options of before are in use still")
				}
				if tc.fresh > tc.age {
					again, _ := rule(t, c)
					if again.File != first.File || again.Meaning != first.Meaning {
						t.Errorf("%+v, before %+v", again, first)
					}
					wait(tc.fresh - tc.age - 1)
					if rule(t, c); f.count() != 1 {
						t.Fatalf("%d fetches a moment before its time was over", f.count())
					}
					wait(1)
				}
				if rule(t, c); f.count() != 2 {
					t.Errorf("%d fetches when its time was over", f.count())
				}
			})
		})
	}
}

// TestReconfigureScalesRetry: the doubled retry time is converted to the new times.
func TestReconfigureScalesRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{status(503)}}
		c := newCache(t, Options{Fetcher: f})
		rule(t, c)
		wait(30 * time.Second)
		rule(t, c) // the second: a minute until the next
		reconfigure(t, c, Options{Fetcher: f, Retry: 10 * time.Second})
		wait(20*time.Second - 1)
		if rule(t, c); f.count() != 2 {
			t.Fatalf("tried after %v", time.Since(f.lastBegun()))
		}
		wait(1)
		if rule(t, c); f.count() != 3 {
			t.Fatal("not tried after 20 s")
		}
		reconfigure(t, c, Options{Fetcher: f, Retry: 30 * time.Minute})
		wait(30*time.Minute - 1)
		if rule(t, c); f.count() != 3 {
			t.Error("a wait grew beyond the longest, or did not grow")
		}
		wait(1)
		if rule(t, c); f.count() != 4 {
			t.Error("a wait grew beyond the longest")
		}
	})
}

// TestReconfigureKeepsStaleFiles: stale files and the failures beside them stay.
func TestReconfigureKeepsStaleFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1), status(503)}}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		rule(t, c)
		wait(25 * time.Hour)
		first, _ := rule(t, c)
		reconfigure(t, c, Options{Fetcher: f, MaxAge: time.Hour})
		again, waited := rule(t, c)
		if !first.Stale || !again.Stale || again.File != first.File || waited != 0 {
			t.Errorf("%+v after %v, before %+v", again, waited, first)
		}
		wait(40 * time.Second)
		if f.count() != 3 {
			t.Errorf("%d fetches; the retry of what is in use was lost", f.count())
		}
	})
}

// TestReconfigureDuringAFetch: a fetch continues with its old Options for all callers; its entry
// has the new times.
func TestReconfigureDuringAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := &script{answers: []fetch.Result{file(-1)}, takes: 10 * time.Second}
		other := &script{answers: []fetch.Result{status(404)}}
		c := newCache(t, Options{Fetcher: old})
		var asked sync.WaitGroup
		for range 10 {
			asked.Go(func() {
				if r, waited := rule(t, c); r.Meaning != Rules || waited != 10*time.Second {
					t.Errorf("%+v after %v", r, waited)
				}
			})
		}
		wait(time.Second)
		done := reconfigure(t, c, Options{Fetcher: other, MaxAge: time.Hour})
		later := reconfigure(t, c, Options{Fetcher: other, MaxAge: time.Hour}) // nothing is fetched under the Options in between
		wait(8 * time.Second)
		if isDrained(done) || isDrained(later) {
			t.Error("said to be over during a fetch")
		}
		wait(time.Second)
		asked.Wait()
		if !isDrained(done) || !isDrained(later) || other.count() != 0 {
			t.Errorf("over: %v, %d fetches by the other", isDrained(done), other.count())
		}
		wait(time.Hour)
		if r, _ := rule(t, c); r.Meaning != NoFile || old.count() != 1 || other.count() != 1 {
			t.Errorf("%+v, %d and %d fetches", r, old.count(), other.count())
		}
	})
}

// TestReconfigureUserAgent: refreshes send the new User-Agent.
func TestReconfigureUserAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(time.Hour)}}
		c, stop := start(t, Options{Fetcher: f, UserAgent: "First/1"})
		defer stop()
		rule(t, c)
		reconfigure(t, c, Options{Fetcher: f, UserAgent: "Second/1"})
		rule(t, c)
		wait(time.Hour)
		reconfigure(t, c, Options{Fetcher: f})
		rule(t, c)
		wait(time.Hour)
		if want := []string{"First/1", "Second/1", "robotsproxy"}; !slices.Equal(f.agents, want) {
			t.Errorf("fetched as %q, want %q", f.agents, want)
		}
	})
}

// TestRetryUnconnected: an origin without a connection is tried again at its next lookup, once;
// an origin that responded with a failure is not.
func TestRetryUnconnected(t *testing.T) {
	for name, tc := range map[string]struct {
		answer fetch.Result
		want   int
	}{"no connection": {unconnected(), 2}, "unreachable": {status(503), 1}, "a file": {file(-1), 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{tc.answer}}
				c := newCache(t, Options{Fetcher: f})
				rule(t, c)
				rule(t, c)
				c.RetryUnconnected()
				rule(t, c)
				rule(t, c)
				if f.count() != tc.want {
					t.Errorf("%d fetches, want %d", f.count(), tc.want)
				}
			})
		})
	}
}

// TestRetryUnconnectedDuringAFetch: a fetch that began in the earlier way, and ends without a connection after the
// change, does not delay the next one. One that began after the change does.
func TestRetryUnconnectedDuringAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := &script{answers: []fetch.Result{unconnected()}, takes: 10 * time.Second}
		c := newCache(t, Options{Fetcher: earlier})
		var asked sync.WaitGroup
		asked.Go(func() { rule(t, c) })
		synctest.Wait()
		f := &script{answers: []fetch.Result{unconnected(), file(-1)}}
		reconfigure(t, c, Options{Fetcher: f})
		c.RetryUnconnected()
		asked.Wait()
		for range 2 {
			rule(t, c)
			if f.count() != 1 {
				t.Errorf("%d fetches in the new way, want 1", f.count())
			}
		}
	})
}

// TestRetryUnconnectedBeforeAnOwnFailure: an entry that is replaced during a fetch is refreshed in the background
// after an own failure of that fetch.
func TestRetryUnconnectedBeforeAnOwnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := fetch.Result{MaxAge: -1, Connected: true, OwnFailure: true, Err: errDown}
		f := &script{answers: []fetch.Result{file(0), unconnected(), ours, file(-1)}, takes: time.Second}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		rule(t, c)
		rule(t, c) // in use
		wait(time.Minute + 2*time.Second)
		if r, _ := rule(t, c); !r.Stale || f.count() != 2 {
			t.Fatalf("%d fetches, %+v", f.count(), r)
		}
		var asked sync.WaitGroup
		asked.Go(func() { c.Refetch(t.Context(), Query{Origin: site}) })
		synctest.Wait()
		c.RetryUnconnected()
		asked.Wait()
		wait(30*time.Second - 1)
		if f.count() != 3 {
			t.Fatalf("%d fetches", f.count())
		}
		wait(1)
		if f.count() != 4 {
			t.Errorf("%d fetches in the background, want 4", f.count())
		}
	})
}

// TestReconfigureShrinks: entries that the new maximum has no room for are dropped at once.
func TestReconfigureShrinks(t *testing.T) {
	f := &script{answers: []fetch.Result{file(-1)}}
	c := newCache(t, Options{Fetcher: f})
	for i := range 100 {
		o := robots.Origin{Scheme: "https", Host: fmt.Sprintf("h%d.example", i), Port: 443}
		if _, err := c.Lookup(t.Context(), Query{Origin: o}, robots.Standard()); err != nil {
			t.Fatal(err)
		}
	}
	before := c.Stats()
	reconfigure(t, c, Options{Fetcher: f, MaxBytes: before.Bytes / 2})
	if after := c.Stats(); after.Bytes > before.Bytes/2 || after.Entries == 0 {
		t.Errorf("%d bytes in %d entries, want at most %d bytes", after.Bytes, after.Entries, before.Bytes/2)
	}
}

// TestReconfigureRejectsBadOptions: after an error nothing has changed.
func TestReconfigureRejectsBadOptions(t *testing.T) {
	f := &script{answers: []fetch.Result{file(-1)}}
	c := newCache(t, Options{Fetcher: f})
	for _, o := range []Options{{}, {Fetcher: f, MaxAge: -1}, {Fetcher: f, MinAge: 2, MaxAge: 1}} {
		if _, err := c.Reconfigure(o); err == nil || c.gen.Load().timing != usual || c.gen.Load().next != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestReconfigureUnderLoad: many origins, evictions, refreshes and changes at once. At the end
// the schedule has the entries in memory and no others.
func TestReconfigureUnderLoad(t *testing.T) {
	f := &script{answers: []fetch.Result{file(-1), file(0), status(503), unconnected(), file(time.Hour)}}
	c, stop := start(t, Options{Fetcher: f, MaxBytes: 1 << 20})
	var asked sync.WaitGroup
	for n := range 8 {
		asked.Go(func() {
			for i := range testkit.Rounds(2000) {
				o := robots.Origin{Scheme: "https", Host: fmt.Sprintf("h%d.example", (i*7+n)%1500), Port: 443}
				e, err := c.Lookup(t.Context(), Query{Origin: o}, robots.Standard())
				if err != nil {
					t.Error(err)
					return
				}
				e.Under(robots.Standard())
			}
		})
	}
	for i := range 40 {
		reconfigure(t, c, Options{Fetcher: f, MaxAge: time.Duration(1+i%3) * time.Hour, MinAge: time.Minute, Retry: time.Duration(1+i%5) * time.Second})
		if i%4 == 0 {
			c.RetryUnconnected()
		}
	}
	asked.Wait()
	stop()
	c.entries.CleanUp()
	var held []*Entry
	for e := range c.entries.Values() {
		held = append(held, e)
	}
	for _, at := range c.schedule.entries {
		if !slices.Contains(held, at.entry) {
			t.Fatalf("the schedule has an entry for %s that is not in memory", at.entry.origin)
		}
	}
}
