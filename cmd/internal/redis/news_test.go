package redis

import (
	"log/slog"
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// TestSaveBehindAPurgeThatWaits: a replica announces a purge and fetches the file before
// the server has the purge. The server keeps what the replica saves after that.
func TestSaveBehindAPurgeThatWaits(t *testing.T) {
	t.Parallel()
	f, err := patient(Options{URL: mini(t), Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.view.Store(&view{Standing: pace.Standing{Slowdown: 1}}) // so nothing is sent unless the test sends it
	store := f.Robots(nil).(*fileStore)
	o := robots.Origin{Scheme: "http", Host: "a.test", Port: 80}
	store.Announce(o, cache.Purged)
	right, err := store.Lease(t.Context(), o, time.Minute)
	if err != nil || right.Release == nil {
		t.Fatalf("the right to fetch is not given: %v", err)
	}
	if entry, err := store.Load(t.Context(), o); entry != nil || err != nil {
		t.Errorf("%q is loaded, %v", entry, err)
	}
	store.Save(o, []byte("fetched"), time.Now().Add(time.Hour), "")
	right.Release()
	f.robots.sendAll(t.Context())
	if entry, err := store.Load(t.Context(), o); string(entry) != "fetched" || err != nil {
		t.Errorf("%q is loaded, %v; want what was saved", entry, err)
	}
}
