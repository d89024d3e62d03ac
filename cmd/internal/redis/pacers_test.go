package redis

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
	"robotsproxy/robots/testkit"
)

// pacer returns the Pacer of one more replica, which runs until the test ends.
func pacer(t *testing.T, open opener, url string, replicas int) (*Fleet, *pace.Pacer) {
	t.Helper()
	f, err := open(Options{URL: url, Replicas: replicas, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p := pace.New(pace.Options{Store: f})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, Hooks{Clocks: p.Clocks, Recheck: p.Recheck, BackOff: p.MergeBackOff}) }()
	t.Cleanup(func() {
		p.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		f.Close()
	})
	return f, p
}

// pacers returns the given number of Pacers that share an empty server.
func pacers(t *testing.T, n int) []*pace.Pacer {
	s := redistest.Start(t)
	settled(t, s.URL())
	var fleets []*Fleet
	var all []*pace.Pacer
	for range n {
		f, p := pacer(t, patient, s.URL(), n)
		fleets, all = append(fleets, f), append(all, p)
	}
	for _, f := range fleets {
		testkit.Eventually(t, "all share", func() bool { return f.Standing() == pace.Standing{Slowdown: 1} })
	}
	return all
}

func TestPacersShareAServer(t *testing.T) {
	t.Parallel()
	storetest.Pacers(t, nil, pacers)
}

// A request that holds a slot learns of a back-off at once.
func TestPauseIsHeard(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one, two := run(t, s.URL(), 2), run(t, s.URL(), 2)
	together(t, one, two)
	admin := client(t, s.URL())
	testkit.Eventually(t, "both listen", func() bool {
		return admin.PubSubNumSub(t.Context(), backOffChannel).Val()[backOffChannel] == 2
	})
	for _, note := range []string{"", "{}", "null", `{"key":"a.test","left_ns":-1}`, `{"key":5}`, string(make([]byte, maxBackOffMessage+1))} {
		admin.Publish(t.Context(), backOffChannel, note)
	}
	until := time.Now().Add(time.Minute)
	one.Report(pace.Report{Key: "a.test", BackOff: pace.BackOff{Until: until, Length: time.Second, By: "id"}})
	testkit.Eventually(t, "the other has heard", func() bool {
		two.mu.Lock()
		defer two.mu.Unlock()
		b := two.pauses["a.test"]
		return len(two.pauses) == 1 && b.Until.Sub(until).Abs() < 10*time.Second && b.Length == time.Second && b.By == "id"
	})
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.pauses) > 0 {
		t.Errorf("one has heard of its own: %v", one.pauses)
	}
}

// A replica whose server was unavailable receives back-offs again when it is available.
func TestPauseIsHeardAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one := run(t, s.URL(), 1)
	together(t, one)
	s.Restart()
	testkit.Eventually(t, "alone", func() bool { return one.Standing().StoreAway })
	together(t, one)
	admin := client(t, s.URL())
	testkit.Eventually(t, "it listens", func() bool {
		return admin.PubSubNumSub(t.Context(), backOffChannel).Val()[backOffChannel] == 1
	})
}

// TestBackOffOfAnOutageIsSpread: the others hear of a back-off that a replica has begun without the store when the store is
// back.
func TestBackOffOfAnOutageIsSpread(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	f, one := pacer(t, patient, s.URL(), 2)
	g, two := pacer(t, patient, s.URL(), 2)
	shared := func(want bool) {
		testkit.Eventually(t, "the store is there, or is not", func() bool { return f.Standing().StoreAway != want && g.Standing().StoreAway != want })
	}
	shared(true)
	s.Kill()
	shared(false)
	l := pace.Limits{Key: "a.test", PerSecond: 10, Burst: 1, MaxConcurrent: 6, MaxWait: time.Minute, MaxQueue: 10}
	slot, err := one.Wait(t.Context(), "", l)
	if err == nil {
		err = slot.Ready(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	slot.Sent()
	slot.BackOff(time.Hour, "id")
	slot.Release()
	s.Restart()
	shared(true)
	var busy *pace.BusyError
	if slot, err = two.Wait(t.Context(), "", l); err == nil {
		err = slot.Ready(t.Context())
		slot.Release()
	}
	if !errors.As(err, &busy) || busy.Reason != pace.BackedOff {
		t.Errorf("the other replica says %v", err)
	}
}
