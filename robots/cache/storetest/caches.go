package storetest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// Shared tests that the stores of a fleet follow the contract of cache.SharedStore, and then
// that Caches work with them.
func Shared(t *testing.T, f Fleet) {
	for name, test := range map[string]func(*testing.T, func() replica){
		"all replicas load what one saves":     sharedEntries,
		"one replica at a time has a lease":    oneLease,
		"one of many has a lease":              oneLeaseOfMany,
		"a lease expires":                      leaseExpires,
		"saves are visible after the release":  savedBeforeRelease,
		"each save changes the version":        versions,
		"leases of origins are independent":    independentLeases,
		"a purge reaches all replicas":         purged,
		"saves during a purge do not undo it":  purgeIsFinal,
		"a replaced entry can be loaded":       replaced,
		"Watch ends with its context":          watchEnds,
		"Lease returns after its context ends": leaseAfterContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.In(t, func(t *testing.T) {
				join := f.Open(t)
				test(t, func() replica {
					s := join(t)
					return replica{s, s.(cache.SharedStore)}
				})
			})
		})
	}
	runCaches(t, f)
}

var errDown = errors.New("connection refused")

// A site is the origin of the tests, as the cache.Fetcher of each Cache.
type site struct {
	takes time.Duration

	// mu guards the fields below.
	mu     sync.Mutex
	result fetch.Result

	// begun is when each fetch began.
	begun []time.Time
}

func newSite(text string) *site {
	s := &site{takes: short}
	s.says(200, text)
	return s
}

func (s *site) says(status int, text string) {
	s.set(fetch.Result{Status: status, Connected: true, MaxAge: -1, Body: []byte(text)})
}

func (s *site) set(a fetch.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result = a
}

func (s *site) Fetch(ctx context.Context, _ fetch.Request) *fetch.Result {
	s.mu.Lock()
	a := s.result
	s.begun = append(s.begun, time.Now())
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return &fetch.Result{MaxAge: -1, Connected: true, Err: ctx.Err()}
	}
	a.Fetched = time.Now()
	return &a
}

func (s *site) fetches(t *testing.T, want int, when string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.begun); n != want {
		t.Errorf("%s: %d fetches, want %d", when, n, want)
	}
}

// apart checks that at least n fetches have begun, with at least the time gap(i) between the fetches i-1 and i.
func (s *site) apart(t *testing.T, n int, gap func(i int) time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.begun) < n {
		t.Errorf("%d fetches, want %d", len(s.begun), n)
	}
	for i := 1; i < len(s.begun); i++ {
		if got := s.begun[i].Sub(s.begun[i-1]); got < gap(i) {
			t.Errorf("fetch %d began %v after the one before, want at least %v", i+1, got, gap(i))
		}
	}
}

// A cacheFleet is a set of Caches of one fleet, which run until the test ends.
type cacheFleet []*cache.Cache

func newCacheFleet(t *testing.T, n int, join func(*testing.T) cache.Store, o cache.Options) cacheFleet {
	t.Helper()
	var all cacheFleet
	for range n {
		o.Store = join(t)
		c, err := cache.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		t.Cleanup(func() { cancel(); ended.Wait() })
		all = append(all, c)
	}
	return all
}

func look(t *testing.T, c *cache.Cache, d robots.Dialect) cache.Ruling {
	t.Helper()
	e, err := c.Lookup(t.Context(), cache.Query{Origin: origin("site.test")}, d)
	if err != nil {
		t.Errorf("Lookup: %v", err)
	}
	return e.Under(d)
}

// ask looks up the file in f Caches at once. Each must return the text, or an outcome without a
// text.
func (f cacheFleet) ask(t *testing.T, outcome cache.Meaning, text string) (took time.Duration) {
	t.Helper()
	began := time.Now()
	var lookups sync.WaitGroup
	for _, c := range f {
		lookups.Go(func() {
			r := look(t, c, robots.Standard())
			if r.Meaning != outcome || r.Meaning == cache.Rules && string(r.Result.Body) != text {
				t.Errorf("%v %q, want %v %q; %v", r.Meaning, r.Result.Body, outcome, text, r.Err)
			}
		})
	}
	lookups.Wait()
	return time.Since(began)
}

// soon waits until each Cache returns the text.
func (f cacheFleet) soon(t *testing.T, text string) {
	t.Helper()
	for _, c := range f {
		testkit.Eventually(t, "the cache returns "+text, func() bool {
			return string(look(t, c, robots.Standard()).Result.Body) == text
		})
	}
}

const (
	first  = "User-agent: *\nDisallow: /first\n"
	second = "User-agent: *\nDisallow: /second\n"
)

func runCaches(t *testing.T, f Fleet) {
	n, failures := cmp.Or(f.Replicas, 20), cmp.Or(f.Failures, 3)
	failing := func(t *testing.T, n int, join func(*testing.T) cache.Store) { failing(t, n, failures, join) }
	for name, test := range map[string]func(*testing.T, int, func(*testing.T) cache.Store){
		"an unknown origin is fetched once":              cold,
		"one fetch for all dialects":                     dialects,
		"one fetch for each agent":                       agents,
		"a refresh fetches once":                         refreshed,
		"failures and retries are shared":                failing,
		"a replica without a connection delays no other": unreached,
		"own failures are not shared":                    ownFailure,
		"another replica takes over from a dead one":     died,
		"a refetch reaches all replicas":                 refetched,
		"refetches at once fetch once":                   refetchedTogether,
		"a purge reaches all replicas, stale files too":  forgotten,
		"a purge during a fetch repeats no fetch":        forgottenMeanwhile,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.In(t, func(t *testing.T) { test(t, n, f.Open(t)) })
		})
	}
}

func cold(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	if took := all.ask(t, cache.Rules, first); took < s.takes {
		t.Errorf("answered after %v", took)
	}
	s.fetches(t, 1, "all at once")
	all.ask(t, cache.Rules, first)
	newCacheFleet(t, 2, join, cache.Options{Fetcher: s}).ask(t, cache.Rules, first)
	s.fetches(t, 1, "and others later")
}

// dialects tests that each Cache interprets the response itself.
func dialects(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite("")
	s.says(204, first)
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	var lookups sync.WaitGroup
	for _, c := range all {
		for _, d := range robots.Dialects() {
			lookups.Go(func() {
				want := cache.Rules
				if d.Only200 {
					want = cache.NoFile
				}
				if r := look(t, c, d); r.Meaning != want {
					t.Errorf("%s: %v, want %v", d.Name, r.Meaning, want)
				}
			})
		}
	}
	lookups.Wait()
	s.fetches(t, 1, "by all dialects")
}

// agents tests that Caches that fetch as different agents share no file and no purge. Versions of one agent
// share both.
func agents(t *testing.T, _ int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	as := func(userAgent string) cacheFleet {
		return newCacheFleet(t, 1, join, cache.Options{Fetcher: s, UserAgent: userAgent})
	}
	old, other := as("BotA/1.0 (+https://a.test/bot)"), as("Mozilla/5.0 (compatible; BotB/1.0)")
	old.ask(t, cache.Rules, first)
	s.says(200, second)
	other.ask(t, cache.Rules, second)
	s.fetches(t, 2, "by two agents")
	next := as("BotA/2.0 (+https://a.test/bot)")
	next.ask(t, cache.Rules, first)
	s.fetches(t, 2, "by a new version")
	next[0].Purge(origin("site.test"))
	old.soon(t, second)
	s.fetches(t, 3, "after a purge")
	other.ask(t, cache.Rules, second)
	as("Mozilla/5.0 (compatible; BotB/1.0)").ask(t, cache.Rules, second)
	s.fetches(t, 3, "after a purge of another agent")
}

// refreshed tests that the refreshes of all Caches, which are due at the same time, fetch
// once.
func refreshed(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	const least = 5 * short
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s, MinAge: least, MaxAge: 4 * least})
	all.ask(t, cache.Rules, first)
	s.says(200, second)
	for began := time.Now(); time.Since(began) < 6*least; {
		for _, c := range all {
			look(t, c, robots.Standard())
		}
		<-time.After(short / 2)
	}
	all.ask(t, cache.Rules, second)
	s.apart(t, 3, func(int) time.Duration { return least })
}

// failing tests that all replicas share the failures of an origin. On a busy machine, a lookup may be so late
// that it finds the next retry due.
func failing(t *testing.T, n, failures int, join func(*testing.T) cache.Store) {
	s := newSite("")
	s.says(503, "")
	const retry = 25 * short
	apart := func(n int) {
		t.Helper()
		s.apart(t, n, func(i int) time.Duration { return retry << (i - 1) * 3 / 4 })
	}
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s, Retry: retry})
	// The last failure is not earlier.
	failed := time.Now()
	all.ask(t, cache.Unreachable, "")
	all.ask(t, cache.Unreachable, "")
	apart(1)
	// The time doubles with each failure.
	wait := retry
	for n := 2; n <= failures; n++ {
		<-time.After(wait + short)
		failed = time.Now()
		all.ask(t, cache.Unreachable, "")
		apart(n)
		wait *= 2
	}
	added := newCacheFleet(t, 1, join, cache.Options{Fetcher: s, Retry: retry})[0]
	if r := look(t, added, robots.Standard()); r.Retry.Before(failed.Add(wait * 3 / 4)) {
		t.Errorf("a new replica retries %v after the last failure", r.Retry.Sub(failed))
	}
	s.says(200, first)
	all.soon(t, first)
	apart(failures + 1)
}

func unreached(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite("")
	s.set(fetch.Result{MaxAge: -1, Err: errDown})
	s.takes = 4 * short
	const retry = 30 * time.Second
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s, Retry: retry})
	if took := all.ask(t, cache.NoConnection, ""); took > 10*time.Second {
		t.Errorf("answered after %v", took)
	}
	s.fetches(t, n, "each for itself")
	for _, c := range all {
		r := look(t, c, robots.Standard())
		if wait := time.Until(r.Retry); wait > retry || !errors.Is(r.Err, errDown) {
			t.Errorf("the next try in %v: %v", wait, r.Err)
		}
	}
	s.fetches(t, n, "and not again")
	one := newSite(first)
	newCacheFleet(t, n, join, cache.Options{Fetcher: one}).ask(t, cache.Rules, first)
	one.fetches(t, 1, "by those who can reach it")
}

func ownFailure(t *testing.T, _ int, join func(*testing.T) cache.Store) {
	s := newSite("")
	s.set(fetch.Result{MaxAge: -1, OwnFailure: true, Err: errDown})
	all := newCacheFleet(t, 3, join, cache.Options{Fetcher: s})
	all.ask(t, cache.NoConnection, "")
	s.fetches(t, 3, "each for itself")
	s.says(200, first)
	all.ask(t, cache.Rules, first)
	s.fetches(t, 4, "then")
}

func died(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	const term = 10 * short
	dead := join(t)
	asked := time.Now()
	getLease(t, replica{dead, dead.(cache.SharedStore)}, key("site.test"), term)
	all.ask(t, cache.Rules, first)
	if took := time.Since(asked); took < term {
		t.Errorf("answered after %v, while another replica had the lease", took)
	}
	s.fetches(t, 1, "after the lease")
}

// refetch refetches the file and expects the second one.
func refetch(t *testing.T, c *cache.Cache) {
	t.Helper()
	e, err := c.Refetch(t.Context(), cache.Query{Origin: origin("site.test")})
	if r := e.Under(robots.Standard()); err != nil || string(r.Result.Body) != second {
		t.Errorf("%+v, %v", r, err)
	}
}

func refetched(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	all.ask(t, cache.Rules, first)
	s.says(200, second)
	refetch(t, all[0])
	all.soon(t, second)
	s.fetches(t, 2, "after the refetch")
}

func refetchedTogether(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	all.ask(t, cache.Rules, first)
	s.says(200, second)
	// A fetch takes long enough for all refetches to begin.
	s.takes = 30 * short
	var lookups sync.WaitGroup
	for _, c := range all {
		lookups.Go(func() { refetch(t, c) })
	}
	lookups.Wait()
	s.fetches(t, 2, "after the refetches")
	all.ask(t, cache.Rules, second)
	s.fetches(t, 2, "after the refetches")
}

func forgotten(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	all.ask(t, cache.Rules, first)
	s.says(503, "")
	if e, err := all[0].Refetch(t.Context(), cache.Query{Origin: origin("site.test")}); err != nil || !e.Under(robots.Standard()).Stale {
		t.Fatal("there is no stale file", err)
	}
	all.ask(t, cache.Rules, first)
	all[1].Purge(origin("site.test"))
	for _, c := range all {
		testkit.Eventually(t, "the stale file is purged", func() bool { return look(t, c, robots.Standard()).Meaning == cache.Unreachable })
	}
	s.fetches(t, 3, "after a purge")
	all[2].Purge(origin("site.test"))
	s.says(200, second)
	all.soon(t, second)
	s.fetches(t, 4, "after a purge")
}

func forgottenMeanwhile(t *testing.T, n int, join func(*testing.T) cache.Store) {
	s := newSite(first)
	// The purge happens during the fetch.
	s.takes = 30 * short
	all := newCacheFleet(t, n, join, cache.Options{Fetcher: s})
	var lookups sync.WaitGroup
	lookups.Go(func() { all.ask(t, cache.Rules, first) })
	<-time.After(2 * short)
	all[0].Purge(origin("site.test"))
	lookups.Wait()
	s.fetches(t, 1, "during a purge")
}
