package cache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// acquireMany asks p for n slots for client at once, and counts how many it gets.
func acquireMany(t *testing.T, p *fetchSlots, client string, n int, got map[string]int) (release chan func()) {
	t.Helper()
	release = make(chan func(), n)
	for range n {
		go func() {
			back, err := p.acquire(t.Context(), t.Context(), client)
			if err == nil {
				release <- back
			}
		}()
	}
	synctest.Wait()
	got[client] = len(release)
	return release
}

// TestFetchSlots: a client has no more slots than are free, whatever others have.
func TestFetchSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFetchSlots(512)
		got := map[string]int{}
		for _, client := range []string{"a", "b", "c", "d"} {
			acquireMany(t, p, client, 600, got)
		}
		want := map[string]int{"a": 256, "b": 128, "c": 64, "d": 32}
		for client, n := range want {
			if got[client] != n {
				t.Errorf("%s has %d slots, want %d", client, got[client], n)
			}
		}
		if p.free != 32 {
			t.Errorf("%d slots are free", p.free)
		}
	})
}

// TestFetchSlotsInTurn: waiting clients get released slots in turn, until all have about the
// same number, and one slot stays free for a new client.
func TestFetchSlotsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFetchSlots(12)
		got := map[string]int{}
		a := acquireMany(t, p, "a", 100, got)
		b := acquireMany(t, p, "b", 100, got)
		if got["a"] != 6 || got["b"] != 3 {
			t.Fatalf("at first a has %d slots and b %d", got["a"], got["b"])
		}
		for range 4 {
			(<-a)()
			synctest.Wait()
		}
		if len(a) != 4 || len(b) != 5 || p.free != 3 {
			t.Errorf("a has %d slots, b %d, and %d are free", len(a), len(b), p.free)
		}
	})
}

// TestFetchSlotsAbandoned: a client that stops waiting gets no slot, and is removed.
func TestFetchSlotsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFetchSlots(2)
		first, err := p.acquire(t.Context(), t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.acquire(ctx, t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		base, end := context.WithCancelCause(t.Context())
		end(ErrStopped)
		if _, err := p.acquire(t.Context(), base, "a"); !errors.Is(err, ErrStopped) {
			t.Errorf("err = %v", err)
		}
		first()
		if p.free != 2 || len(p.clients) != 0 || len(p.queue) != 0 {
			t.Errorf("%d free, clients %v, turns %v", p.free, p.clients, p.queue)
		}
	})
}

// TestSlowOriginsOfOneClient: a client that looks up thousands of origins that never respond
// does not delay the lookup of a new origin by another client.
func TestSlowOriginsOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: tarpit{}})
		for i := range 10 * DefaultFetches {
			go c.Lookup(t.Context(), Query{Origin: host(i), Client: "greedy"}, robots.Standard())
		}
		synctest.Wait()
		for i := range 20 {
			began := time.Now()
			_, err := c.Lookup(t.Context(), Query{Origin: robots.Origin{Scheme: "http", Host: fmt.Sprintf("fast%d.test", i), Port: 80}, Client: "honest"}, robots.Standard())
			if took := time.Since(began); err != nil || took != 0 {
				t.Errorf("answered after %v: %v", took, err)
			}
		}
	})
}

// tarpit is a Fetcher of origins that never respond, except those whose name begins with f.
type tarpit struct{}

func (tarpit) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	if r.Origin.Host[0] != 'f' {
		<-ctx.Done()
		return &fetch.Result{MaxAge: -1, Connected: true, Err: ctx.Err(), Fetched: time.Now()}
	}
	a := file(-1)
	a.Fetched = time.Now()
	return &a
}
