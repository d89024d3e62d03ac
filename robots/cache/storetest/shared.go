package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// A replica is the store of one replica.
type replica struct {
	cache.Store
	cache.SharedStore
}

func loads(t *testing.T, r replica, k cache.StoreKey, entry []byte) func() bool {
	return func() bool {
		got, err := r.Load(t.Context(), k)
		if entry == nil && errors.Is(err, cache.ErrPurged) {
			return true
		}
		return err == nil && bytes.Equal(got, entry) && (got == nil) == (entry == nil)
	}
}

func getLease(t *testing.T, r replica, k cache.StoreKey, term time.Duration) cache.Lease {
	t.Helper()
	c, err := r.Lease(t.Context(), k, term)
	if err != nil {
		t.Fatalf("Lease: %v", err)
	}
	return c
}

// leaseSoon asks for a lease until it gets one.
func leaseSoon(t *testing.T, r replica, k cache.StoreKey, term time.Duration) (c cache.Lease) {
	t.Helper()
	testkit.Eventually(t, "the lease is granted", func() bool {
		c = getLease(t, r, k, term)
		return c.Release != nil
	})
	return c
}

func sharedEntries(t *testing.T, join func() replica) {
	a, b := join(), join()
	save(a, key("a.test"), []byte("one"))
	testkit.Eventually(t, "what was saved is loaded", loads(t, b, key("a.test"), []byte("one")))
	save(b, key("a.test"), []byte("two"))
	testkit.Eventually(t, "what was saved last is loaded", loads(t, a, key("a.test"), []byte("two")))
	want(t, a, key("b.test"), nil)
}

func oneLease(t *testing.T, join func() replica) {
	a, b := join(), join()
	first := getLease(t, a, key("a.test"), time.Minute)
	if first.Release == nil {
		t.Fatal("a free lease is not granted")
	}
	for _, r := range []replica{a, b} {
		if getLease(t, r, key("a.test"), time.Minute).Release != nil {
			t.Fatal("a lease is granted twice")
		}
	}
	first.Release()
	leaseSoon(t, b, key("a.test"), time.Minute)
	// Another replica has the lease by now.
	first.Release()
	<-time.After(short)
	if getLease(t, a, key("a.test"), time.Minute).Release != nil {
		t.Error("a release ended the lease of another replica")
	}
}

func oneLeaseOfMany(t *testing.T, join func() replica) {
	var all sync.WaitGroup
	var holders, granted atomic.Int32
	for range 8 {
		r := join()
		all.Go(func() {
			for range 5 {
				c := leaseSoon(t, r, key("a.test"), time.Minute)
				if holders.Add(1) != 1 {
					t.Error("two replicas have the lease")
				}
				granted.Add(1)
				<-time.After(time.Millisecond)
				holders.Add(-1)
				c.Release()
			}
		})
	}
	all.Wait()
	if granted.Load() != 40 {
		t.Errorf("granted %d times", granted.Load())
	}
}

func leaseExpires(t *testing.T, join func() replica) {
	a, b := join(), join()
	const term = 3 * short
	asked := time.Now()
	first := getLease(t, a, key("a.test"), term)
	leaseSoon(t, b, key("a.test"), time.Minute)
	if after := time.Since(asked); after < term {
		t.Errorf("the lease ended after %v", after)
	}
	first.Release()
	<-time.After(short)
	if getLease(t, a, key("a.test"), time.Minute).Release != nil {
		t.Error("a release ended the lease of another replica")
	}
}

func savedBeforeRelease(t *testing.T, join func() replica) {
	a, b := join(), join()
	for i := range 20 {
		entry := bytes.Repeat([]byte{byte('a' + i)}, 1<<15)
		c := leaseSoon(t, a, key("a.test"), time.Minute)
		save(a, key("a.test"), entry)
		c.Release()
		c = leaseSoon(t, b, key("a.test"), time.Minute)
		want(t, b, key("a.test"), entry)
		c.Release()
	}
}

func versions(t *testing.T, join func() replica) {
	a, b := join(), join()
	getLease(t, a, key("a.test"), time.Minute)
	version := getLease(t, b, key("a.test"), time.Minute).Version
	for _, entry := range []string{"one", "one", "two"} {
		<-time.After(short)
		if again := getLease(t, b, key("a.test"), time.Minute).Version; again != version {
			t.Errorf("the version changed without a save, from %q to %q", version, again)
		}
		save(a, key("a.test"), []byte(entry))
		before := version
		testkit.Eventually(t, "the version changes", func() bool {
			version = getLease(t, b, key("a.test"), time.Minute).Version
			return version != before
		})
		want(t, b, key("a.test"), []byte(entry))
	}
}

func independentLeases(t *testing.T, join func() replica) {
	a, b := join(), join()
	getLease(t, a, key("a.test"), time.Minute)
	for i, k := range []cache.StoreKey{
		key("b.a.test"), key("a.tes"), {Origin: origin("a.test"), Agent: "botb"},
		{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 443}, Agent: "robotsproxy"},
		{Origin: robots.Origin{Scheme: "https", Host: "a.test", Port: 80}, Agent: "robotsproxy"},
	} {
		if getLease(t, b, k, time.Minute).Release == nil {
			t.Errorf("%d: no lease of %v beside that of another origin", i, k)
		}
	}
}

// changes are the changes that were reported to a replica.
type changes chan string

func listen(t *testing.T, r replica, then func(cache.StoreKey, cache.Change)) changes {
	e := make(changes, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		r.Watch(ctx, func(k cache.StoreKey, what cache.Change) {
			then(k, what)
			e <- fmt.Sprint(k, " ", what)
		})
	})
	t.Cleanup(func() { cancel(); ended.Wait() })
	return e
}

func (c changes) expect(t *testing.T, k cache.StoreKey, what cache.Change) {
	t.Helper()
	want := fmt.Sprint(k, " ", what)
	if got := testkit.Within(t, want, c); got != want {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func purged(t *testing.T, join func() replica) {
	a, b, c := join(), join(), join()
	k := key("a.test")
	save(a, k, []byte("one"))
	save(a, key("b.test"), []byte("other"))
	testkit.Eventually(t, "the entry is shared", loads(t, b, k, []byte("one")))
	own := listen(t, a, func(cache.StoreKey, cache.Change) {})
	gone := func(r replica) func(cache.StoreKey, cache.Change) {
		return func(k cache.StoreKey, _ cache.Change) { want(t, r, k, nil) }
	}
	watching := []changes{listen(t, b, gone(b)), listen(t, c, gone(c))}
	a.Announce(k, cache.Purged)
	want(t, a, k, nil)
	for _, e := range watching {
		e.expect(t, k, cache.Purged)
	}
	want(t, join(), k, nil)
	testkit.Eventually(t, "other origins stay", loads(t, b, key("b.test"), []byte("other")))
	leaseSoon(t, b, k, time.Minute)
	want(t, b, k, nil)
	save(b, k, []byte("two"))
	testkit.Eventually(t, "entries saved later are kept", loads(t, a, k, []byte("two")))
	b.Announce(k, cache.Purged)
	// A replica does not hear its own changes.
	own.expect(t, k, cache.Purged)
	watching[1].expect(t, k, cache.Purged)
}

// purgeIsFinal tests that a replica that does not know of a purge saves nothing, and that later fetches
// are saved.
func purgeIsFinal(t *testing.T, join func() replica) {
	a, b, c := join(), join(), join()
	k := key("a.test")
	save(a, k, []byte("one"))
	testkit.Eventually(t, "the entry is shared", loads(t, b, k, []byte("one")))
	held := getLease(t, a, k, time.Minute)
	b.Announce(k, cache.Purged)
	testkit.Eventually(t, "the entry is purged", loads(t, c, k, nil))
	// The replica a does not know of the purge.
	save(a, k, []byte("two"))
	held.Release()
	second := leaseSoon(t, c, k, time.Minute)
	want(t, c, k, nil)
	second.Release()

	e := listen(t, a, func(cache.StoreKey, cache.Change) {})
	e.expect(t, k, cache.Purged)
	held = leaseSoon(t, a, k, time.Minute)
	b.Announce(k, cache.Purged)
	e.expect(t, k, cache.Purged)
	// After this time, Watch has returned from the callback.
	<-time.After(short)
	save(a, k, []byte("three"))
	held.Release()
	testkit.Eventually(t, "what was fetched since the purge is saved", loads(t, c, k, []byte("three")))
}

func replaced(t *testing.T, join func() replica) {
	a, b := join(), join()
	var entry []byte
	e := listen(t, b, func(k cache.StoreKey, _ cache.Change) { want(t, b, k, entry) })
	for i := range 20 {
		entry = fmt.Append(nil, i)
		save(a, key("a.test"), entry)
		a.Announce(key("a.test"), cache.Replaced)
		e.expect(t, key("a.test"), cache.Replaced)
	}
}

func watchEnds(t *testing.T, join func() replica) {
	r := join()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Watch(ctx, func(cache.StoreKey, cache.Change) {})
	}()
	<-time.After(short)
	cancel()
	testkit.Within(t, "Watch returns", ended)
}

func leaseAfterContext(t *testing.T, join func() replica) {
	r := join()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = r.Lease(ctx, key("a.test"), time.Minute)
	}()
	testkit.Within(t, "Lease returns", returned)
}
