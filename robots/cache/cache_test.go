package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) {
	testkit.SetParallel()
	goleak.VerifyTestMain(m)
}

var site = robots.Origin{Scheme: "https", Host: "example.com", Port: 443}

var errDown = errors.New("connection reset")

// script is a Fetcher that returns its results in order, then repeats the last one. Each fetch
// takes some time.
type script struct {
	answers []fetch.Result
	takes   time.Duration

	mu     sync.Mutex
	calls  int
	begun  time.Time
	least  time.Duration // minimum time between two calls
	agents []string
}

func (s *script) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	s.mu.Lock()
	a := s.answers[min(s.calls, len(s.answers)-1)]
	if now := time.Now(); s.calls > 0 {
		s.least, s.begun = min(s.least, now.Sub(s.begun)), now
	} else {
		s.least, s.begun = time.Duration(math.MaxInt64), now
	}
	s.calls++
	s.agents = append(s.agents, r.UserAgent)
	s.mu.Unlock()
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return &fetch.Result{MaxAge: -1, Connected: true, Err: ctx.Err()}
		}
	}
	a.Fetched = time.Now()
	return &a
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *script) lastBegun() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

func (s *script) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.least
}

func file(maxAge time.Duration) fetch.Result {
	return fetch.Result{Status: 200, Connected: true, Body: []byte("User-agent: *\nDisallow: /x\n"), SHA256: "ab", MaxAge: maxAge}
}

func status(code int) fetch.Result { return fetch.Result{Status: code, Connected: true, MaxAge: -1} }

func unconnected() fetch.Result { return fetch.Result{MaxAge: -1, Err: errDown} }

func newCache(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	return c
}

// start creates a cache whose Run is running until the returned function is called.
func start(t testing.TB, o Options) (*Cache, func()) {
	t.Helper()
	c := newCache(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return c, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// rule looks up site and returns its Ruling. waited is how long that took.
func rule(t testing.TB, c *Cache) (r Ruling, waited time.Duration) {
	t.Helper()
	began := time.Now()
	e, err := c.Lookup(t.Context(), Query{Origin: site}, robots.Standard())
	if err != nil {
		t.Fatal(err)
	}
	return e.Under(robots.Standard()), time.Since(began)
}

// TestOneFetch: 1,000 callers at once cause one fetch.
func TestOneFetch(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{file(-1)}, takes: time.Second}
				c := newCache(t, Options{Fetcher: f})
				if running {
					var stop func()
					c, stop = start(t, Options{Fetcher: f})
					defer stop()
				}
				var wg sync.WaitGroup
				for range 1000 {
					wg.Go(func() {
						if r, _ := rule(t, c); r.Meaning != Rules || r.File == nil {
							t.Errorf("%+v", r)
						}
					})
				}
				wg.Wait()
				if f.count() != 1 {
					t.Errorf("%d fetches", f.count())
				}
			})
		})
	}
}

func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: 10 * time.Second}
		c := newCache(t, Options{Fetcher: f})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { // the first caller, and the first to leave
			began := time.Now()
			e, err := c.Lookup(ctx, Query{Origin: site}, robots.Standard())
			if e != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%v, %v after %v", e, err, time.Since(began))
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if r, waited := rule(t, c); r.Meaning != Rules || waited != 10*time.Second {
				t.Errorf("the others: %v after %v", r.Meaning, waited)
			}
		})
		wg.Wait()
		if _, err := c.Lookup(ctx, Query{Origin: robots.Origin{Scheme: "http", Host: "other.test", Port: 80}}, robots.Standard()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that has left: %v", err)
		}
		if f.count() != 1 {
			t.Errorf("%d fetches", f.count())
		}
	})
}

// TestAwaited: the file that a request needs is awaited, and one that is refreshed or fetched for an operator is not.
func TestAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: 10 * time.Second}
		c := newCache(t, Options{Fetcher: f})
		awaited := func(want time.Time) {
			t.Helper()
			synctest.Wait()
			if o, since := c.Awaited(); !since.Equal(want) || !want.IsZero() && o != site {
				t.Errorf("%v since %v, want %v", o, since, want)
			}
		}
		awaited(time.Time{})
		var wg sync.WaitGroup
		wg.Go(func() { c.Refetch(t.Context(), Query{Origin: site}) })
		awaited(time.Time{})
		time.Sleep(time.Second)
		first := time.Now()
		wg.Go(func() { rule(t, c) })
		awaited(first)
		time.Sleep(time.Second)
		wg.Go(func() { rule(t, c) })
		wg.Go(func() {
			if _, err := c.Lookup(t.Context(), Query{Origin: robots.Origin{Scheme: "http", Host: "later.test", Port: 80}}, robots.Standard()); err != nil {
				t.Error(err)
			}
		})
		awaited(first)
		wg.Wait()
		awaited(time.Time{})
	})
}

func TestNilAnswer(t *testing.T) {
	c := newCache(t, Options{Fetcher: nobody{}})
	if r, _ := rule(t, c); r.Meaning != NoConnection || !errors.Is(r.Err, errNoAnswer) {
		t.Errorf("%+v", r)
	}
}

type nobody struct{}

func (nobody) Fetch(context.Context, fetch.Request) *fetch.Result { return nil }

// TestUserAgent: the User-Agent of a fetch depends only on the Query's Token and the Options.
func TestUserAgent(t *testing.T) {
	for _, tc := range []struct{ name, option, token, want string }{
		{"the default", "", "", "robotsproxy"},
		{"the option", "OurBot/1.0", "", "OurBot/1.0"},
		{"a product token", "OurBot/1.0", "FooBot", "FooBot"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &script{answers: []fetch.Result{file(0)}}
				c, stop := start(t, Options{Fetcher: f, UserAgent: tc.option})
				defer stop()
				for range 2 { // the second lookup keeps it in use
					if _, err := c.Lookup(t.Context(), Query{Origin: site, Token: tc.token}, robots.Standard()); err != nil {
						t.Fatal(err)
					}
				}
				wait(time.Minute)
				if len(f.agents) != 2 || f.agents[0] != tc.want || f.agents[1] != tc.want {
					t.Errorf("sent %.80q, want %.80q twice", f.agents, tc.want)
				}
			})
		})
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: 10 * time.Second}
		c, stop := start(t, Options{Fetcher: f})
		var wg sync.WaitGroup
		wg.Go(func() {
			if e, err := c.Lookup(t.Context(), Query{Origin: site}, robots.Standard()); e != nil || !errors.Is(err, ErrStopped) {
				t.Errorf("waiting: %v, %v", e, err)
			}
		})
		synctest.Wait()
		if err := c.Run(t.Context()); err == nil {
			t.Error("a second Run is no error")
		}
		stop() // returns when the fetch has ended
		wg.Wait()
		if e, err := c.Lookup(t.Context(), Query{Origin: site}, robots.Standard()); e != nil || !errors.Is(err, ErrStopped) {
			t.Errorf("after: %v, %v", e, err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("Run after: %v", err)
		}
		if f.count() != 1 || len(c.flights) != 0 || c.slots.free != DefaultFetches {
			t.Errorf("%d fetches, %d flights, %d slots", f.count(), len(c.flights), DefaultFetches-c.slots.free)
		}
	})
}

func TestOptions(t *testing.T) {
	f := &script{}
	for _, o := range []Options{
		{}, {Fetcher: f, MaxAge: -1}, {Fetcher: f, MinAge: -1}, {Fetcher: f, Retry: -1}, {Fetcher: f, FetchTimeout: -1},
		{Fetcher: f, MaxBytes: -1}, {Fetcher: f, MaxAge: time.Hour, MinAge: 2 * time.Hour},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) is no error", o)
		}
	}
	c := newCache(t, Options{Fetcher: f})
	if c.gen.Load().timing != usual || c.entries.GetMaximum() != 64<<20 {
		t.Errorf("defaults %+v, %d bytes", c.gen.Load().timing, c.entries.GetMaximum())
	}
	if c := newCache(t, Options{Fetcher: f, MaxAge: time.Second}); c.gen.Load().timing.minAge != time.Second {
		t.Errorf("MinAge %v with a MaxAge of a second", c.gen.Load().timing.minAge)
	}
}

func ExampleCache_Lookup() {
	c, err := New(Options{Fetcher: &script{answers: []fetch.Result{file(-1)}}})
	if err != nil {
		panic(err)
	}
	origin := robots.Origin{Scheme: "https", Host: "example.com", Port: 443}
	entry, err := c.Lookup(context.Background(), Query{Origin: origin}, robots.Standard())
	if err != nil {
		panic(err)
	}
	ruling := entry.Under(robots.Standard())
	fmt.Println(ruling.Meaning, ruling.File.For("FooBot").Match("/x").Allow)
	// Output: rules false
}
