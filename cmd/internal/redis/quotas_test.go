package redis

import (
	"sync"
	"testing"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy"
	"robotsproxy/robots/testkit"
)

// TestQuotasAreShared: replicas that take requests at the same time take no more than the quota, and what one has given back or
// received without asking is known to all soon.
func TestQuotasAreShared(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one, two := run(t, s.URL(), 2), run(t, s.URL(), 2)
	together(t, one, two)
	const day, most = 20_000, 50
	quota := policy.Quota{Requests: most}
	var all sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for i := range 4 * most {
		all.Go(func() {
			f := []*replica{one, two}[i%2]
			_, ok, err := f.Take(t.Context(), "lab-a", day, quota)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if ok {
				taken++
			}
		})
	}
	if all.Wait(); taken != most {
		t.Errorf("%d of %d were taken", taken, most)
	}
	for client, day := range map[string]int64{"lab-b": day, "lab-a": day + 1} {
		if used, ok, err := one.Take(t.Context(), client, day, quota); err != nil || !ok || used != (policy.Use{Requests: 1}) {
			t.Errorf("%s on day %d: %+v, %v, %v", client, day, used, ok, err)
		}
	}
	one.Add("lab-a", day, policy.Use{Requests: -1})
	one.Add("lab-a", day, policy.Use{Bytes: 7})
	testkit.Eventually(t, "the other knows", func() bool {
		used, ok, err := two.Take(t.Context(), "lab-a", day, quota)
		return err == nil && ok && used == policy.Use{Requests: most, Bytes: 7}
	})
	if used, ok, err := two.Take(t.Context(), "lab-a", day, policy.Quota{Bytes: 7}); err != nil || ok || used.Requests != most {
		t.Errorf("%+v, %v, %v", used, ok, err)
	}
}

// TestQuotasOfAnOutage: what a replica has used while the server was unavailable is counted when it is back.
func TestQuotasOfAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one := run(t, s.URL(), 1)
	together(t, one)
	s.Stop()
	testkit.Eventually(t, "alone", func() bool {
		_, _, err := one.Take(t.Context(), "lab-a", 1, policy.Quota{Requests: 9})
		return err != nil && one.Standing().StoreAway
	})
	one.Add("lab-a", 1, policy.Use{Requests: 4, Bytes: 100})
	s.Continue()
	together(t, one)
	testkit.Eventually(t, "counted", func() bool {
		n, err := client(t, s.URL()).HGet(t.Context(), quotaPrefix+"1", "r:lab-a").Int()
		return err == nil && n >= 4
	})
	if used, ok, err := one.Take(t.Context(), "lab-a", 1, policy.Quota{Requests: 9}); err != nil || !ok || used.Requests < 5 || used.Bytes != 100 {
		t.Errorf("%+v, %v, %v", used, ok, err)
	}
}
