package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// TestKeyOfTheWrongType: keys of the proxy that somebody has replaced by keys of another type are
// deleted, which is logged once. No replica becomes alone, and each can do all that it could before.
func TestKeyOfTheWrongType(t *testing.T) {
	t.Parallel()
	for _, bin := range redistest.Binaries(t) {
		s := redistest.StartBinary(t, bin)
		settled(t, s.URL())
		one, two := run(t, s.URL(), 2), run(t, s.URL(), 2)
		together(t, one, two)
		w := newPairAtWork(t, one, two)
		admin := client(t, s.URL())
		for _, key := range []string{
			paceKey("a.test"), leasesKey("a.test"), limiterKey("a.test", "client:c"), replicasKey, sharesKey,
			robotsKeys.entry + fileOf(1).String(), robotsKeys.fetch + fileOf(1).String(), robotsKeys.news,
		} {
			// in one step, so that no replica writes the key in between
			_, err := admin.TxPipelined(t.Context(), func(tx goredis.Pipeliner) error {
				tx.Del(t.Context(), key)
				tx.SAdd(t.Context(), key, "x")
				return nil
			})
			testkit.Must(t, err)
			w.work(t, bin+": "+key)
			testkit.Eventually(t, key+" is no set", func() bool { return admin.Type(t.Context(), key).Val() != "set" })
		}
		for _, r := range []*replica{one, two} {
			if s := r.Stats(); s.StoreAway || s.Outages > 0 {
				t.Errorf("%s: %+v", bin, s)
			}
		}
		if n := strings.Count(one.log.String(), "wrong type"); n != 1 {
			t.Errorf("%s: logged %d times:\n%s", bin, n, one.log)
		}
	}
}

// pairAtWork is two replicas that use all kinds of keys.
type pairAtWork struct {
	one, two       *replica
	first, second  cache.SharedStore
	purged, rounds int

	mu    sync.Mutex // guards heard
	heard int        // purges that the second replica has heard of
}

func newPairAtWork(t *testing.T, one, two *replica) *pairAtWork {
	w := &pairAtWork{one: one, two: two, first: one.Robots(nil).(cache.SharedStore), second: two.Robots(nil).(cache.SharedStore)}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		w.second.Watch(ctx, func(cache.StoreKey, cache.Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard++
		})
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	return w
}

// work reserves and returns slots, and saves, loads and purges a file.
func (w *pairAtWork) work(t *testing.T, when string) {
	t.Helper()
	loose := limiter.Limit{PerSecond: 1e6, Burst: 1000}
	for _, r := range []*replica{w.one, w.two} {
		for _, unused := range []bool{true, false} {
			got, err := r.Reserve(t.Context(), pace.SlotRequest{
				Key: "a.test", Limiters: []pace.Limiter{{Limit: loose}, {Name: "client:c", Limit: loose}}, MaxConcurrent: 1000, MaxWait: time.Minute,
				BackOff: pace.BackOff{Until: time.Now().Add(-time.Second)},
			})
			if err != nil || got.At.IsZero() {
				t.Fatalf("%s: Reserve = %+v, %v", when, got, err)
			}
			r.Report(pace.Report{Key: "a.test", Lease: got.Lease, Unused: unused})
		}
	}
	w.rounds++
	file := fmt.Sprint("file ", w.rounds)
	if l, err := w.first.Lease(t.Context(), fileOf(1), time.Minute); err != nil || l.Release == nil {
		t.Errorf("%s: Lease = %+v, %v", when, l, err)
	} else {
		w.first.(cache.Store).Save(fileOf(1), []byte(file), time.Now().Add(time.Hour), "")
		l.Release()
	}
	testkit.Eventually(t, when+": the file is loaded", func() bool {
		got, _ := w.second.(cache.Store).Load(t.Context(), fileOf(1))
		return string(got) == file
	})
	w.first.Announce(fileOf(2), cache.Purged)
	w.purged++
	testkit.Eventually(t, when+": the purge is heard of", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.heard >= w.purged
	})
}
