package redis

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"robotsproxy/policy/pace"
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
	k := fileOf(1)
	store.Announce(k, cache.Purged)
	right, err := store.Lease(t.Context(), k, time.Minute)
	if err != nil || right.Release == nil {
		t.Fatalf("the right to fetch is not given: %v", err)
	}
	if entry, err := store.Load(t.Context(), k); entry != nil || err != nil {
		t.Errorf("%q is loaded, %v", entry, err)
	}
	store.Save(k, []byte("fetched"), time.Now().Add(time.Hour), "")
	right.Release()
	f.robots.sendAll(t.Context())
	if entry, err := store.Load(t.Context(), k); string(entry) != "fetched" || err != nil {
		t.Errorf("%q is loaded, %v; want what was saved", entry, err)
	}
}

// A slowStore is a local store whose Load waits.
type slowStore struct {
	cache.Store
	saved           map[cache.StoreKey][]byte
	loading, resume chan struct{}
}

func (s *slowStore) Load(_ context.Context, k cache.StoreKey) ([]byte, error) {
	s.loading <- struct{}{}
	<-s.resume
	return s.saved[k], nil
}

func (s *slowStore) Save(k cache.StoreKey, entry []byte, _ time.Time, _ string) { s.saved[k] = entry }

// TestPurgeDuringALoad checks that the local store does not keep a file that was loaded before its purge, and stored after
// it.
func TestPurgeDuringALoad(t *testing.T) {
	t.Parallel()
	f, err := patient(Options{URL: mini(t), Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.view.Store(&view{Standing: pace.Standing{Slowdown: 1}}) // so nothing is sent unless the test sends it
	k := fileOf(1)
	f.Robots(nil).Save(k, []byte("purged"), time.Now().Add(time.Hour), "")
	f.robots.sendAll(t.Context())
	for _, tt := range []struct {
		by    string
		purge func(*fileStore)
	}{
		{"another replica", func(b *fileStore) {
			news := map[string]any{"what": "purged", "scheme": k.Scheme, "at": k.Addr(), "agent": k.Agent, "from": "another", "mark": "x"}
			b.handleNews(news, func(cache.StoreKey, cache.Change) {})
		}},
		{"this replica", func(b *fileStore) { b.Announce(k, cache.Purged) }},
	} {
		local := &slowStore{saved: map[cache.StoreKey][]byte{}, loading: make(chan struct{}), resume: make(chan struct{})}
		store := f.Robots(local).(*fileStore)
		loaded := make(chan error)
		go func() {
			_, err := store.Load(t.Context(), k)
			loaded <- err
		}()
		<-local.loading
		tt.purge(store)
		close(local.resume)
		if err := <-loaded; err != nil {
			t.Fatal(err)
		}
		if got := local.saved[k]; string(got) == "purged" {
			t.Errorf("purged by %s: the local store has %q", tt.by, got)
		}
	}
}

// A mapStore is a local store in memory.
type mapStore struct {
	cache.Store
	saved map[cache.StoreKey][]byte
}

func (s mapStore) Load(_ context.Context, k cache.StoreKey) ([]byte, error) { return s.saved[k], nil }

func (s mapStore) Save(k cache.StoreKey, entry []byte, _ time.Time, _ string) { s.saved[k] = entry }

// TestPurgeThatALoadFinds checks that the local store does not keep a file after a Load has found that another replica
// has purged it, so that it is not used once the server is unavailable.
func TestPurgeThatALoadFinds(t *testing.T) {
	t.Parallel()
	f, err := patient(Options{URL: mini(t), Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.view.Store(&view{Standing: pace.Standing{Slowdown: 1}}) // so nothing is sent unless the test sends it
	k := fileOf(1)
	f.Robots(nil).(*fileStore).Announce(k, cache.Purged)
	f.robots.sendAll(t.Context())
	store := f.Robots(mapStore{saved: map[cache.StoreKey][]byte{k: []byte("purged")}}).(*fileStore)
	if entry, err := store.Load(t.Context(), k); entry != nil || !errors.Is(err, cache.ErrPurged) {
		t.Fatalf("%q is loaded, %v; want %v", entry, err, cache.ErrPurged)
	}
	f.view.Store(f.aloneView(&view{}, Starting, time.Now()))
	if entry, err := store.Load(t.Context(), k); string(entry) == "purged" || err != nil {
		t.Errorf("without the server %q is loaded, %v", entry, err)
	}
}
