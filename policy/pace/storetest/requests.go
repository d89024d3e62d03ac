package storetest

import (
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/robots/testkit"
)

const (
	slack = 50 * time.Microsecond // between the clock of a store and the test's
	tardy = 5 * time.Second       // the longest that an answer or a report takes on a busy machine
	hour  = time.Hour
)

// strict returns a request for a slot under a gap, which nothing else holds up.
func strict(gap time.Duration) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           "a.test",
		Limiters:      []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1 / gap.Seconds(), Burst: 1, Gap: gap}}},
		MaxConcurrent: 1000, MaxWait: 24 * hour, Window: min(max(gap/64, time.Millisecond), 100*time.Millisecond),
	}
}

// loose is strict for a rate with a burst.
func loose(perSecond float64, burst int) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           "a.test",
		Limiters:      []pace.Limiter{{Limit: limiter.Limit{PerSecond: perSecond, Burst: burst}}},
		MaxConcurrent: 1000, MaxWait: 24 * hour,
	}
}

func reserve(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	slot, err := s.Reserve(t.Context(), a)
	if err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	return slot
}

// reserved is reserve where a slot is expected.
func reserved(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	slot := reserve(t, s, a)
	if slot.At.IsZero() || slot.Lease == nil {
		t.Fatalf("Reserve = %+v, want a slot", slot)
	}
	if slot.Until.IsZero() != (a.Window == 0) || a.Window > 0 && slot.Until.Before(slot.At) {
		t.Fatalf("Reserve = %+v for a window of %v", slot, a.Window)
	}
	return slot
}

// refused is reserve where no slot is expected.
func refused(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	slot := reserve(t, s, a)
	if !slot.At.IsZero() || slot.Lease != nil || !slot.Until.IsZero() {
		t.Fatalf("Reserve = %+v, want no slot", slot)
	}
	return slot
}

// about fails unless got is want, or later by what a busy machine takes.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want-slack || got > want+tardy {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// near is about for what may also be less, after an answer that took long.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -tardy || d > tardy {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// until asks again and again until ok: nothing waits for a report.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", testkit.Patience, what)
		}
	}
}
