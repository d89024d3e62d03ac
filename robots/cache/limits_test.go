package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

func host(i int) robots.Origin {
	return robots.Origin{Scheme: "http", Host: fmt.Sprintf("h%d.test", i), Port: 80}
}

// sized is a Fetcher of files of many sizes, and of failures.
type sized struct{}

func (sized) Fetch(_ context.Context, r fetch.Request) *fetch.Result {
	o := r.Origin
	n := len(o.Host) * int(o.Host[1]-'0'+1)
	switch o.Host[len(o.Host)-6] % 4 {
	case 0:
		a := status(404)
		return &a
	case 1:
		a := unconnected()
		return &a
	}
	a := file(time.Duration(n) * time.Microsecond)
	a.Body = bytes.Repeat(a.Body, n)
	return &a
}

// TestMemory: entries of any number of hosts take at most MaxBytes, and evicted entries leave
// the schedule.
func TestMemory(t *testing.T) {
	const most = 1 << 20
	c := newCache(t, Options{Fetcher: sized{}, MaxBytes: most})
	for i := range 5000 {
		e, err := c.Lookup(t.Context(), Query{Origin: host(i)}, robots.Standard())
		if err != nil {
			t.Fatal(err)
		}
		e.Under(robots.Standard())
		if i%50 != 0 {
			continue
		}
		held, scheduled := 0, 0
		for _, e := range c.entries.All() {
			held += int(e.weight())
			if !e.lifetimes[byCacheControl].refreshAt.IsZero() {
				scheduled++
			}
		}
		if held > most || uint64(held) != c.entries.WeightedSize() {
			t.Fatalf("after %d hosts %d bytes are held, %d counted", i, held, c.entries.WeightedSize())
		}
		if len(c.schedule.entries) != scheduled {
			t.Fatalf("after %d hosts %d entries, %d scheduled", i, scheduled, len(c.schedule.entries))
		}
	}
	if n := c.entries.EstimatedSize(); n < 50 {
		t.Errorf("only %d entries are held", n)
	}
	if len(c.flights) != 0 {
		t.Errorf("%d flights", len(c.flights))
	}
}

// TestCompiledCounts: the fetch compiles a file under the dialect of its lookup, and a
// compilation under another dialect adds to the weight of the entry.
func TestCompiledCounts(t *testing.T) {
	c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{file(-1)}}})
	e, err := c.Lookup(t.Context(), Query{Origin: site}, robots.Standard())
	if err != nil {
		t.Fatal(err)
	}
	if e.last.find(robots.Standard()) == nil {
		t.Error("the slot of the fetch was released before the file was compiled")
	}
	other, err := robots.DialectByName("rfc9309")
	if err != nil {
		t.Fatal(err)
	}
	before := c.entries.WeightedSize()
	f := e.Under(other).File
	if after := c.entries.WeightedSize(); after != before+uint64(f.Size()) || f.Size() == 0 {
		t.Errorf("%d bytes before, %d after, file %d", before, after, f.Size())
	}
	if len(c.schedule.entries) != 1 || c.schedule.entries[0].entry != e {
		t.Errorf("schedule %v", c.schedule.entries)
	}
}

// TestLargerThanCache: the callers that wait get a file that is too large for the cache.
func TestLargerThanCache(t *testing.T) {
	f := &script{answers: []fetch.Result{file(-1)}}
	c := newCache(t, Options{Fetcher: f, MaxBytes: 1})
	for range 2 {
		if r, _ := rule(t, c); r.Meaning != Rules {
			t.Fatalf("%+v", r)
		}
	}
	if f.count() != 2 || c.entries.WeightedSize() != 0 || len(c.schedule.entries) != 0 {
		t.Errorf("%d fetches, %d bytes, %d scheduled", f.count(), c.entries.WeightedSize(), len(c.schedule.entries))
	}
}

// TestFetchesAtOnce: at most DefaultFetches run, and a caller that waits for a slot may leave.
func TestFetchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: 10 * time.Second}
		c := newCache(t, Options{Fetcher: f})
		var wg sync.WaitGroup
		for i := range DefaultFetches { // each by another client: see TestFetchSlots
			wg.Go(func() { _, _ = c.Lookup(t.Context(), Query{Origin: host(i), Client: fmt.Sprint(i)}, robots.Standard()) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lookup(ctx, Query{Origin: site}, robots.Standard()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		if f.count() != DefaultFetches {
			t.Errorf("%d fetches", f.count())
		}
		if _, waited := rule(t, c); waited != 19*time.Second {
			t.Errorf("a caller had its slot and its fetch after %v", waited)
		}
		wg.Wait()
	})
}

// TestManyRefreshes: more refreshes are due at once than there are slots.
func TestManyRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{answers: []fetch.Result{file(-1)}, takes: 10 * time.Second}
		c, stop := start(t, Options{Fetcher: f})
		defer stop()
		const hosts = 3 * DefaultFetches / refreshPart
		for range 2 {
			var wg sync.WaitGroup
			for i := range hosts {
				wg.Go(func() { _, _ = c.Lookup(t.Context(), Query{Origin: host(i)}, robots.Standard()) })
			}
			wg.Wait()
		}
		wait(22 * time.Hour)
		if f.count() != 2*hosts {
			t.Errorf("%d fetches of %d hosts", f.count(), hosts)
		}
		for i := range hosts {
			if _, err := c.Lookup(t.Context(), Query{Origin: host(i)}, robots.Standard()); err != nil {
				t.Fatal(err)
			}
		}
		if f.count() != 2*hosts || len(c.refreshSlots) != 0 {
			t.Errorf("%d fetches, %d slots taken", f.count(), len(c.refreshSlots))
		}
	})
}

// TestTogether uses everything at once, for the race detector.
func TestTogether(t *testing.T) {
	c, stop := start(t, Options{Fetcher: sized{}, MaxBytes: 100 << 10, MaxAge: 3 * time.Millisecond, MinAge: time.Microsecond, Retry: time.Millisecond})
	defer stop()
	dialects := robots.Dialects()
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range testkit.Rounds(3000) {
				d := dialects[random.IntN(len(dialects))]
				e, err := c.Lookup(t.Context(), Query{Origin: host(random.IntN(200))}, d)
				if err != nil {
					t.Error(err)
					return
				}
				e.Under(d)
			}
		})
	}
	wg.Wait()
}

func TestWhatIsKnownAllocatesNothing(t *testing.T) {
	c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{file(-1)}}})
	n := testing.AllocsPerRun(100, func() {
		e, err := c.Lookup(t.Context(), Query{Origin: site}, robots.Standard())
		if err != nil {
			t.Fatal(err)
		}
		e.Under(robots.Standard())
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, hosts := range []int{1, 1000} {
		c := newCache(b, Options{Fetcher: &script{answers: []fetch.Result{file(-1)}}})
		origins := make([]robots.Origin, hosts)
		for i := range origins {
			origins[i] = host(i)
			if _, err := c.Lookup(b.Context(), Query{Origin: origins[i]}, robots.Standard()); err != nil {
				b.Fatal(err)
			}
		}
		ctx := b.Context()
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if e, err := c.Lookup(ctx, Query{Origin: origins[i%hosts]}, robots.Standard()); e == nil || err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("hosts=%d/parallel", hosts), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if e, err := c.Lookup(ctx, Query{Origin: origins[i%hosts]}, robots.Standard()); e == nil || err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkUnder(b *testing.B) {
	c := newCache(b, Options{Fetcher: &script{answers: []fetch.Result{file(-1)}}})
	e, err := c.Lookup(b.Context(), Query{Origin: site}, robots.Standard())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := e.Under(robots.Standard()); r.Meaning != Rules {
			b.Fatal(r)
		}
	}
}
