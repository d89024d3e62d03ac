package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/cache/storetest"
	"robotsproxy/robots/fetch"
)

var (
	site    = robots.Origin{Scheme: "https", Host: "site.test", Port: 443}
	errAway = errors.New("the store is away")
)

// TestFleet runs the tests of shared stores over a Memory.
func TestFleet(t *testing.T) {
	storetest.Run(t, func(*testing.T) cache.Store { return storetest.NewMemory().Join() })
	storetest.Shared(t, storetest.Fleet{
		Open: func(*testing.T) func(*testing.T) cache.Store {
			m := storetest.NewMemory()
			return func(*testing.T) cache.Store { return m.Join() }
		},
		In:       synctest.Test,
		Replicas: 100,
	})
}

// A fault replaces calls of a SharedStore.
type fault struct {
	*storetest.Replica
	load  func(ctx context.Context) ([]byte, error)
	claim func(ctx context.Context, o cache.StoreKey, term time.Duration) (cache.Lease, error)
}

func (f *fault) Load(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	if f.load == nil {
		return f.Replica.Load(ctx, k)
	}
	return f.load(ctx)
}

func (f *fault) Lease(ctx context.Context, k cache.StoreKey, term time.Duration) (cache.Lease, error) {
	if f.claim == nil {
		return f.Replica.Lease(ctx, k, term)
	}
	return f.claim(ctx, k, term)
}

// A fetcher takes a second for a file.
type fetcher struct{ calls atomic.Int32 }

func (f *fetcher) Fetch(context.Context, fetch.Request) *fetch.Result {
	f.calls.Add(1)
	<-time.After(time.Second)
	return &fetch.Result{Status: 200, Connected: true, MaxAge: -1, Body: []byte("User-agent: *\nDisallow: /x\n"), Fetched: time.Now()}
}

// A badStore is a faulty SharedStore, with the longest time for which it may delay a
// lookup.
type badStore struct {
	name  string
	fault fault
	most  time.Duration // in addition to the fetch
}

func badStores() []badStore {
	var saves atomic.Int32
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	return []badStore{
		{"no answer but errors", fault{
			load: func(context.Context) ([]byte, error) { return nil, errAway },
			claim: func(context.Context, cache.StoreKey, time.Duration) (cache.Lease, error) {
				return cache.Lease{}, errAway
			},
		}, 0},
		{"no answer at all", fault{
			load: func(ctx context.Context) ([]byte, error) { return nil, hang(ctx) },
			claim: func(ctx context.Context, _ cache.StoreKey, _ time.Duration) (cache.Lease, error) {
				return cache.Lease{}, hang(ctx)
			},
		}, 2 * time.Second},
		{"rubbish, and leases for all", fault{
			load: func(context.Context) ([]byte, error) { return []byte("rubbish"), nil },
			claim: func(context.Context, cache.StoreKey, time.Duration) (cache.Lease, error) {
				return cache.Lease{Release: func() {}}, nil
			},
		}, 0},
		{"leases for nobody", fault{
			claim: func(context.Context, cache.StoreKey, time.Duration) (cache.Lease, error) { return cache.Lease{}, nil },
		}, 43 * time.Second},
		{"leases for nobody, new versions for all, and rubbish", fault{
			load: func(context.Context) ([]byte, error) { return []byte("rubbish"), nil },
			claim: func(context.Context, cache.StoreKey, time.Duration) (cache.Lease, error) {
				return cache.Lease{Version: fmt.Sprint(saves.Add(1))}, nil
			},
		}, 43 * time.Second},
	}
}

// TestBadSharedStores: each Cache fetches for itself after a bounded wait, and nothing hangs.
func TestBadSharedStores(t *testing.T) {
	for _, tc := range badStores() {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, f := storetest.NewMemory(), &fetcher{}
				var asking sync.WaitGroup
				for range 10 {
					faulty := tc.fault
					faulty.Replica = m.Join()
					c := run(t, cache.Options{Fetcher: f, Store: &faulty})
					asking.Go(func() {
						began := time.Now()
						e, err := c.Lookup(t.Context(), cache.Query{Origin: site}, robots.Standard())
						if r := e.Under(robots.Standard()); err != nil || r.Meaning != cache.Rules {
							t.Errorf("%+v, %v", r, err)
						}
						if took := time.Since(began); took > tc.most+time.Second {
							t.Errorf("after %v", took)
						}
					})
				}
				asking.Wait()
				if n := f.calls.Load(); n != 10 {
					t.Errorf("%d fetches", n)
				}
			})
		})
	}
}

// run returns a cache that runs until the test ends.
func run(t *testing.T, o cache.Options) *cache.Cache {
	t.Helper()
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
	return c
}

// TestNoRoundTrips: a lookup that memory can answer does not call the store.
func TestNoRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := storetest.NewMemory(), &fetcher{}
		a, b := run(t, cache.Options{Fetcher: f, Store: m.Join()}), run(t, cache.Options{Fetcher: f, Store: m.Join()})
		look := func(n int) {
			for range n {
				for _, c := range []*cache.Cache{a, b} {
					if _, err := c.Lookup(t.Context(), cache.Query{Origin: site}, robots.Standard()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		look(1)
		calls := m.Calls()
		look(1000)
		if got := m.Calls() - calls; got != 0 || m.Leases() != 0 || f.calls.Load() != 1 {
			t.Errorf("%d calls, %d leases, %d fetches", got, m.Leases(), f.calls.Load())
		}
	})
}

// TestRefreshOncePerFleet: with the default times, all replicas refresh at the same moment.
func TestRefreshOncePerFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := storetest.NewMemory(), &fetcher{}
		var all []*cache.Cache
		for range 20 {
			all = append(all, run(t, cache.Options{Fetcher: f, Store: m.Join()}))
		}
		const days = 10
		for range days * 24 {
			for _, c := range all {
				began := time.Now()
				if _, err := c.Lookup(t.Context(), cache.Query{Origin: site}, robots.Standard()); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(began); waited != 0 && f.calls.Load() > 1 {
					t.Fatalf("waited %v for a refresh", waited)
				}
			}
			<-time.After(time.Hour)
		}
		if n := f.calls.Load(); n < days || n > days+2 {
			t.Errorf("%d fetches in %d days", n, days)
		}
	})
}

// TestRefetchIsNotAnothers: Refetch does not return an older fetch of another replica.
func TestRefetchIsNotAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := storetest.NewMemory(), &fetcher{}
		a, err := cache.New(cache.Options{Fetcher: f, Store: m.Join()}) // without Run it does not learn of changes
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Lookup(t.Context(), cache.Query{Origin: site}, robots.Standard()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		for i, c := range []*cache.Cache{run(t, cache.Options{Fetcher: f, Store: m.Join()}), a} {
			began := time.Now()
			e, err := c.Refetch(t.Context(), cache.Query{Origin: site})
			if fetched := e.Under(robots.Standard()).Fetched(); err != nil || fetched.Before(began) || int(f.calls.Load()) != i+2 {
				t.Errorf("%d: fetched %v before, %v; %d fetches", i, began.Sub(fetched), err, f.calls.Load())
			}
		}
	})
}

// TestStopWhileAnotherFetches: a cache that waits for the fetch of another replica can be
// stopped.
func TestStopWhileAnotherFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := storetest.NewMemory(), &fetcher{}
		if _, err := m.Join().Lease(t.Context(), cache.StoreKey{Origin: site, Agent: "robotsproxy"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		c, err := cache.New(cache.Options{Fetcher: f, Store: m.Join()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var asking sync.WaitGroup
		asking.Go(func() {
			if e, err := c.Lookup(t.Context(), cache.Query{Origin: site}, robots.Standard()); e != nil || !errors.Is(err, cache.ErrStopped) {
				t.Errorf("%v, %v", e, err)
			}
		})
		began := time.Now()
		if err := c.Run(ctx); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("Run: %v after %v", err, time.Since(began))
		}
		asking.Wait()
		if f.calls.Load() != 0 {
			t.Errorf("%d fetches", f.calls.Load())
		}
	})
}
