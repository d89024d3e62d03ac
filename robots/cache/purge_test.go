package cache

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

func elsewhere() fetch.Result {
	return fetch.Result{Status: 200, Connected: true, Body: []byte("User-agent: *\nDisallow: /y\n"), SHA256: "cd", MaxAge: -1}
}

func lookup(t *testing.T, c *Cache) Ruling {
	t.Helper()
	e, err := c.Lookup(t.Context(), Query{Origin: site}, robots.Standard())
	if err != nil {
		t.Fatal(err)
	}
	return e.Under(robots.Standard())
}

func TestPeekIsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []fetch.Result{file(time.Hour)}}
		c, end := start(t, Options{Fetcher: s})
		defer end()
		if e := c.Peek(site); e != nil || s.count() != 0 {
			t.Fatalf("before anybody asked: %v, %d fetches", e, s.count())
		}
		at := time.Now()
		lookup(t, c)
		for range 50 { // past its refresh, which needs use
			<-time.After(2 * time.Minute)
			e := c.Peek(site)
			if e == nil || e.Origin() != site || !e.Expires().Equal(at.Add(time.Hour)) {
				t.Fatalf("Peek: %+v", e)
			}
			n := 0
			for shown := range c.All() {
				if n++; shown != e {
					t.Fatalf("All: %+v", shown)
				}
			}
			if n != 1 {
				t.Fatalf("All has %d", n)
			}
		}
		if s.count() != 1 {
			t.Errorf("%d fetches", s.count())
		}
	})
}

func TestPurgeForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := &script{answers: []fetch.Result{file(-1), status(503), status(503), elsewhere()}}, newMemStore()
		o := Options{Fetcher: s, Store: store}
		c := newCache(t, o)
		lookup(t, c)
		<-time.After(25 * time.Hour)
		if r := lookup(t, c); !r.Stale { // a stale file is used
			t.Fatalf("%+v", r)
		}
		if !c.Purge(site) || c.Purge(site) || c.Peek(site) != nil {
			t.Error("nothing was there, or is still")
		}
		if r := lookup(t, c); r.Meaning != Unreachable || s.count() != 3 {
			t.Errorf("the copy is held on, from memory or the Store: %+v after %d fetches", r, s.count())
		}
		c.Purge(site)
		next := newCache(t, o)
		if r := lookup(t, next); r.Meaning != Rules || s.count() != 4 || r.Result.SHA256 != "cd" {
			t.Errorf("after a restart: %+v after %d fetches", r, s.count())
		}
	})
}

// TestPurgeDuringAFetch: a fetch in progress does not keep earlier state.
func TestPurgeDuringAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []fetch.Result{file(-1), status(503)}, takes: time.Second}
		c := newCache(t, Options{Fetcher: s})
		lookup(t, c)
		<-time.After(25 * time.Hour)
		var wg sync.WaitGroup
		wg.Go(func() {
			if r := lookup(t, c); r.Meaning != Unreachable {
				t.Errorf("the copy is held on: %+v", r)
			}
		})
		synctest.Wait()
		c.Purge(site)
		wg.Wait()
		if r := lookup(t, c); r.Meaning != Unreachable || s.count() != 2 {
			t.Errorf("%+v after %d fetches", r, s.count())
		}
	})
}

func TestPurgeDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := &script{answers: []fetch.Result{file(-1), elsewhere()}}, newMemStore()
		o := Options{Fetcher: s, Store: store}
		lookup(t, newCache(t, o))
		store.takes = 100 * time.Millisecond
		c := newCache(t, o)
		var wg sync.WaitGroup
		wg.Go(func() {
			if r := lookup(t, c); r.Result.SHA256 != "cd" {
				t.Errorf("what was loaded is answered with: %+v", r)
			}
		})
		synctest.Wait()
		c.Purge(site)
		wg.Wait()
		if s.count() != 2 {
			t.Errorf("%d fetches", s.count())
		}
	})
}

func TestRefetchFetchesWhatIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []fetch.Result{file(-1), elsewhere(), status(503), elsewhere()}, takes: time.Second}
		c := newCache(t, Options{Fetcher: s})
		lookup(t, c)
		refetch := func() Ruling {
			e, err := c.Refetch(t.Context(), Query{Origin: site})
			if err != nil {
				t.Fatal(err)
			}
			if e != c.Peek(site) {
				t.Error("what it gives is not what is known")
			}
			return e.Under(robots.Standard())
		}
		if r := refetch(); r.Result.SHA256 != "cd" || lookup(t, c).Result.SHA256 != "cd" || s.count() != 2 {
			t.Errorf("%+v after %d fetches", r, s.count())
		}
		if r := refetch(); !r.Stale || r.Meaning != Rules {
			t.Errorf("after one that failed: %+v", r)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { refetch() })
		}
		wg.Wait()
		if s.count() != 4 {
			t.Errorf("ten at once made %d fetches", s.count()-3)
		}
	})
}

func TestRefetchKeepsStoredFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := &script{answers: []fetch.Result{file(-1), status(503)}}, newMemStore()
		o := Options{Fetcher: s, Store: store}
		lookup(t, newCache(t, o))
		e, err := newCache(t, o).Refetch(t.Context(), Query{Origin: site})
		if r := e.Under(robots.Standard()); err != nil || !r.Stale || s.count() != 2 {
			t.Errorf("%+v, %v after %d fetches", r, err, s.count())
		}
	})
}

func TestStatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := unconnected()
		ours.OwnFailure = true
		s := &script{answers: []fetch.Result{file(-1), status(404), status(503), unconnected(), ours}}
		c := newCache(t, Options{Fetcher: s})
		lookup(t, c)
		lookup(t, c)
		for range 4 {
			if _, err := c.Refetch(t.Context(), Query{Origin: site}); err != nil {
				t.Fatal(err)
			}
		}
		got := c.Stats()
		if got.Bytes < entryOverhead {
			t.Errorf("%d bytes", got.Bytes)
		}
		got.Bytes = 0
		want := Stats{Entries: 1, Hits: 1, Misses: 1, Fetches: map[FetchOutcome]uint64{
			FetchedRules: 1, FetchedNoFile: 1, FetchedUnreachable: 1, FetchedNoConnection: 1, FetchedOwnFailure: 1,
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestPurgeAfterALoad: after a purge nobody uses what was loaded before, also while the load has callers that wait.
func TestPurgeAfterALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := file(-1)
		large.Body = bytes.Repeat([]byte("#\n"), largeText)
		s, store := &script{answers: []fetch.Result{large, elsewhere()}}, newMemStore()
		o := Options{Fetcher: s, Store: store}
		lookup(t, newCache(t, o))
		defer func(before chan struct{}) { compiling = before }(compiling)
		compiling = make(chan struct{}, 1)
		compiling <- struct{}{}
		c := newCache(t, o)
		var wg sync.WaitGroup
		wg.Go(func() { lookup(t, c) })
		synctest.Wait() // it was loaded, and waits to be compiled
		if !c.Purge(site) {
			t.Error("nothing was loaded")
		}
		wg.Go(func() {
			if r := lookup(t, c); r.Result.SHA256 != "cd" {
				t.Error("a later lookup is answered with what was loaded before the purge")
			}
		})
		synctest.Wait()
		<-compiling
		wg.Wait()
	})
}
