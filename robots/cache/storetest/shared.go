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
)

// A Fleet is how a test comes by the stores of several replicas.
type Fleet struct {
	// Open begins a fleet that knows nothing, and gives what has another replica join
	// it, whose store is a cache.Sharer and ends with the test.
	Open func(t *testing.T) (join func(t *testing.T) cache.Store)

	// In runs a test: synctest.Test, or what calls it as it is.
	In func(t *testing.T, test func(t *testing.T))

	// Replicas are how many caches ask at once; zero means 20.
	Replicas int

	// Failures are how often an origin fails before it answers again; zero means 3. The
	// waits between them double.
	Failures int
}

// patience is for what happens by itself, and soon.
const patience = 10 * time.Second

// short is a time between two steps of a test.
const short = 100 * time.Millisecond

// A replica is one's store.
type replica struct {
	cache.Store
	cache.SharedStore
}

// Shared tests that the stores of a fleet keep to what cache.Sharer says, and then what
// Caches make of them.
func Shared(t *testing.T, f Fleet) {
	for name, test := range map[string]func(*testing.T, func() replica){
		"what one saves, all load":               shares,
		"one at a time":                          oneAtATime,
		"one at a time, of many":                 oneOfMany,
		"the right ends by itself":               ends,
		"what was saved is there by the release": behind,
		"each save makes another mark":           marks,
		"origins have rights of their own":       apartRights,
		"a purge reaches all":                    purged,
		"a purge is not undone":                  undone,
		"what was replaced can be loaded":        replaced,
		"Watch ends":                             watchEnds,
		"a caller that has left, claims":         leftClaim,
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

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(time.Millisecond)
	}
}

func loads(t *testing.T, r replica, o robots.Origin, entry []byte) func() bool {
	return func() bool {
		got, err := r.Load(t.Context(), o)
		if entry == nil && errors.Is(err, cache.ErrPurged) {
			return true
		}
		return err == nil && bytes.Equal(got, entry) && (got == nil) == (entry == nil)
	}
}

func claim(t *testing.T, r replica, o robots.Origin, term time.Duration) cache.Lease {
	t.Helper()
	c, err := r.Lease(t.Context(), o, term)
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return c
}

// claimSoon claims until it is given.
func claimSoon(t *testing.T, r replica, o robots.Origin, term time.Duration) (c cache.Lease) {
	t.Helper()
	eventually(t, "the right is given", func() bool {
		c = claim(t, r, o, term)
		return c.Release != nil
	})
	return c
}

func shares(t *testing.T, join func() replica) {
	a, b := join(), join()
	save(a, origin("a.test"), []byte("one"))
	eventually(t, "what was saved is loaded", loads(t, b, origin("a.test"), []byte("one")))
	save(b, origin("a.test"), []byte("two"))
	eventually(t, "what was saved last is loaded", loads(t, a, origin("a.test"), []byte("two")))
	want(t, a, origin("b.test"), nil)
}

func oneAtATime(t *testing.T, join func() replica) {
	a, b := join(), join()
	first := claim(t, a, origin("a.test"), time.Minute)
	if first.Release == nil {
		t.Fatal("nobody had the right, and it is not given")
	}
	for _, r := range []replica{a, b} {
		if claim(t, r, origin("a.test"), time.Minute).Release != nil {
			t.Fatal("a right is given twice")
		}
	}
	first.Release()
	claimSoon(t, b, origin("a.test"), time.Minute)
	first.Release() // of what is another's by now
	<-time.After(short)
	if claim(t, a, origin("a.test"), time.Minute).Release != nil {
		t.Error("a right is given back by who no longer has it")
	}
}

func oneOfMany(t *testing.T, join func() replica) {
	var all sync.WaitGroup
	var holders, given atomic.Int32
	for range 8 {
		r := join()
		all.Go(func() {
			for range 5 {
				c := claimSoon(t, r, origin("a.test"), time.Minute)
				if holders.Add(1) != 1 {
					t.Error("two have the right")
				}
				given.Add(1)
				<-time.After(time.Millisecond)
				holders.Add(-1)
				c.Release()
			}
		})
	}
	all.Wait()
	if given.Load() != 40 {
		t.Errorf("given %d times", given.Load())
	}
}

func ends(t *testing.T, join func() replica) {
	a, b := join(), join()
	const term = 3 * short
	asked := time.Now()
	first := claim(t, a, origin("a.test"), term)
	claimSoon(t, b, origin("a.test"), time.Minute)
	if after := time.Since(asked); after < term {
		t.Errorf("it ended after %v", after)
	}
	first.Release()
	<-time.After(short)
	if claim(t, a, origin("a.test"), time.Minute).Release != nil {
		t.Error("a right is given back by who no longer has it")
	}
}

func behind(t *testing.T, join func() replica) {
	a, b := join(), join()
	for i := range 20 {
		entry := bytes.Repeat([]byte{byte('a' + i)}, 1<<15)
		c := claimSoon(t, a, origin("a.test"), time.Minute)
		save(a, origin("a.test"), entry)
		c.Release()
		c = claimSoon(t, b, origin("a.test"), time.Minute)
		want(t, b, origin("a.test"), entry)
		c.Release()
	}
}

func marks(t *testing.T, join func() replica) {
	a, b := join(), join()
	claim(t, a, origin("a.test"), time.Minute)
	mark := claim(t, b, origin("a.test"), time.Minute).Version
	for _, entry := range []string{"one", "one", "two"} {
		<-time.After(short)
		if again := claim(t, b, origin("a.test"), time.Minute).Version; again != mark {
			t.Errorf("nothing was saved, and the mark was %q and is %q", mark, again)
		}
		save(a, origin("a.test"), []byte(entry))
		before := mark
		eventually(t, "the mark is another", func() bool {
			mark = claim(t, b, origin("a.test"), time.Minute).Version
			return mark != before
		})
		want(t, b, origin("a.test"), []byte(entry))
	}
}

func apartRights(t *testing.T, join func() replica) {
	a, b := join(), join()
	claim(t, a, origin("a.test"), time.Minute)
	for i, o := range []robots.Origin{
		origin("b.a.test"), origin("a.tes"), {Scheme: "http", Host: "a.test", Port: 443}, {Scheme: "https", Host: "a.test", Port: 80},
	} {
		if claim(t, b, o, time.Minute).Release == nil {
			t.Errorf("%d: %v is held up by another", i, o)
		}
	}
}

// An ear has what a replica heard.
type changes chan string

func listen(t *testing.T, r replica, then func(robots.Origin, cache.Change)) changes {
	e := make(changes, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		r.Watch(ctx, func(o robots.Origin, what cache.Change) {
			then(o, what)
			e <- fmt.Sprint(o, " ", what)
		})
	})
	t.Cleanup(func() { cancel(); ended.Wait() })
	return e
}

func (e changes) expect(t *testing.T, o robots.Origin, what cache.Change) {
	t.Helper()
	select {
	case got := <-e:
		if want := fmt.Sprint(o, " ", what); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%v %v is not heard", o, what)
	}
}

func purged(t *testing.T, join func() replica) {
	a, b, c := join(), join(), join()
	o := origin("a.test")
	save(a, o, []byte("one"))
	save(a, origin("b.test"), []byte("other"))
	eventually(t, "it is shared", loads(t, b, o, []byte("one")))
	own := listen(t, a, func(robots.Origin, cache.Change) {})
	gone := func(r replica) func(robots.Origin, cache.Change) {
		return func(o robots.Origin, _ cache.Change) { want(t, r, o, nil) }
	}
	ears := []changes{listen(t, b, gone(b)), listen(t, c, gone(c))}
	a.Announce(o, cache.Purged)
	want(t, a, o, nil)
	for _, e := range ears {
		e.expect(t, o, cache.Purged)
	}
	want(t, join(), o, nil)
	eventually(t, "others stay", loads(t, b, origin("b.test"), []byte("other")))
	claimSoon(t, b, o, time.Minute)
	want(t, b, o, nil)
	save(b, o, []byte("two"))
	eventually(t, "what is saved then is kept", loads(t, a, o, []byte("two")))
	b.Announce(o, cache.Purged)
	own.expect(t, o, cache.Purged) // the first is that of the other: one's own is not heard
	ears[1].expect(t, o, cache.Purged)
}

// undone: what rests on what was purged is not saved; what was fetched since is.
func undone(t *testing.T, join func() replica) {
	a, b, c := join(), join(), join()
	o := origin("a.test")
	save(a, o, []byte("one"))
	eventually(t, "it is shared", loads(t, b, o, []byte("one")))
	held := claim(t, a, o, time.Minute)
	b.Announce(o, cache.Purged)
	eventually(t, "it is purged", loads(t, c, o, nil))
	save(a, o, []byte("two")) // it does not know
	held.Release()
	right := claimSoon(t, c, o, time.Minute)
	want(t, c, o, nil)
	right.Release()

	e := listen(t, a, func(robots.Origin, cache.Change) {})
	e.expect(t, o, cache.Purged)
	held = claimSoon(t, a, o, time.Minute)
	b.Announce(o, cache.Purged)
	e.expect(t, o, cache.Purged)
	<-time.After(short) // Watch goes on
	save(a, o, []byte("three"))
	held.Release()
	eventually(t, "what was fetched since is saved", loads(t, c, o, []byte("three")))
}

func replaced(t *testing.T, join func() replica) {
	a, b := join(), join()
	var entry []byte
	e := listen(t, b, func(o robots.Origin, _ cache.Change) { want(t, b, o, entry) })
	for i := range 20 {
		entry = fmt.Append(nil, i)
		save(a, origin("a.test"), entry)
		a.Announce(origin("a.test"), cache.Replaced)
		e.expect(t, origin("a.test"), cache.Replaced)
	}
}

func watchEnds(t *testing.T, join func() replica) {
	r := join()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Watch(ctx, func(robots.Origin, cache.Change) {})
	}()
	<-time.After(short)
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("Watch does not return")
	}
}

func leftClaim(t *testing.T, join func() replica) {
	r := join()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = r.Lease(ctx, origin("a.test"), time.Minute)
	}()
	select {
	case <-returned:
	case <-time.After(patience):
		t.Fatal("Claim does not return")
	}
}
