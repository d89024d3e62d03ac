package redis

import (
	"context"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// A replica ends soon although its server hangs, whatever reports are still waiting.
func TestEndsWhileStopped(t *testing.T) {
	t.Parallel()
	const calls = int(2 * testkit.Patience / callTime)
	for name, tell := range map[string]func(*replica, cache.SharedStore){
		"nothing to tell": func(*replica, cache.SharedStore) {},
		"reports": func(r *replica, _ cache.SharedStore) {
			for range calls * batch {
				r.Report(pace.Report{Key: "a.test", BackOff: pace.BackOff{Until: time.Now().Add(time.Hour)}})
			}
		},
		"places": func(r *replica, _ cache.SharedStore) {
			for range calls * batch {
				r.held.all.Store(r.held.newName(r.id), "a.test")
			}
			r.reports.renew()
		},
		"purges": func(_ *replica, s cache.SharedStore) {
			for i := range calls * maxBatchCalls {
				s.Announce(fileOf(i), cache.Purged)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			settled(t, s.URL())
			r, stop := startBy(t, Open, s.URL(), 3)
			defer stop()
			together(t, r)
			store := r.Robots(nil).(cache.SharedStore)
			ctx, cancel := context.WithCancel(t.Context())
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				store.Watch(ctx, func(cache.StoreKey, cache.Change) {})
			}()
			<-time.After(100 * time.Millisecond)
			s.Stop()
			defer s.Continue()
			tell(r, store)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				cancel()
				<-watched
				stop()
			}()
			// It takes one call each to connect, to report and to leave, not one for each batch.
			testkit.Within(t, "it ends", ended)
		})
	}
}

// If the server is known to be unavailable, the shutdown waits for nothing, and is
// neither an outage nor a failure.
func TestEndsWhileAway(t *testing.T) {
	t.Parallel()
	testkit.AtMost(t, callTime/2, func() time.Duration { return endWhileAway(t) })
}

// endWhileAway returns how long the shutdown took.
func endWhileAway(t *testing.T) time.Duration {
	t.Helper()
	s := redistest.Start(t)
	settled(t, s.URL())
	r, stop := startBy(t, Open, s.URL(), 3)
	defer stop()
	together(t, r)
	s.Stop()
	defer s.Continue()
	testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
	asked := r.Stats().Failures[TimedOut.Name()]
	testkit.Eventually(t, "it is asked again", func() bool { return r.Stats().Failures[TimedOut.Name()] > asked })
	<-time.After(probeEvery + callTime/4) // and is being probed
	began := time.Now()
	stop()
	return time.Since(began)
}

func TestEndIsNoOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	r, stop := start(t, s.URL(), 3)
	defer stop()
	together(t, r)
	stop()
	st := r.Stats()
	for name, n := range st.Failures {
		if n > 0 {
			t.Errorf("%d calls have failed: %s", n, name)
		}
	}
	if !st.StoreAway || st.Cause != Ended || st.Outages != 0 {
		t.Errorf("Stats = %+v", st)
	}
}
