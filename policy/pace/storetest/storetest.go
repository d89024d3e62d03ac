// Package storetest tells whether a store of policy/pace keeps to what pace.Store says,
// and whether Pacers do that share one. It is for tests alone.
package storetest

import (
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

const (
	slack = 50 * time.Microsecond // between the clock of a store and ours, in one test
	tardy = 5 * time.Second       // the most that an answer or a report takes on a busy machine
	hour  = time.Hour
)

// Store tests stores that share what they keep. open gives so many of them, none of
// which is alone, for a key space that is empty; it ends them with the test.
func Store(t *testing.T, open func(t *testing.T, n int) []pace.Store) {
	for name, test := range map[string]func(*testing.T, []pace.Store){
		"nobody is alone":                           standing,
		"a gap between the end and the next":        gaps,
		"a burst, and then by the rate":             bursts,
		"a new gap counts from the last turn":       newGap,
		"new terms hand out nothing":                newTerms,
		"too late a turn is not booked":             tooLate,
		"what was sent counts":                      sent,
		"what was sent before all empties a bucket": sentBefore,
		"places are for all":                        places,
		"a place is kept for the next turn":         kept,
		"a turn not used is anybody's":              unsent,
		"but where there is a later one":            unsentBefore,
		"a turn given up for the next":              givenUp,
		"pauses are for all":                        pauses,
		"of two pauses the later and the longer":    twoPauses,
		"a pause apart from the key":                pauseApart,
		"two clocks":                                twoClocks,
		"no clock waits for a client's own":         ownClock,
		"keys and clocks are apart":                 apart,
		"many at once":                              together,
		"a caller that has left":                    left,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, 3)) })
	}
}

// strict is an ask under a gap, in which nothing else is in the way.
func strict(gap time.Duration) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           "a.test",
		Limiters:      []pace.Limiter{{PerSecond: 1 / gap.Seconds(), Burst: 1, Gap: gap}},
		MaxConcurrent: 1000, MaxWait: 24 * hour, Window: min(max(gap/64, time.Millisecond), 100*time.Millisecond),
	}
}

// loose is one under a rate with a burst.
func loose(perSecond float64, burst int) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           "a.test",
		Limiters:      []pace.Limiter{{PerSecond: perSecond, Burst: burst}},
		MaxConcurrent: 1000, MaxWait: 24 * hour,
	}
}

func reserve(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	turn, err := s.Reserve(t.Context(), a)
	if err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	return turn
}

// booked is reserve where a turn is to be had.
func booked(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	turn := reserve(t, s, a)
	if turn.At.IsZero() || turn.Lease == nil {
		t.Fatalf("Reserve = %+v, want a turn", turn)
	}
	if turn.Until.IsZero() != (a.Window == 0) || a.Window > 0 && turn.Until.Before(turn.At) {
		t.Fatalf("Reserve = %+v for a width of %v", turn, a.Window)
	}
	return turn
}

// refused is reserve where none is.
func refused(t *testing.T, s pace.Store, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	turn := reserve(t, s, a)
	if !turn.At.IsZero() || turn.Lease != nil || !turn.Until.IsZero() {
		t.Fatalf("Reserve = %+v, want no turn", turn)
	}
	return turn
}

// about fails unless got is want, or as much later as a busy machine makes it.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want-slack || got > want+tardy {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// near is about where an answer that took long makes it less.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -tardy || d > tardy {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// until asks again and again until ok: a report waits for nobody.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", testkit.Patience, what)
		}
	}
}
