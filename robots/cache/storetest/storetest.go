// Package storetest tests that a store of robots/cache follows the contract of cache.Store or
// cache.SharedStore. Only tests import it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// Run tests a store. open returns an empty one, and closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T) cache.Store) {
	for name, test := range map[string]func(*testing.T, cache.Store){
		"empty":                               empty,
		"Load returns the last entry":         lastEntry,
		"origins are independent":             independent,
		"any bytes":                           anyBytes,
		"expired entries":                     expired,
		"Load returns after its context ends": loadAfterContext,
		"concurrent":                          concurrent,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// A Fleet says how a test gets the stores of several replicas.
type Fleet struct {
	// Open makes an empty fleet. It returns a function that adds a replica and returns its
	// store, a cache.SharedStore that ends with the test.
	Open func(t *testing.T) (join func(t *testing.T) cache.Store)

	// In runs a test: it is synctest.Test, or calls test directly.
	In func(t *testing.T, test func(t *testing.T))

	// Replicas is how many caches look up at once; zero means 20.
	Replicas int

	// Failures is how often an origin fails before it responds again; zero means 3. The time
	// between them doubles.
	Failures int
}

// short is a time between two steps of a test.
const short = 100 * time.Millisecond

func origin(host string) robots.Origin {
	return robots.Origin{Scheme: "https", Host: host, Port: 443}
}

func save(s cache.Store, o robots.Origin, entry []byte) {
	s.Save(o, bytes.Clone(entry), time.Now().Add(time.Hour), "someone")
}

func want(t *testing.T, s cache.Store, o robots.Origin, entry []byte) {
	t.Helper()
	got, err := s.Load(t.Context(), o)
	if entry == nil && errors.Is(err, cache.ErrPurged) {
		return
	}
	if err != nil || !bytes.Equal(got, entry) || (got == nil) != (entry == nil) {
		t.Errorf("Load(%v) = %.40q of %d bytes, %v; want %.40q of %d", o, got, len(got), err, entry, len(entry))
	}
}

func empty(t *testing.T, s cache.Store) { want(t, s, origin("a.test"), nil) }

func lastEntry(t *testing.T, s cache.Store) {
	for i := range 100 {
		save(s, origin("a.test"), fmt.Append(nil, i))
		want(t, s, origin("a.test"), fmt.Append(nil, i))
	}
}

func independent(t *testing.T, s cache.Store) {
	all := []robots.Origin{
		origin("a.test"), origin("b.a.test"), origin("::1"), origin("a.tes"),
		{Scheme: "http", Host: "a.test", Port: 80}, {Scheme: "http", Host: "a.test", Port: 443}, {Scheme: "https", Host: "a.test", Port: 80},
		{Scheme: "ftp", Host: "a.test", Port: 21},
	}
	for i, o := range all {
		want(t, s, o, nil)
		save(s, o, fmt.Append(nil, i))
	}
	for i, o := range all {
		want(t, s, o, fmt.Append(nil, i))
	}
}

func anyBytes(t *testing.T, s cache.Store) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, entry := range [][]byte{{0}, every, bytes.Repeat(every, 1<<12)} {
		save(s, origin("a.test"), entry)
		want(t, s, origin("a.test"), entry)
	}
}

func expired(t *testing.T, s cache.Store) {
	save(s, origin("a.test"), []byte("old"))
	s.Save(origin("a.test"), []byte("expired"), time.Now().Add(-time.Hour), "someone")
	want(t, s, origin("a.test"), nil)
}

// loadAfterContext tests that Load returns after its context has ended, with an entry or
// an error.
func loadAfterContext(t *testing.T, s cache.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = s.Load(ctx, origin("a.test"))
	}()
	testkit.Within(t, "Load returns", returned)
}

func concurrent(t *testing.T, s cache.Store) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			o := origin(fmt.Sprintf("h%d.test", i))
			for n := range 50 {
				save(s, o, fmt.Append(nil, i, n))
				want(t, s, o, fmt.Append(nil, i, n))
			}
		})
	}
	all.Wait()
}
