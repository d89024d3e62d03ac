package redis

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/cache"
	cachetest "robotsproxy/robots/cache/storetest"
	"robotsproxy/robots/testkit"
)

// joining returns a function that adds a replica, without stores on a disk, to the fleet
// at url. files returns the replica's store.
func joining(t *testing.T, url string, files func(*Fleet, cache.Store) cache.Store) func(*testing.T) cache.Store {
	settled(t, url)
	return func(t *testing.T) cache.Store {
		r := run(t, url, 100)
		testkit.Eventually(t, "it shares", func() bool { return !r.Standing().StoreAway })
		s := files(r.Fleet, nil)
		return unhurried{s, s.(cache.SharedStore)}
	}
}

// An unhurried store replies later than a waiting Cache accepts, but not after its caller
// has left: a fetch because the machine paused would be one too many for a test.
type unhurried struct {
	cache.Store
	cache.SharedStore
}

func (u unhurried) Load(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	ctx, cancel := withoutDeadline(ctx)
	defer cancel()
	return u.Store.Load(ctx, k)
}

func (u unhurried) Lease(ctx context.Context, k cache.StoreKey, term time.Duration) (cache.Lease, error) {
	ctx, cancel := withoutDeadline(ctx)
	defer cancel()
	return u.SharedStore.Lease(ctx, k, term)
}

// withoutDeadline returns a context that ends with ctx, unless ctx ends by its deadline.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

// asItIs runs a test in real time.
func asItIs(t *testing.T, test func(*testing.T)) {
	testkit.Long(t, "waits for the real clock")
	test(t)
}

// TestRobots: the server, real or not, implements the SharedStore of robots/cache.
func TestRobots(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]struct {
		url      func(*testing.T) string
		replicas int
	}{
		"real":      {func(t *testing.T) string { return redistest.Start(t).URL() }, 20},
		"miniredis": {mini, 5}, // it runs the scripts here
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cachetest.Run(t, func(t *testing.T) cache.Store { return joining(t, server.url(t), (*Fleet).Robots)(t) })
			cachetest.Shared(t, cachetest.Fleet{
				Open: func(t *testing.T) func(*testing.T) cache.Store { return joining(t, server.url(t), (*Fleet).Robots) },
				In:   asItIs, Replicas: server.replicas, Failures: 2,
			})
		})
	}
}

// TestTDMRep: so is the store of tdmrep.json, which is separate.
func TestTDMRep(t *testing.T) {
	t.Parallel()
	cachetest.Shared(t, cachetest.Fleet{
		Open: func(t *testing.T) func(*testing.T) cache.Store { return joining(t, mini(t), (*Fleet).TDMRep) },
		In:   asItIs, Replicas: 3, Failures: 1,
	})
	url := mini(t)
	join := joining(t, url, (*Fleet).TDMRep)
	one, another, robotsTxt := join(t), join(t), joining(t, url, (*Fleet).Robots)(t)
	testkit.Eventually(t, "it is saved", func() bool {
		one.Save(fileOf(1), []byte("tdm"), time.Now().Add(time.Hour), "") // lost while a slow answer of the server makes the replica alone
		got, err := another.Load(t.Context(), fileOf(1))
		return string(got) == "tdm" && err == nil
	})
	if got, err := robotsTxt.Load(t.Context(), fileOf(1)); got != nil || err != nil {
		t.Errorf("as robots.txt: %q, %v", got, err)
	}
}

// mini is a miniredis whose keys expire with real time.
func mini(t *testing.T) (url string) {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return "redis://" + m.Addr()
}
