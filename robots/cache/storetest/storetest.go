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
		"origins and agents are independent":  independent,
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

// key returns the key of the host's file as a Cache without a UserAgent fetches it.
func key(host string) cache.StoreKey {
	return cache.StoreKey{Origin: origin(host), Agent: "robotsproxy"}
}

func save(s cache.Store, k cache.StoreKey, entry []byte) {
	s.Save(k, bytes.Clone(entry), time.Now().Add(time.Hour), "someone")
}

func want(t *testing.T, s cache.Store, k cache.StoreKey, entry []byte) {
	t.Helper()
	got, err := s.Load(t.Context(), k)
	if entry == nil && errors.Is(err, cache.ErrPurged) {
		return
	}
	if err != nil || !bytes.Equal(got, entry) || (got == nil) != (entry == nil) {
		t.Errorf("Load(%v) = %.40q of %d bytes, %v; want %.40q of %d", k, got, len(got), err, entry, len(entry))
	}
}

func empty(t *testing.T, s cache.Store) { want(t, s, key("a.test"), nil) }

func lastEntry(t *testing.T, s cache.Store) {
	for i := range 100 {
		save(s, key("a.test"), fmt.Append(nil, i))
		want(t, s, key("a.test"), fmt.Append(nil, i))
	}
}

func independent(t *testing.T, s cache.Store) {
	all := []cache.StoreKey{
		key("a.test"), key("b.a.test"), key("::1"), key("a.tes"),
		{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 80}},
		{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 443}},
		{Origin: robots.Origin{Scheme: "https", Host: "a.test", Port: 80}},
		{Origin: robots.Origin{Scheme: "ftp", Host: "a.test", Port: 21}},
		{Origin: origin("a.test"), Agent: "botb"}, {Origin: origin("a.test"), Agent: "botb+botc"}, {Origin: origin("a.test")},
	}
	for i, k := range all {
		want(t, s, k, nil)
		save(s, k, fmt.Append(nil, i))
	}
	for i, k := range all {
		want(t, s, k, fmt.Append(nil, i))
	}
}

func anyBytes(t *testing.T, s cache.Store) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, entry := range [][]byte{{0}, every, bytes.Repeat(every, 1<<12)} {
		save(s, key("a.test"), entry)
		want(t, s, key("a.test"), entry)
	}
}

func expired(t *testing.T, s cache.Store) {
	save(s, key("a.test"), []byte("old"))
	s.Save(key("a.test"), []byte("expired"), time.Now().Add(-time.Hour), "someone")
	want(t, s, key("a.test"), nil)
}

// loadAfterContext tests that Load returns after its context has ended, with an entry or
// an error.
func loadAfterContext(t *testing.T, s cache.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = s.Load(ctx, key("a.test"))
	}()
	testkit.Within(t, "Load returns", returned)
}

func concurrent(t *testing.T, s cache.Store) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			k := key(fmt.Sprintf("h%d.test", i))
			for n := range 50 {
				save(s, k, fmt.Append(nil, i, n))
				want(t, s, k, fmt.Append(nil, i, n))
			}
		})
	}
	all.Wait()
}
