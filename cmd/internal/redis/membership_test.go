package redis

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/robots/testkit"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing", Options{}, "redis: Options lack a Log"},
		{"no URL", Options{Replicas: 1, Log: log}, "store.redis: not a URL (example: redis://redis.example:6379)"},
		{"no replicas", Options{URL: "redis://a", Log: log}, "store.replicas: 0 is not between 1 and 10000"},
		{"too many replicas", Options{URL: "redis://a", Replicas: 10_001, Log: log}, "store.replicas: 10001 is not between 1 and 10000"},
		{"no URL that can be read", Options{URL: "redis://:secret@a b:1", Replicas: 1, Log: log}, "store.redis: not a URL (example: redis://redis.example:6379)"},
		{"a port that is none", Options{URL: "redis://:secret@a:port", Replicas: 1, Log: log}, "store.redis: not a URL (example: redis://redis.example:6379)"},
		{"another scheme", Options{URL: "http://:secret@a", Replicas: 1, Log: log}, "store.redis: invalid URL scheme: http"},
		{"another scheme of Sentinels", Options{URL: "http://:secret@a?master_name=m", Replicas: 1, Log: log}, "store.redis: invalid URL scheme: http"},
		{"no database", Options{URL: "redis://:secret@a/x", Replicas: 1, Log: log}, `store.redis: invalid database number: "x"`},
		{"an option that is none", Options{URL: "redis://:secret@a?pace=1", Replicas: 1, Log: log}, "store.redis: unexpected option: pace"},
		{"a replica", Options{URL: "redis://:secret@a?master_name=m&replica_only=true", Replicas: 1, Log: log}, "store.redis: parameters that select read-only replicas are not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open(c.o)
			if err == nil || err.Error() != c.want || f != nil {
				t.Errorf("Open = %v, want %s", err, c.want)
			}
		})
	}
}

func TestRunWantsHooks(t *testing.T) {
	t.Parallel()
	f, err := Open(Options{URL: "redis://127.0.0.1:1", Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Run(t.Context(), Hooks{}); err == nil {
		t.Error("Run does without")
	}
	if s := f.Standing(); !s.StoreAway || s.Slowdown != 1 {
		t.Errorf("Standing = %+v before all", s)
	}
	if _, err := f.Reserve(t.Context(), benchAsk("a.test")); err == nil {
		t.Error("Reserve gives a turn before all")
	}
}

// Replicas that see each other combine their shares. A replica that shut down leaves its
// share for its successor. The share of a lost replica is not used.
func TestShares(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one := run(t, s.URL(), 4)
	_, stopTwo := start(t, s.URL(), 4)
	defer stopTwo()
	times := func(want float64) func() bool {
		return func() bool { return one.Standing() == pace.Standing{Slowdown: want} }
	}
	testkit.Eventually(t, "two of four", times(2))
	before := one.checks.Load()
	three, stopThree := start(t, s.URL(), 4)
	defer stopThree()
	testkit.Eventually(t, "three of four", times(4.0/3))
	testkit.Eventually(t, "Recheck is called", func() bool { return one.checks.Load() > before })

	stopTwo()
	testkit.Eventually(t, "one has ended", func() bool { s := one.Stats(); return s.Replicas == 2 && s.Left == 1 })
	if !times(4.0 / 3)() {
		t.Errorf("Standing = %+v, and a share is left", one.Standing())
	}
	next := run(t, s.URL(), 4)
	testkit.Eventually(t, "the next is there", func() bool { s := one.Stats(); return s.Replicas == 3 && s.Left == 0 })
	testkit.Eventually(t, "the next knows of all", func() bool { return next.Standing() == pace.Standing{Slowdown: 4.0 / 3} })

	three.mu.Lock() // its next beat waits only for this lock, so it seems lost
	three.Fleet.mu.Lock()
	testkit.Eventually(t, "one is lost", times(2))
	three.Fleet.mu.Unlock()
	three.mu.Unlock()
	testkit.Eventually(t, "it is back", times(4.0/3))
}

// The first replica waits for possible reports of others, the next one does not.
func TestFirstReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	began := time.Now()
	one := run(t, s.URL(), 2)
	together(t, one)
	if took := time.Since(began); took < returnTime {
		t.Errorf("it shares after %v", took)
	}
	began = time.Now()
	two := run(t, s.URL(), 2)
	testkit.Eventually(t, "the next shares", func() bool { return !two.Standing().StoreAway })
	t.Logf("the next shares after %v", time.Since(began))
	if strings.Contains(two.log.String(), "away") {
		t.Errorf("it says that it was away: %s", two.log)
	}
}

// A replica that was disconnected uses its own share.
func TestReturningTakesNoShare(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one := runBy(t, forStill, s.URL(), 3)
	two, stopTwo := start(t, s.URL(), 3)
	defer stopTwo()
	together(t, one, two)
	stopTwo()
	testkit.Eventually(t, "one has ended", func() bool { s := one.Stats(); return s.Replicas == 1 && s.Left == 1 })
	s.Stop()
	testkit.Eventually(t, "alone", func() bool { return one.Standing().StoreAway })
	s.Continue()
	testkit.Eventually(t, "it is back", func() bool { return !one.Standing().StoreAway })
	if st := one.Stats(); st.Replicas != 1 || st.Left != 1 || st.Times != 1.5 {
		t.Errorf("Stats = %+v", st)
	}
}

// More than Options.Replicas replicas: each uses 1/Replicas while it is alone.
func TestMoreReplicasThanSaid(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	all := []*replica{run(t, s.URL(), 2), run(t, s.URL(), 2), run(t, s.URL(), 2)}
	together(t, all...)
	s.Kill()
	for _, r := range all {
		testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
		if st := r.Standing(); st.Slowdown != 3 {
			t.Errorf("Standing = %+v", st)
		}
	}
}

// A replica that has logged that it is slower because others are missing also logs when
// they have joined.
func TestTellsOfTheOthers(t *testing.T) {
	s := redistest.Start(t)
	settled(t, s.URL())
	one := run(t, s.URL(), 2)
	together(t, one)
	n := 0 // number of earlier lines
	logs := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, want[0], func() bool { return strings.Count(one.log.String(), "\n") == n+len(want) })
		for i, line := range strings.Split(one.log.String(), "\n")[n:][:len(want)] {
			if !strings.Contains(line, want[i]) {
				t.Errorf("%s\nwant %s", line, want[i])
			}
		}
		n += len(want)
	}
	logs("sharing the pace with other replicas\" replicas=1 expected=2 times_slower=2")
	_, stopTwo := start(t, s.URL(), 2)
	defer stopTwo()
	logs("level=INFO msg=\"number of replicas changed\" replicas=2 expected=2 times_slower=1")
	_, stopThree := start(t, s.URL(), 2)
	defer stopThree()
	logs("level=INFO msg=\"number of replicas changed\" replicas=3 expected=2 times_slower=1",
		"level=WARN msg=\"more replicas than store.replicas, ")
	stopThree()
	logs("level=INFO msg=\"number of replicas changed\" replicas=2 expected=2 times_slower=1")
}

// sentAlone makes the replica report what it has sent: pages, assets, requests before a
// back-off, and to more hosts than fit into one report.
func sentAlone(two *replica) {
	now := time.Now()
	two.mu.Lock()
	for _, key := range []string{"page.test", "assets.test", "pause.test"} {
		two.clocks = append(two.clocks, pace.Clock{Key: key, Gap: time.Hour, Sent: now})
	}
	two.clocks[1].AssetsSent = now
	two.clocks[2] = pace.Clock{Key: "pause.test", Sent: now, BackOffUntil: now.Add(30 * time.Minute), BackOffLength: time.Minute}
	for i := range 3 * batch {
		two.clocks = append(two.clocks, pace.Clock{Key: "host" + string(rune('0'+i)), Gap: time.Hour, Sent: now})
	}
	two.mu.Unlock()
}

// All replicas know what was sent alone before its sender shares the rate again.
func TestSentAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one, two := run(t, s.URL(), 2), run(t, s.URL(), 2)
	together(t, one, two)
	if err := client(t, s.URL()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	sentAlone(two)
	testkit.Eventually(t, "alone", func() bool { return one.Standing().StoreAway })
	together(t, one, two)

	ask := func(key, clock string) pace.SlotRequest {
		return pace.SlotRequest{
			Key: key, Limiters: []pace.Limiter{{Name: clock, Limit: limiter.Limit{PerSecond: 1.0 / 60, Burst: 10}}}, MaxConcurrent: 1, MaxWait: time.Second,
		}
	}
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if d := got - want; d < -time.Minute/2 || d > time.Minute/2 {
			t.Errorf("%s: wait %v, want %v", what, got, want)
		}
	}
	for _, c := range []struct {
		key, clock string
		want       time.Duration
	}{
		{"page.test", "", time.Minute},
		{"assets.test", "assets", time.Minute},
		{"pause.test", "", 30 * time.Minute},
		{"host" + string(rune('0'+3*batch-1)), "", time.Minute},
	} {
		turn, err := one.Reserve(t.Context(), ask(c.key, c.clock))
		if err != nil || !turn.At.IsZero() {
			t.Errorf("%s: %+v, %v", c.key, turn, err)
		}
		near(c.key, turn.Wait, c.want)
	}
	a := ask("page.test", "")
	a.Limiters[0] = pace.Limiter{Limit: limiter.Limit{PerSecond: 1.0 / 3600, Burst: 1, Gap: time.Hour}}
	a.Window = time.Millisecond
	turn, err := one.Reserve(t.Context(), a)
	if err != nil || !turn.At.IsZero() {
		t.Errorf("%+v, %v", turn, err)
	}
	near("a gap", turn.Wait, time.Hour)
	if turn, err := one.Reserve(t.Context(), ask("page.test", "assets")); err != nil || turn.At.IsZero() {
		t.Errorf("by another clock: %+v, %v", turn, err)
	}
}

func TestWarnsOfEviction(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	settled(t, s.URL())
	r := run(t, s.URL(), 1)
	together(t, r)
	if !strings.Contains(r.log.String(), "policy=allkeys-lru") {
		t.Errorf("it is not said: %s", r.log)
	}
}

// The store's clock is set back by an hour: a slot that was a second ahead still is.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	now := time.Now()
	s.SetTime(now)
	settled(t, "redis://"+s.Addr())
	r := run(t, "redis://"+s.Addr(), 1)
	together(t, r)
	ask := pace.SlotRequest{
		Key:           "a.test",
		Limiters:      []pace.Limiter{{Limit: limiter.Limit{PerSecond: 0.1, Burst: 1, Gap: 10 * time.Second}}, {Name: "client:c", Limit: limiter.Limit{PerSecond: 0.1, Burst: 1, Gap: 10 * time.Second}}},
		MaxConcurrent: 1, MaxWait: time.Minute, Window: time.Second,
		BackOff: pace.BackOff{Until: now.Add(time.Second), Length: time.Minute},
	}
	first, err := r.Reserve(t.Context(), ask)
	if err != nil || first.At.IsZero() {
		t.Fatalf("Reserve = %+v, %v", first, err)
	}
	s.SetTime(now.Add(-time.Hour))
	if turn, err := r.Reserve(t.Context(), ask); err != nil || !turn.Full {
		t.Errorf("Reserve = %+v, %v, want it full", turn, err)
	}
	ask.MaxConcurrent = 2
	second, err := r.Reserve(t.Context(), ask)
	if d := second.At.Sub(first.Until); err != nil || d < 9*time.Second || d > 40*time.Second {
		t.Errorf("the next turn comes %v after the first, %v", d, err)
	}
	if d := time.Until(second.BackOff.Until); d > 10*time.Second {
		t.Errorf("the pause lasts for another %v", d)
	}
	// Nobody renews these by the later time, of which one was given out by the clock that was ahead.
	r.held.all.Clear()
	s.SetTime(now.Add(-time.Hour + leaseTime + time.Second))
	ask.MaxConcurrent, ask.Key = 1, "b.test"
	if turn, err := r.Reserve(t.Context(), ask); err != nil || turn.At.IsZero() {
		t.Errorf("Reserve = %+v, %v", turn, err)
	}
	ask.Key, ask.MaxWait = "a.test", time.Hour
	if turn, err := r.Reserve(t.Context(), ask); err != nil || turn.At.IsZero() {
		t.Errorf("Reserve = %+v, %v after the leases have ended", turn, err)
	}
	if st := r.Standing(); st.StoreAway || st.Slowdown != 1 {
		t.Errorf("Standing = %+v", st)
	}
}

// A replica whose successor has already joined leaves no share. With that share, the
// others would use the whole rate even if they were split.
func TestReplacedLeavesNoShare(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one := run(t, s.URL(), 2)
	two, stopTwo := start(t, s.URL(), 2)
	defer stopTwo()
	next := run(t, s.URL(), 2)
	together(t, one, two, next)
	stopTwo()
	together(t, one, next)
	if st := one.Stats(); st.Left != 0 || st.Times != 1 {
		t.Errorf("Stats = %+v", st)
	}
}
