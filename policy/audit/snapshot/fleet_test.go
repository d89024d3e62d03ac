package snapshot

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/cache/storetest"
	"robotsproxy/robots/fetch"
)

type fetcher struct{ fetches int }

func (f *fetcher) Fetch(context.Context, fetch.Request) *fetch.Result {
	f.fetches++
	body := []byte("User-agent: *\r\nDisallow: /x # \xff\x00\r\n")
	return &fetch.Result{
		URL: "http://a.test/robots.txt", Status: 200, Connected: true, MaxAge: -1, Fetched: time.Now(),
		Body: body, SHA256: fmt.Sprintf("%x", sha256.Sum256(body)),
	}
}

// TestEveryReplicaSaves: what one has fetched is evidence where another decided by it.
func TestEveryReplicaSaves(t *testing.T) {
	f, shared := &fetcher{}, storetest.NewMemory()
	o := robots.Origin{Scheme: "http", Host: "a.test", Port: 80}
	for i := range 3 {
		c, err := cache.New(cache.Options{Fetcher: f, Store: shared.Join()})
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Lookup(t.Context(), cache.Query{Origin: o}, robots.Standard())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		s, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		a := e.Under(robots.Standard()).Result
		if err := s.Save(a, "someone"); err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir, a.SHA256)
		if err != nil || string(got) != "User-agent: *\r\nDisallow: /x # \xff\x00\r\n" || f.fetches != 1 {
			t.Errorf("replica %d: %q, %v after %d fetches", i, got, err, f.fetches)
		}
	}
}
