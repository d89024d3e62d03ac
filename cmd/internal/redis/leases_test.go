package redis

import (
	"math"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// TestFetchLeaseWithoutAnEnd: nobody waits for a right to fetch that would never end.
func TestFetchLeaseWithoutAnEnd(t *testing.T) {
	t.Parallel()
	url := mini(t)
	settled(t, url)
	one := run(t, url, 1)
	together(t, one)
	store, key := one.Robots(nil).(cache.SharedStore), robotsKeys.fetch+fileOf(1).String()
	held, err := store.Lease(t.Context(), fileOf(1), time.Minute)
	if again, err2 := store.Lease(t.Context(), fileOf(1), time.Minute); err != nil || held.Release == nil || err2 != nil || again.Release != nil {
		t.Fatalf("%+v, %v; then %+v, %v", held, err, again, err2)
	}
	admin := client(t, url)
	testkit.Must(t, admin.Persist(t.Context(), key).Err())
	if l, err := store.Lease(t.Context(), fileOf(1), time.Minute); err != nil || l.Release == nil {
		t.Errorf("Lease = %+v, %v", l, err)
	}
	if left := admin.TTL(t.Context(), key).Val(); left <= 0 {
		t.Errorf("the right ends in %v", left)
	}
}

// TestSlotLeaseWithoutAnEnd: a concurrency slot of a replica that died becomes free after a while,
// even if somebody has removed its end.
func TestSlotLeaseWithoutAnEnd(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	now := time.Now()
	s.SetTime(now)
	url := "redis://" + s.Addr()
	settled(t, url)
	one := run(t, url, 1)
	together(t, one)
	testkit.Must(t, client(t, url).ZAdd(t.Context(), leasesKey("a.test"), redis.Z{Score: math.Inf(1), Member: "dead"}).Err())
	a := benchAsk("a.test")
	a.MaxConcurrent = 1
	if got, err := one.Reserve(t.Context(), a); err != nil || !got.Full {
		t.Fatalf("Reserve = %+v, %v", got, err)
	}
	s.SetTime(now.Add(leaseTime + time.Second))
	if got, err := one.Reserve(t.Context(), a); err != nil || got.At.IsZero() {
		t.Errorf("Reserve = %+v, %v", got, err)
	}
}
