package storetest

import (
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/robots/testkit"
)

const (
	slack = 50 * time.Microsecond // between the clock of a store and that of the test
	tardy = 5 * time.Second       // the longest time for a reply or a report on a busy machine
	hour  = time.Hour
)

// strict returns a request for a slot under a gap and no other limit.
func strict(gap time.Duration) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           "a.test",
		Limiters:      []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1 / gap.Seconds(), Burst: 1, Gap: gap}}},
		MaxConcurrent: 1000, MaxWait: 24 * hour, Window: min(max(gap/64, time.Millisecond), 100*time.Millisecond),
	}
}

// loose returns a request for a slot under a rate with a burst.
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

// reserved reserves a slot and fails if there is none.
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

// refused asks for a slot and fails if it gets one.
func refused(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	slot := reserve(t, s, a)
	if !slot.At.IsZero() || slot.Lease != nil || !slot.Until.IsZero() {
		t.Fatalf("Reserve = %+v, want no slot", slot)
	}
	return slot
}

// about fails unless got is want, or later by the time that a busy machine may take.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want-slack || got > want+tardy {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// near is about for a value that may also be less, after a late reply.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -tardy || d > tardy {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// until repeats until ok returns true, because nothing waits for a report.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", testkit.Patience, what)
		}
	}
}

// Requests sends one request after the other by p, whose host delays none. It measures what a Store costs them.
func Requests(b *testing.B, p *pace.Pacer) {
	l := pace.Limits{Key: "a.test", PerSecond: 1e9, Burst: 1 << 30, MaxConcurrent: 1 << 20, MaxWait: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		s, err := p.Wait(b.Context(), "", l)
		if err == nil {
			err = s.Ready(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		s.Sent()
		s.Release()
	}
}
