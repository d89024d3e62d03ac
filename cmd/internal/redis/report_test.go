package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/robots/testkit"
)

// onePlace is a request for the only concurrency slot of a key.
func onePlace(key string) pace.SlotRequest {
	return pace.SlotRequest{Key: key, Limiters: []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1000, Burst: 1000}}}, MaxConcurrent: 1, MaxWait: time.Minute}
}

// A concurrency slot stays taken as long as its request is in flight, and is free ten
// seconds after its replica was lost.
func TestLeases(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	now := time.Now()
	s.SetTime(now)
	settled(t, "redis://"+s.Addr())
	one, two := run(t, "redis://"+s.Addr(), 2), run(t, "redis://"+s.Addr(), 2)
	together(t, one, two)
	admin := client(t, "redis://"+s.Addr())
	a := onePlace("a.test")
	if turn, err := one.Reserve(t.Context(), a); err != nil || turn.At.IsZero() {
		t.Fatalf("Reserve = %+v, %v", turn, err)
	}
	full := func() bool {
		turn, err := two.Reserve(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return turn.Full
	}
	ends := func() float64 {
		leases, err := admin.ZRangeWithScores(t.Context(), leasesKey(a.Key), 0, -1).Result()
		if err != nil || len(leases) != 1 {
			t.Fatalf("the leases are %v, %v", leases, err)
		}
		return leases[0].Score
	}
	for range 4 {
		before := ends()
		now = now.Add(leaseTime * 2 / 3)
		s.SetTime(now)
		one.reports.renew()
		testkit.Eventually(t, "it is renewed", func() bool { return ends() > before })
		if !full() {
			t.Fatal("the place is given to another")
		}
	}
	one.held.all.Clear() // it seems lost
	s.SetTime(now.Add(leaseTime - time.Second))
	if !full() {
		t.Error("the place is given to another too soon")
	}
	s.SetTime(now.Add(leaseTime + time.Second))
	if full() {
		t.Error("the place stays taken")
	}
}

// Reports during an outage are sent when the store returns. A request that still has a
// concurrency slot has it also in a store that was emptied.
func TestReportsWhileAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one, two := runBy(t, forStill, s.URL(), 2), runBy(t, forStill, s.URL(), 2)
	together(t, one, two)
	kept, err := one.Reserve(t.Context(), onePlace("kept.test"))
	if err != nil || kept.Lease == nil {
		t.Fatalf("Reserve = %+v, %v", kept, err)
	}
	back, err := one.Reserve(t.Context(), onePlace("back.test"))
	if err != nil || back.Lease == nil {
		t.Fatalf("Reserve = %+v, %v", back, err)
	}
	s.Stop()
	testkit.Eventually(t, "alone", func() bool { return one.Standing().StoreAway })
	one.Report(pace.Report{Key: "back.test", Lease: back.Lease, Unused: true})
	one.Report(pace.Report{Key: "pause.test", BackOff: pace.BackOff{Until: time.Now().Add(time.Hour), By: "id"}})
	s.Continue()
	together(t, one, two)
	testkit.Eventually(t, "the place is given back", func() bool {
		turn, err := two.Reserve(t.Context(), onePlace("back.test"))
		return err == nil && !turn.At.IsZero()
	})
	testkit.Eventually(t, "the pause is told", func() bool {
		turn, err := two.Reserve(t.Context(), onePlace("pause.test"))
		return err == nil && time.Until(turn.BackOff.Until) > 50*time.Minute && turn.BackOff.By == "id"
	})

	if err := client(t, s.URL()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "alone", func() bool { return one.Standing().StoreAway && two.Standing().StoreAway })
	together(t, one, two)
	testkit.Eventually(t, "the place is taken again", func() bool {
		return client(t, s.URL()).ZCard(t.Context(), leasesKey("kept.test")).Val() == 1
	})
	if s := one.Stats(); s.Held != 1 || s.Dropped != 0 {
		t.Errorf("Stats = %+v", s)
	}
}

// A queue of reports has a maximum length.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	r := run(t, "redis://127.0.0.1:1", 1)
	for range maxReports + 3 {
		r.Report(pace.Report{Key: "a.test", BackOff: pace.BackOff{Until: time.Now()}})
	}
	r.Report(pace.Report{Key: "a.test"}) // reports nothing
	if s := r.Stats(); s.Dropped != 3 {
		t.Errorf("%d were dropped", s.Dropped)
	}
}

// A reservation is returned if its caller has left meanwhile, or if its slot had ended
// before the reply.
func TestTurnsThatNobodyCanUse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := forward(t, s.Addr)
	settled(t, s.URL())
	r := run(t, "redis://"+f.addr, 1)
	together(t, r)
	f.delay.Store(int64(100 * time.Millisecond))
	a := benchAsk("a.test")
	a.Window = time.Millisecond
	first, err := r.Reserve(t.Context(), a)
	if err != nil || !first.Until.After(first.At) {
		t.Fatalf("Reserve = %+v, %v", first, err)
	}
	second, err := r.Reserve(t.Context(), a)
	if d := second.At.Sub(first.At); err != nil || d > 10*time.Second {
		t.Errorf("the next turn comes %v after the first, %v", d, err)
	}
	if n := client(t, s.URL()).ZCard(t.Context(), leasesKey("a.test")).Val(); n != 2 {
		t.Errorf("two turns have taken %d places", n)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	r := run(t, s.URL(), 1)
	together(t, r)
	for range 3 {
		if _, err := r.Reserve(t.Context(), onePlace("full.test")); err != nil {
			t.Fatal(err)
		}
	}
	a := benchAsk("late.test")
	a.Window = time.Minute // so that a slow machine does not miss the slot and reserve another
	a.Limiters = []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1.0 / 3600, Burst: 1, Gap: time.Hour}}}
	a.MaxWait = 0
	for range 2 {
		if _, err := r.Reserve(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	st := r.Stats()
	if st.Reserved != 2 || st.Full != 2 || st.Late != 1 || st.Held != 2 || st.Outages != 0 {
		t.Errorf("Stats = %+v", st)
	}
	if n := len(st.Failures); n != int(causeCount)-2 {
		t.Errorf("%d causes are shown: %v", n, st.Failures)
	}
	for name, n := range st.Failures {
		if n != 0 {
			t.Errorf("%d calls have failed: %s", n, name)
		}
	}
	if n := len(st.RoundTrips); st.RoundTrips[n-1] != (Trips{Count: 5}) || st.RoundTripTime <= 0 {
		t.Errorf("RoundTrips = %+v in %v", st.RoundTrips, st.RoundTripTime)
	}
	s.Kill()
	testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
	testkit.Eventually(t, "refused", func() bool { return r.Stats().Failures[Refused.Name()] > 0 })
	if st := r.Stats(); !st.StoreAway || st.Outages != 1 || st.Times != 1 {
		t.Errorf("Stats = %+v", st)
	}
}

// If a server drops its scripts (SCRIPT FLUSH), nothing fails.
func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	r := run(t, s.URL(), 1)
	together(t, r)
	admin := client(t, s.URL())
	for range 3 {
		turn, err := r.Reserve(t.Context(), onePlace("a.test"))
		if err != nil || turn.At.IsZero() {
			t.Fatalf("Reserve = %+v, %v", turn, err)
		}
		if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		r.Report(pace.Report{Key: "a.test", Lease: turn.Lease, Unused: true})
		testkit.Eventually(t, "the place is given back, and the turn", func() bool {
			was, err := admin.HGet(t.Context(), paceKey("a.test"), "c:").Result()
			return err == nil && was == "" && admin.Exists(t.Context(), leasesKey("a.test")).Val() == 0
		})
		if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if st := r.Stats(); st.Outages > 0 || st.Dropped > 0 {
		t.Errorf("Stats = %+v: %s", st, r.log)
	}
}

// A caller that has left gets its own error, and its reservation is returned.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := forward(t, s.Addr)
	settled(t, s.URL())
	r := run(t, "redis://"+f.addr, 1)
	together(t, r)
	f.delay.Store(int64(100 * time.Millisecond))
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { leave(gone) })
	if turn, err := r.Reserve(ctx, onePlace("a.test")); !errors.Is(err, gone) || turn.Lease != nil {
		t.Errorf("Reserve = %+v, %v", turn, err)
	}
	if r.Standing().StoreAway {
		t.Error("alone, since a caller has left")
	}
	f.delay.Store(0)
	testkit.Eventually(t, "the place is given back", func() bool {
		turn, err := r.Reserve(t.Context(), onePlace("a.test"))
		return err == nil && !turn.At.IsZero()
	})
	if _, err := r.Reserve(t.Context(), pace.SlotRequest{Key: "a.test", MaxConcurrent: 1}); err == nil || r.Standing().StoreAway {
		t.Errorf("a turn by no clock: %v", err)
	}
}

// TestEndedBackOffStaysEnded: a call that was made before an operator ended a back-off does not bring it back.
func TestEndedBackOffStaysEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	one, two := run(t, s.URL(), 2), run(t, s.URL(), 2)
	together(t, one, two)
	old := benchAsk("a.test")
	old.BackOff = pace.BackOff{Until: time.Now().Add(time.Hour), Length: time.Hour}
	one.Report(pace.Report{Key: "a.test", BackOff: old.BackOff})
	fresh := func(r *replica, key string) pace.Reservation {
		got, err := r.Reserve(t.Context(), benchAsk(key))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	testkit.Eventually(t, "the other knows", func() bool { return !fresh(two, "a.test").BackOff.Until.IsZero() })
	two.Report(pace.Report{Key: "a.test", BackOff: pace.BackOff{Ended: true}})
	testkit.Eventually(t, "it has ended", func() bool { return fresh(two, "a.test").BackOff.Until.IsZero() })
	if _, err := one.Reserve(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	one.Report(pace.Report{Key: "a.test", BackOff: old.BackOff})
	one.Report(pace.Report{Key: "b.test", BackOff: old.BackOff})
	testkit.Eventually(t, "the reports have arrived", func() bool { return !fresh(two, "b.test").BackOff.Until.IsZero() })
	if b := fresh(two, "a.test").BackOff; !b.Until.IsZero() {
		t.Errorf("the back-off is back: %+v", b)
	}
	one.Report(pace.Report{Key: "c.test", BackOff: old.BackOff})
	one.Report(pace.Report{Key: "c.test", BackOff: pace.BackOff{Ended: true}})
	// After a time, the same end is that of a new one.
	admin := client(t, s.URL())
	testkit.Eventually(t, "the other one has ended", func() bool { return admin.HExists(t.Context(), paceKey("c.test"), "e").Val() })
	if ttl := admin.PTTL(t.Context(), paceKey("c.test")).Val(); ttl <= 0 {
		t.Errorf("a key without a request stays for ever: %v", ttl)
	}
	ended, _, _ := strings.Cut(admin.HGet(t.Context(), paceKey("a.test"), "e").Val(), " ")
	admin.HSet(t.Context(), paceKey("a.test"), "e", ended+" "+strconv.FormatInt(time.Now().Add(-time.Minute).Unix(), 10))
	one.Report(pace.Report{Key: "a.test", BackOff: old.BackOff})
	testkit.Eventually(t, "a new one counts", func() bool { return !fresh(two, "a.test").BackOff.Until.IsZero() })
}
