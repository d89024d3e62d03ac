package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	cachetest "robotsproxy/robots/cache/storetest"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

const text1 = "User-agent: *\nDisallow: /x\n"

// An origin counts its fetches.
type origin struct{ fetches atomic.Int32 }

func (o *origin) Fetch(context.Context, fetch.Request) *fetch.Result {
	o.fetches.Add(1)
	<-time.After(50 * time.Millisecond)
	return &fetch.Result{Status: 200, Connected: true, MaxAge: -1, Body: []byte(text1), Fetched: time.Now()}
}

func host(i int) robots.Origin {
	return robots.Origin{Scheme: "http", Host: fmt.Sprintf("h%d.test", i), Port: 80}
}

// fileOf returns the key of the host's file.
func fileOf(i int) cache.StoreKey { return cache.StoreKey{Origin: host(i), Agent: "robotsproxy"} }

// A reader is a replica with its cache and the contents of its own disk.
type reader struct {
	*replica
	*cache.Cache
	disk cache.Store
}

func readers(t *testing.T, open opener, n int, url string, from *origin) []reader {
	var all []reader
	for range n {
		r := reader{replica: runBy(t, open, url, n), disk: cachetest.NewMemory().Join()}
		c, err := cache.New(cache.Options{Fetcher: from, Store: r.Robots(r.disk)})
		if err != nil {
			t.Fatal(err)
		}
		r.Cache = c
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		t.Cleanup(func() { cancel(); ended.Wait() })
		all = append(all, r)
	}
	for _, r := range all {
		testkit.Eventually(t, "it shares", func() bool { return !r.Standing().StoreAway })
	}
	return all
}

// ask looks up o.
func (r reader) ask(t *testing.T, o robots.Origin) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	e, err := r.Lookup(ctx, cache.Query{Origin: o}, robots.Standard())
	if got := e.Under(robots.Standard()); err != nil || got.Meaning != cache.Rules || string(got.Result.Body) != text1 {
		t.Errorf("%v: %+v, %v", o, got, err)
	}
}

// TestRobotsInOutages: during an outage decisions continue with what each replica has,
// each replica fetches new origins, and purges reach all replicas after the outage.
func TestRobotsInOutages(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]outage{
		"killed":  {patient, (*redistest.Server).Kill, (*redistest.Server).Restart},
		"stopped": {forStill, (*redistest.Server).Stop, (*redistest.Server).Continue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.robots(t)
		})
	}
}

// An outage is how a server becomes unavailable and returns.
type outage struct {
	open       opener
	begin, end func(*redistest.Server)
}

func (o outage) robots(t *testing.T) {
	server, from := redistest.Start(t), &origin{}
	all := readers(t, o.open, 3, server.URL(), from)
	for _, r := range all {
		r.ask(t, host(1))
	}
	if n := from.fetches.Load(); n != 1 {
		t.Fatalf("%d fetches", n)
	}
	o.begin(server)
	var asking sync.WaitGroup
	for _, r := range all {
		asking.Go(func() {
			before := r.Cache.Stats().Misses
			r.ask(t, host(1))
			if n := r.Cache.Stats().Misses - before; n != 0 {
				t.Error("the store is asked for what is in memory")
			}
			r.ask(t, host(2))
		})
	}
	asking.Wait()
	if n := from.fetches.Load(); n != 4 {
		t.Errorf("%d fetches, want one for each that was alone", n)
	}
	for _, r := range all {
		testkit.Eventually(t, "it is alone", func() bool { return r.Standing().StoreAway })
	}
	all[0].Purge(host(1))
	if all[0].Peek(host(1)) != nil || all[1].Peek(host(1)) == nil {
		t.Error("one's purge is of its own memory at once, and not of others' yet")
	}
	o.end(server)
	for _, r := range all[1:] {
		testkit.Eventually(t, "the purge is heard", func() bool { return r.Peek(host(1)) == nil })
	}
	for _, r := range all {
		testkit.Eventually(t, "it shares", func() bool { return !r.Standing().StoreAway })
	}
	before := from.fetches.Load()
	for _, r := range all {
		r.ask(t, host(1))
		r.ask(t, host(3))
	}
	if n := from.fetches.Load() - before; n != 2 {
		t.Errorf("%d fetches of two origins by all", n)
	}
}

// TestDecisionsMakeNoRoundTrip counts the calls at the server.
func TestDecisionsMakeNoRoundTrip(t *testing.T) {
	t.Parallel()
	server, from := redistest.Start(t), &origin{}
	all := readers(t, patient, 2, server.URL(), from)
	for _, r := range all {
		r.ask(t, host(1))
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	calls := func() map[string]any {
		stats, err := client.InfoMap(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		of := make(map[string]any)
		for _, name := range []string{"cmdstat_get", "cmdstat_getrange", "cmdstat_set"} {
			of[name] = strings.Split(stats["Commandstats"][name], ",")[0]
		}
		return of
	}
	get := calls()["cmdstat_getrange"]
	for range 1000 {
		for _, r := range all {
			r.ask(t, host(1))
		}
	}
	if again := calls()["cmdstat_getrange"]; again != get || from.fetches.Load() != 1 {
		t.Errorf("GETRANGE: %v, then %v; %d fetches", get, again, from.fetches.Load())
	}
	loads := all[0].RobotsStats().Loads + all[1].RobotsStats().Loads
	if loads != 1 {
		t.Errorf("%d loads", loads)
	}
}

// TestNewsForbidden: it is counted if a replica cannot read the purges.
func TestNewsForbidden(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := client(t, server.URL()).Do(t.Context(), "ACL", "SETUSER", "default", "-xread").Err(); err != nil {
		t.Fatal(err)
	}
	r := readers(t, patient, 1, server.URL(), &origin{})[0]
	testkit.Eventually(t, "it is counted", func() bool { return r.RobotsStats().Failures > 1 })
	if r.Fleet.Stats().Outages != 0 {
		t.Errorf("it paces alone for it: %s", r.log)
	}
}
