// Package storetest tells whether a store of robots/cache keeps to what
// cache.Store says. It is for tests alone.
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
)

// Run tests a store. open gives one that is empty, and ends it with the test.
func Run(t *testing.T, open func(t *testing.T) cache.Store) {
	for name, test := range map[string]func(*testing.T, cache.Store){
		"nothing is known":          nothing,
		"the last one saved counts": last,
		"origins are apart":         apart,
		"octets are octets":         octets,
		"what is over is nothing":   over,
		"a caller that has left":    left,
		"all at once":               together,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

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
		t.Errorf("Load(%v) = %.40q of %d octets, %v; want %.40q of %d", o, got, len(got), err, entry, len(entry))
	}
}

func nothing(t *testing.T, s cache.Store) { want(t, s, origin("a.test"), nil) }

func last(t *testing.T, s cache.Store) {
	for i := range 100 {
		save(s, origin("a.test"), fmt.Append(nil, i))
		want(t, s, origin("a.test"), fmt.Append(nil, i))
	}
}

func apart(t *testing.T, s cache.Store) {
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

func octets(t *testing.T, s cache.Store) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, entry := range [][]byte{{0}, every, bytes.Repeat(every, 1<<12)} {
		save(s, origin("a.test"), entry)
		want(t, s, origin("a.test"), entry)
	}
}

func over(t *testing.T, s cache.Store) {
	save(s, origin("a.test"), []byte("old"))
	s.Save(origin("a.test"), []byte("over"), time.Now().Add(-time.Hour), "someone")
	want(t, s, origin("a.test"), nil)
}

// left: it may be told what is known all the same, but it is not held up.
func left(t *testing.T, s cache.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = s.Load(ctx, origin("a.test"))
	}()
	select {
	case <-returned:
	case <-time.After(10 * time.Second):
		t.Fatal("Load does not return")
	}
}

func together(t *testing.T, s cache.Store) {
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
