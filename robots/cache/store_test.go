package cache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// A memStore is a Store in memory that outlives the caches of a test.
type memStore struct {
	err   error         // of Load
	takes time.Duration // of Load

	mu     sync.Mutex // guards what follows
	saved  map[robots.Origin][]byte
	until  map[robots.Origin]time.Time
	loads  int
	stores int
	client string // of the last Save
}

func newMemStore() *memStore {
	return &memStore{saved: map[robots.Origin][]byte{}, until: map[robots.Origin]time.Time{}}
}

func (s *memStore) Load(ctx context.Context, k StoreKey) ([]byte, error) {
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if !time.Now().Before(s.until[k.Origin]) {
		return nil, s.err
	}
	return s.saved[k.Origin], s.err
}

func (s *memStore) Save(k StoreKey, entry []byte, until time.Time, client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores++
	s.client = client
	s.saved[k.Origin], s.until[k.Origin] = entry, until
}

// A restartable is a test whose cache can be restarted with the same store.
type restartable struct {
	*script
	*memStore
	o Options
}

func newRestartable(answers ...fetch.Result) *restartable {
	r := &restartable{script: &script{answers: answers}, memStore: newMemStore()}
	r.o = Options{Fetcher: r.script, Store: r.memStore}
	return r
}

func (r *restartable) cache(t testing.TB) *Cache { return newCache(t, r.o) }

// TestBadStores: a faulty Store costs one fetch and no more.
func TestBadStores(t *testing.T) {
	other := robots.Origin{Scheme: "http", Host: "other.test", Port: 80}
	for name, tc := range map[string]struct {
		spoil  func(s *memStore)
		waited time.Duration
	}{
		"an error":            {func(s *memStore) { s.err = errDown }, 0},
		"nothing":             {func(s *memStore) { clear(s.saved) }, 0},
		"no bytes":            {func(s *memStore) { s.saved[site] = []byte{} }, 0},
		"nonsense":            {func(s *memStore) { s.saved[site] = []byte("nonsense") }, 0},
		"a byte less":         {func(s *memStore) { s.saved[site] = s.saved[site][1:] }, 0},
		"a bit flipped":       {func(s *memStore) { s.saved[site][len(s.saved[site])/2] ^= 4 }, 0},
		"another's":           {func(s *memStore) { s.saved[site] = s.saved[other] }, 0},
		"one that stalls":     {func(s *memStore) { s.takes = time.Hour }, maxLoad},
		"one from the future": {func(s *memStore) { s.saved[site] = restamp(s.saved[site], time.Now().Add(maxAhead+1)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRestartable(file(-1))
				c := r.cache(t)
				for _, o := range []robots.Origin{site, other} {
					if _, err := c.Lookup(t.Context(), Query{Origin: o}, robots.Standard()); err != nil {
						t.Fatal(err)
					}
				}
				tc.spoil(r.memStore)
				if got, waited := rule(t, r.cache(t)); got.Meaning != Rules || r.count() != 3 || waited != tc.waited {
					t.Errorf("%d fetches, %+v after %v", r.count(), got, waited)
				}
			})
		})
	}
}

// TestStoreHearsWhoCausedAFetch: a Store gets the client that caused a fetch, so that it can
// share its space between clients.
func TestStoreHearsWhoCausedAFetch(t *testing.T) {
	r := newRestartable(file(-1))
	if _, err := r.cache(t).Lookup(t.Context(), Query{Origin: site, Client: "192.0.2.1"}, robots.Standard()); err != nil {
		t.Fatal(err)
	}
	if r.stores != 1 || r.client != "192.0.2.1" {
		t.Errorf("%d saved, the last for %q", r.stores, r.client)
	}
}

// restamp returns a saved entry with another time of its fetch.
func restamp(encoded []byte, at time.Time) []byte {
	k, err := decode(encoded)
	if err != nil {
		panic(err)
	}
	k.last.Fetched = at
	return k.append(nil)
}

// TestClockSetBack: if the clock was set back a little, a saved file is fresh for no longer than
// if it were fetched now.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(-1))
		rule(t, r.cache(t))
		r.saved[site] = restamp(r.saved[site], time.Now().Add(maxAhead))
		c := r.cache(t)
		rule(t, c)
		wait(day - 1)
		if rule(t, c); r.count() != 1 {
			t.Errorf("%d fetches within a day", r.count())
		}
		wait(1)
		if rule(t, c); r.count() != 2 {
			t.Errorf("%d fetches after a day", r.count())
		}
	})
}

// TestRestartWithOtherOptions: a loaded entry has the times of the current Options.
func TestRestartWithOtherOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(-1))
		rule(t, r.cache(t))
		wait(2 * time.Hour)
		r.o.MaxAge = 3 * time.Hour
		if rule(t, r.cache(t)); r.count() != 1 {
			t.Errorf("%d fetches of what is good for an hour more", r.count())
		}
		r.o.MaxAge, r.o.UserAgent = 2*time.Hour, "OurBot/1.0"
		if rule(t, r.cache(t)); r.count() != 2 || r.agents[1] != "OurBot/1.0" {
			t.Errorf("%d fetches of what is too old by now, as %q", r.count(), r.agents)
		}
	})
}

// TestEvictedIsLoaded: an evicted entry is loaded, not fetched again.
func TestEvictedIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(0), file(0), status(503))
		r.o.MaxBytes = 1
		c := r.cache(t)
		for i, step := range []struct {
			after   time.Duration
			fetches int
			stale   bool
		}{{0, 1, false}, {0, 1, false}, {time.Minute - 1, 1, false}, {1, 2, false}, {0, 2, false}, {time.Minute, 3, true}, {29 * time.Second, 3, true}, {time.Second, 4, true}} {
			wait(step.after)
			if got, _ := rule(t, c); got.Meaning != Rules || got.Stale != step.stale || r.count() != step.fetches {
				t.Errorf("step %d: %d fetches, want %d; %+v", i, r.count(), step.fetches, got)
			}
		}
		if c.entries.WeightedSize() != 0 || len(c.schedule.entries) != 0 {
			t.Errorf("%d bytes held, %d scheduled", c.entries.WeightedSize(), len(c.schedule.entries))
		}
	})
}

// TestOwnFailureIsNotSaved: an own failure says nothing about the origin.
func TestOwnFailureIsNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(0), fetch.Result{MaxAge: -1, Connected: true, OwnFailure: true, Err: errDown})
		rule(t, r.cache(t))
		before := string(r.saved[site])
		wait(time.Minute)
		if got, _ := rule(t, r.cache(t)); !got.Stale || r.count() != 2 || r.stores != 1 || string(r.saved[site]) != before {
			t.Errorf("%d fetches, %d saves, %+v", r.count(), r.stores, got)
		}
	})
}

// TestLeaveWhileLoading: a caller may leave during a load, and the cache may be stopped.
func TestLeaveWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestartable(file(-1))
		r.memStore.takes = time.Hour
		c, stop := start(t, r.o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Lookup(ctx, Query{Origin: site}, robots.Standard()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		began := time.Now()
		if stop(); time.Since(began) != 0 || r.count() != 0 && r.stores != 0 {
			t.Errorf("stopped after %v, %d saves", time.Since(began), r.stores)
		}
	})
}

// TestUsefulUntil: a Store need not keep an entry for longer than it is useful.
func TestUsefulUntil(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []fetch.Result
		want    time.Duration // from the last fetch
	}{
		"a file may become a copy":       {[]fetch.Result{file(0)}, 30 * day},
		"no file is good for its time":   {[]fetch.Result{{Status: 404, MaxAge: 0, Connected: true}}, day},
		"a row of failures is counted":   {[]fetch.Result{status(503)}, 30 * day},
		"and so it is while a copy goes": {[]fetch.Result{file(0), status(503)}, 30 * day},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRestartable(tc.answers...)
				c := r.cache(t)
				for range tc.answers {
					rule(t, c)
					wait(time.Minute)
				}
				if got := r.until[site].Sub(r.lastBegun()); got != tc.want {
					t.Errorf("until %v after the fetch, want %v", got, tc.want)
				}
			})
		})
	}
}

// A compilingStore is a SharedStore that holds up the compilation of what is saved.
type compilingStore struct {
	*memStore
	cache     *Cache
	saved     chan *response // its mutex is locked
	announced chan Change
}

func (s *compilingStore) Save(k StoreKey, entry []byte, until time.Time, client string) {
	s.memStore.Save(k, entry, until, client)
	r := s.cache.Peek(k.Origin).last
	r.mu.Lock()
	s.saved <- r
}

func (s *compilingStore) Lease(context.Context, StoreKey, time.Duration) (Lease, error) {
	return Lease{Release: func() {}}, nil
}

func (s *compilingStore) Announce(_ StoreKey, change Change) { s.announced <- change }

func (s *compilingStore) Watch(ctx context.Context, _ func(StoreKey, Change)) { <-ctx.Done() }

// TestRefetchDuringCompilation: the other processes learn of the entry that a Refetch returns also if
// the Refetch has joined a fetch whose file is being compiled.
func TestRefetchDuringCompilation(t *testing.T) {
	s := &compilingStore{memStore: newMemStore(), saved: make(chan *response, 1), announced: make(chan Change, 1)}
	c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{file(-1)}}, Store: s})
	s.cache = c
	var asked sync.WaitGroup
	asked.Go(func() { c.Lookup(t.Context(), Query{Origin: site}, robots.Standard()) })
	r := <-s.saved
	f, _, err := c.join(t.Context(), key{origin: site}, "", nil, nil)
	r.mu.Unlock()
	if f == nil || err != nil {
		t.Fatalf("no fetch is in progress: %v", err)
	}
	<-f.done
	asked.Wait()
	select {
	case change := <-s.announced:
		if change != Replaced {
			t.Errorf("announced %d, want Replaced", change)
		}
	default:
		t.Error("not announced")
	}
}

// TestAgentOf: crawlers are told apart by their names, and those without a name by the whole header.
func TestAgentOf(t *testing.T) {
	for a, b := range map[string]string{
		"BotA/1.0": "BotB/1.0", "Mozilla/5.0 (compatible; BotA/1.0)": "Mozilla/5.0 (compatible; BotB/1.0)",
		"Mozilla/5.0 (X11; Linux x86_64)": "Mozilla/5.0 (X11; Linux i686)", "BotA BotC": "BotA", "BotA-BotC": "BotA BotC",
	} {
		if agentOf(a) == agentOf(b) || strings.Contains(agentOf(a)+agentOf(b), " ") {
			t.Errorf("%s is %q, and %s is %q", a, agentOf(a), b, agentOf(b))
		}
	}
	if a := agentOf("BotA/1.0 (+https://a.test)"); a != agentOf("bota/2.0") {
		t.Errorf("BotA/1.0 is %q", a)
	}
}
