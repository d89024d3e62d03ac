package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
)

func notAlone(t *testing.T, all []pace.Store) {
	for _, s := range all {
		if st := s.Standing(); st.StoreAway || st.Slowdown > 1 {
			t.Errorf("Standing = %+v", st)
		}
	}
}

func gaps(t *testing.T, all []pace.Store) {
	const gap = 20 * time.Millisecond
	var last pace.Reservation
	for i := range 60 {
		slot := reserved(t, all[i%len(all)], strict(gap))
		if d := slot.At.Sub(last.Until); i > 0 && d < gap-slack {
			t.Errorf("slot %d begins %v after the end of the one before, want %v", i, d, gap)
		}
		// A store that replies late makes slots longer.
		if d := min(slot.At.Sub(last.Until), time.Until(slot.At)); d > gap+tardy {
			t.Errorf("slot %d begins %v after the end of the one before, want %v", i, d, gap)
		}
		last = slot
	}
}

func bursts(t *testing.T, all []pace.Store) {
	const perSecond, burst = 2, 5
	began := time.Now()
	var at []time.Time
	var took []time.Duration
	for i := range 20 {
		asked := time.Now()
		at = append(at, reserved(t, all[i%len(all)], loose(perSecond, burst)).At)
		took = append(took, time.Since(asked))
	}
	about(t, "the last of the burst", at[burst-1].Sub(began), 0)
	near(t, "the last of all", at[19].Sub(began), (20-burst)*time.Second/perSecond)
	for i := range at {
		for j := i + burst; j < len(at); j++ {
			// The store may have meant a slot to begin earlier by the time that its answer took.
			if d, least := at[j].Sub(at[i])+took[i], time.Duration(j-i+1-burst)*time.Second/perSecond; d < least-slack {
				t.Errorf("%d slots in %v", j-i+1, d)
			}
		}
	}
}

func newGap(t *testing.T, all []pace.Store) {
	first := reserved(t, all[0], strict(hour))
	long := reserved(t, all[1], strict(2*hour))
	about(t, "a longer gap", long.At.Sub(first.Until), 2*hour)
	short := reserved(t, all[2], strict(time.Minute))
	about(t, "a shorter gap", short.At.Sub(long.Until), time.Minute)
}

func newLimit(t *testing.T, all []pace.Store) {
	began := time.Now()
	for range 10 {
		reserved(t, all[0], loose(1.0/3600, 10))
	}
	near(t, "the first of a larger burst", reserved(t, all[1], loose(1.0/60, 1000)).At.Sub(began), time.Minute)
	near(t, "the first of a smaller burst", reserved(t, all[2], loose(1.0/60, 1)).At.Sub(began), 2*time.Minute)
	a := loose(1.0/3600, 10)
	a.Key = "b.test"
	reserved(t, all[0], a)
	// The bucket had nine tokens left, of which the new burst keeps two.
	a.Limiters[0].Burst = 2
	reserved(t, all[1], a)
	reserved(t, all[1], a)
	near(t, "beyond a smaller burst", reserved(t, all[2], a).At.Sub(began), hour)
}

func tooLate(t *testing.T, all []pace.Store) {
	first := reserved(t, all[0], strict(hour))
	hasty := strict(hour)
	hasty.MaxWait = hour / 2
	for i := range 9 {
		slot := refused(t, all[i%3], hasty)
		if slot.Full {
			t.Error("refused by the concurrency limit")
		}
		near(t, "Wait", slot.Wait, hour)
	}
	about(t, "the next slot", reserved(t, all[1], strict(hour)).At.Sub(first.Until), hour)
	at := time.Now()
	fresh := strict(hour)
	fresh.Key, fresh.MaxWait = "b.test", 0
	about(t, "a slot at once", reserved(t, all[0], fresh).At.Sub(at), 0)
}

func sentElsewhere(t *testing.T, all []pace.Store) {
	reserved(t, all[0], strict(time.Minute))
	a := strict(hour)
	a.Limiters[0].Sent = time.Now()
	about(t, "the gap after what was sent", reserved(t, all[1], a).At.Sub(a.Limiters[0].Sent), hour)
	a.Key = "b.test"
	a.MaxWait = time.Second
	refused(t, all[2], a)
	a.Limiters[0].Sent = time.Now().Add(-2 * hour)
	a.Key = "c.test"
	reserved(t, all[2], a)
}

func sentElsewhereBefore(t *testing.T, all []pace.Store) {
	a := loose(1.0/60, 10)
	a.Limiters[0].Sent = time.Now().Add(-30 * time.Second)
	near(t, "the first slot", time.Until(reserved(t, all[0], a).At), 30*time.Second)
}

// client returns a with an additional limiter of a client's own.
func client(a pace.SlotRequest, name string, gap time.Duration) pace.SlotRequest {
	own := pace.Limiter{Name: name, Limit: limiter.Limit{PerSecond: 1 / gap.Seconds(), Burst: 1, Gap: gap}}
	a.Limiters = append(slices.Clone(a.Limiters), own)
	a.Window = time.Millisecond
	return a
}

func twoLimiters(t *testing.T, all []pace.Store) {
	first := reserved(t, all[0], client(strict(hour), "c", time.Minute))
	about(t, "the slower is the host's", reserved(t, all[1], client(strict(hour), "c", time.Minute)).At.Sub(first.Until), hour)
	a := loose(1000, 100)
	a.Key = "b.test"
	reserved(t, all[0], client(a, "c", hour))
	hasty := client(a, "c", hour)
	hasty.MaxWait = time.Minute
	near(t, "the slower is the client's", refused(t, all[1], hasty).Wait, hour)
	reserved(t, all[2], client(a, "d", hour))
	reserved(t, all[2], a)
}

func ownLimiter(t *testing.T, all []pace.Store) {
	a := strict(10 * time.Minute)
	reserved(t, all[0], client(a, "c", hour))
	slot := refused(t, all[1], client(a, "c", hour))
	near(t, "how much later its limiter is", slot.Wait, 50*time.Minute)
	if slot.Full {
		t.Error("refused by the concurrency limit")
	}
	near(t, "another's slot", time.Until(reserved(t, all[2], client(a, "d", hour)).At), 10*time.Minute)
}

func separate(t *testing.T, all []pace.Store) {
	for _, key := range []string{"a", "b", "", "a b", "a\nb", "A", "{a}", "a:b", ":", "a\x00", "\xff", "ä", strings.Repeat("a", 500)} {
		for _, name := range []string{"", "a", "assets", "client:x", "client:\r\n", "\xff", strings.Repeat("c", 300)} {
			a := strict(hour)
			a.Key, a.Limiters[0].Name, a.MaxWait = key, name, time.Minute
			reserved(t, all[0], a)
			refused(t, all[1], a)
		}
	}
}

func concurrent(t *testing.T, all []pace.Store) {
	const gap, n = 10 * time.Millisecond, 60
	a := strict(gap)
	var mu sync.Mutex
	var slots []pace.Reservation
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			slot, err := all[i%len(all)].Reserve(t.Context(), a)
			if err != nil || slot.At.IsZero() {
				t.Errorf("Reserve = %+v, %v", slot, err)
			}
			mu.Lock()
			defer mu.Unlock()
			slots = append(slots, slot)
		})
	}
	wg.Wait()
	slices.SortFunc(slots, func(a, b pace.Reservation) int { return a.At.Compare(b.At) })
	for i := 1; i < len(slots); i++ {
		if d := slots[i].At.Sub(slots[i-1].Until); d < gap-slack {
			t.Fatalf("slot %d begins %v after the end of the one before, want %v", i, d, gap)
		}
	}
}

func callerLeft(t *testing.T, all []pace.Store) {
	ctx, leave := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	leave(gone)
	if slot, err := all[0].Reserve(ctx, strict(hour)); err == nil || !slot.At.IsZero() {
		t.Errorf("Reserve = %+v, %v for a caller that has left", slot, err)
	}
	if all[0].Standing().StoreAway {
		t.Error("alone, since a caller has left")
	}
	slot := reserved(t, all[1], strict(hour))
	near(t, "the first slot", time.Until(slot.At), 0)
}
