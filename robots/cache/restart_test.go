package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// TestRestart: fresh entries are not fetched again, and are the same byte for byte.
func TestRestart(t *testing.T) {
	lost := fetch.Result{Status: 301, TooManyRedirects: true, Redirects: 5, Connected: true, MaxAge: -1, URL: "https://example.com/5"}
	text := file(-1)
	text.URL, text.Redirects = "https://www.example.com/robots.txt", 2
	empty := fetch.Result{Status: 200, Connected: true, MaxAge: -1}
	for name, answer := range map[string]fetch.Result{"file": text, "an hour": file(time.Hour), "empty": empty, "404": status(404), "lost": lost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRestartable(answer)
				first, _ := rule(t, r.cache(t))
				wait(usual.ttl(answer.MaxAge) - time.Second)
				c := r.cache(t)
				again, _ := rule(t, c)
				if r.count() != 1 || again.Meaning != first.Meaning || !again.Fetched().Equal(first.Fetched()) || again.Stale || again.Err != nil {
					t.Fatalf("%d fetches, %+v, before %+v", r.count(), again, first)
				}
				a, b := *first.Result, *again.Result
				if a.URL != b.URL || a.Status != b.Status || string(a.Body) != string(b.Body) || a.Redirects != b.Redirects ||
					a.TooManyRedirects != b.TooManyRedirects || a.MaxAge != b.MaxAge || !b.Connected {
					t.Errorf("answer %+v, before %+v", b, a)
				}
				want := ""
				if a.Status == 200 {
					want = fmt.Sprintf("%x", sha256.Sum256(a.Body))
				}
				if b.SHA256 != want {
					t.Errorf("SHA-256 %q, want %q", b.SHA256, want)
				}
				if rule(t, c); r.loads != 2 { // one for each cache, which then has the entry in memory
					t.Errorf("loaded %d times", r.loads)
				}
				wait(time.Second)
				if rule(t, c); r.count() != 2 {
					t.Errorf("%d fetches when its time was over", r.count())
				}
			})
		})
	}
}

// TestRestartStale: an expired file is fetched once for all callers.
func TestRestartStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(0))
		rule(t, r.cache(t))
		wait(time.Minute)
		r.script.takes, r.memStore.takes = time.Second, time.Second/2
		c := r.cache(t)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if got, waited := rule(t, c); got.Meaning != Rules || got.Stale || waited != 3*time.Second/2 {
					t.Errorf("%+v after %v", got, waited)
				}
			})
		}
		wg.Wait()
		if r.count() != 2 || r.loads != 2 || r.stores != 2 {
			t.Errorf("%d fetches, %d loads, %d saves", r.count(), r.loads, r.stores)
		}
	})
}

// TestRestartRefreshes: a loaded entry in use is refreshed before it expires, as any other.
func TestRestartRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(-1))
		rule(t, r.cache(t))
		wait(20 * time.Hour)
		c, stop := start(t, r.o)
		defer stop()
		rule(t, c)
		wait(3 * time.Hour)
		if _, waited := rule(t, c); r.count() != 2 || waited != 0 {
			t.Errorf("%d fetches, waited %v", r.count(), waited)
		}
	})
}

// TestRestartKeepsStaleFiles: a stale file is used for 30 days after its fetch, however often
// the process restarts; without a limit under Google's dialects.
func TestRestartKeepsStaleFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(-1), status(503))
		standard, google := robots.Standard(), named("google")
		ruleBy(t, r.cache(t), standard)
		fetched := time.Now()
		wait(day)
		for time.Since(fetched) < 60*day {
			c := r.cache(t)
			want := Rules
			if time.Since(fetched) >= 30*day {
				want = Unreachable
			}
			if got, _ := ruleBy(t, c, standard); got.Meaning != want || got.Stale != (want == Rules) || got.Err == nil {
				t.Fatalf("after %v: %+v", time.Since(fetched), got)
			}
			if got, _ := ruleBy(t, c, google); got.Meaning != Rules || !got.Stale || !got.Fetched().Equal(fetched) {
				t.Fatalf("after %v, google: %+v", time.Since(fetched), got)
			}
			wait(6 * time.Hour)
		}
	})
}

// TestRestartGoesOnCounting: NoFileAfter counts the time of failures, not of uptime, and a
// restart does not bring a retry forward.
func TestRestartGoesOnCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(status(503))
		google := named("google")
		began := time.Now()
		for time.Since(began) < 31*day {
			got, _ := ruleBy(t, r.cache(t), google)
			if givenUp := time.Since(began) >= 30*day; (got.Meaning == NoFile) != givenUp || got.Err == nil {
				t.Fatalf("after %v: %+v", time.Since(began), got)
			}
			wait(2 * time.Hour)
		}
	})
}

func TestRestartKeepsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(status(503))
		rule(t, r.cache(t))
		for i, next := range []time.Duration{30, 60, 120, 240, 480, 960, 1800, 1800} {
			next *= time.Second
			for range 2 {
				wait(next/2 - 1)
				if got, _ := rule(t, r.cache(t)); got.Meaning != Unreachable || got.Err == nil || r.count() != i+1 {
					t.Fatalf("before its time: %d fetches after %d failures, %+v", r.count(), i+1, got)
				}
			}
			wait(2)
			if got, _ := rule(t, r.cache(t)); r.count() != i+2 || !got.Retry.After(time.Now()) {
				t.Fatalf("at its time: %d fetches, %+v", r.count(), got)
			}
		}
	})
}

// TestRestartAsksTheUnreached: an origin without a connection is tried once after a restart, and
// its retry time continues from the earlier one.
func TestRestartAsksTheUnreached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(unconnected())
		rule(t, r.cache(t))
		for _, next := range []time.Duration{time.Minute, 2 * time.Minute} {
			c := r.cache(t)
			for range 2 {
				if got, _ := rule(t, c); got.Meaning != NoConnection || !errors.Is(got.Err, errDown) || time.Until(got.Retry) != next {
					t.Errorf("%+v, in %v", got, time.Until(got.Retry))
				}
			}
		}
		if r.count() != 3 {
			t.Errorf("%d fetches, want one for each start", r.count())
		}
	})
}

// TestRestartOtherDialects: each caller gets the Ruling of its own dialect.
func TestRestartOtherDialects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(time.Hour))
		standard, coccoc := named("standard"), named("coccoc") // coccoc ignores Cache-Control
		ruleBy(t, r.cache(t), standard)
		wait(2 * time.Hour)
		r.script.takes, r.memStore.takes = time.Second, time.Second/2
		c := r.cache(t)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got, waited := ruleBy(t, c, coccoc); got.Meaning != Rules || waited != time.Second/2 {
					t.Errorf("coccoc: %+v after %v", got, waited)
				}
			})
			wg.Go(func() {
				if got, waited := ruleBy(t, c, standard); got.Meaning != Rules || waited != 3*time.Second/2 {
					t.Errorf("standard: %+v after %v", got, waited)
				}
			})
		}
		wg.Wait()
		if r.count() != 2 || r.loads != 2 {
			t.Errorf("%d fetches, %d loads", r.count(), r.loads)
		}
	})
}

// A keyedStore is a Store in memory that keeps the entries of different agents apart.
type keyedStore map[StoreKey][]byte

func (s keyedStore) Load(_ context.Context, k StoreKey) ([]byte, error) { return s[k], nil }

func (s keyedStore) Save(k StoreKey, entry []byte, _ time.Time, _ string) { s[k] = entry }

// TestRestartWithTokens: with StoreTokens, the file for a product token is not fetched again after a restart, whatever the
// case of the token, and applies to no other token. A purge deletes it.
func TestRestartWithTokens(t *testing.T) {
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprint(stored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := &script{answers: []fetch.Result{file(-1)}}
				o := Options{Fetcher: script, Store: keyedStore{}, StoreTokens: stored}
				lookup := func(c *Cache, token string, fetches int) {
					t.Helper()
					e, err := c.Lookup(t.Context(), Query{Origin: site, Token: token, Client: "a"}, robots.Standard())
					if err != nil || e.Under(robots.Standard()).Meaning != Rules || e.Token() != token || script.count() != fetches {
						t.Errorf("%q: fetched as %q, %d fetches, %v", token, e.Token(), script.count(), err)
					}
				}
				again := 0 // fetches of a file that was fetched before a restart
				if !stored {
					again = 1
				}
				lookup(newCache(t, o), "FooBot", 1)
				lookup(newCache(t, o), "BarBot", 2)
				c := newCache(t, o)
				lookup(c, "foobot", 2+again)
				lookup(c, "", 3+again)
				c.Purge(site)
				lookup(newCache(t, o), "", 4+again)
				lookup(newCache(t, o), "FooBot", 5+again)
				lookup(newCache(t, o), "BarBot", 5+2*again) // the purged cache did not know of it
			})
		})
	}
}

// TestRestartWithOtherTimes: a Cache applies its own times to an entry that another one has saved.
func TestRestartWithOtherTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(-1))
		hour, aDay := r.o, r.o
		hour.MaxAge = time.Hour
		rule(t, newCache(t, hour))
		wait(2 * time.Hour)
		if rule(t, newCache(t, aDay)); r.count() != 1 {
			t.Errorf("%d fetches, though a file may be used for a day", r.count())
		}
		if rule(t, newCache(t, hour)); r.count() != 2 {
			t.Errorf("%d fetches, though a file may be used for an hour", r.count())
		}
	})
}
