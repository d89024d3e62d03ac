package storetest

import (
	"testing"
	"time"

	"robotsproxy/policy/pace"
)

func places(t *testing.T, all []pace.Store) {
	a := loose(1e6, 1000)
	a.MaxConcurrent = 2
	one, two := booked(t, all[0], a), booked(t, all[1], a)
	for _, s := range all {
		if turn := refused(t, s, a); !turn.Full {
			t.Errorf("Reserve = %+v, want it full", turn)
		}
	}
	all[0].Report(pace.Report{Key: a.Key, Lease: one.Lease})
	until(t, "the place given back", func() bool { return !reserve(t, all[2], a).At.IsZero() })
	refused(t, all[0], a)
	all[1].Report(pace.Report{Key: a.Key, Lease: two.Lease})
	all[1].Report(pace.Report{Key: a.Key, Lease: two.Lease}) // twice is once
	until(t, "the other", func() bool { return !reserve(t, all[0], a).At.IsZero() })
	refused(t, all[1], a)
}

func kept(t *testing.T, all []pace.Store) {
	a := loose(1e6, 1000)
	a.MaxConcurrent = 1
	first := booked(t, all[0], a)
	again := a
	again.Lease = first.Lease
	second := booked(t, all[0], again)
	if turn := refused(t, all[1], a); !turn.Full {
		t.Errorf("Reserve = %+v, want it full", turn)
	}
	all[0].Report(pace.Report{Key: a.Key, Lease: second.Lease})
	until(t, "the place given back", func() bool { return !reserve(t, all[1], a).At.IsZero() })
}

func unsent(t *testing.T, all []pace.Store) {
	first := booked(t, all[0], strict(hour))
	last := booked(t, all[1], strict(hour))
	hasty := strict(hour)
	hasty.MaxWait = 90 * time.Minute
	refused(t, all[2], hasty)
	all[1].Report(pace.Report{Key: hasty.Key, Lease: last.Lease, Unused: true})
	var turn pace.Reservation
	until(t, "the turn not used", func() bool { turn = reserve(t, all[2], hasty); return !turn.At.IsZero() })
	about(t, "the turn not used", turn.At.Sub(first.Until), hour)

	a := loose(1.0/3600, 2)
	a.Key = "b.test"
	booked(t, all[0], a)
	last = booked(t, all[1], a)
	a.MaxWait = time.Minute
	refused(t, all[2], a)
	all[1].Report(pace.Report{Key: a.Key, Lease: last.Lease, Unused: true})
	until(t, "the token not used", func() bool { return !reserve(t, all[2], a).At.IsZero() })
	refused(t, all[0], a)
}

func unsentBefore(t *testing.T, all []pace.Store) {
	a := strict(hour)
	booked(t, all[0], a)
	second := booked(t, all[1], a)
	third := booked(t, all[2], a)
	a.MaxConcurrent = 3
	refused(t, all[0], a)
	all[1].Report(pace.Report{Key: a.Key, Lease: second.Lease, Unused: true})
	var turn pace.Reservation
	until(t, "the place given back", func() bool { turn = reserve(t, all[0], a); return !turn.At.IsZero() })
	about(t, "the turn after all", turn.At.Sub(third.Until), hour)
}

func givenUp(t *testing.T, all []pace.Store) {
	a := strict(hour)
	a.MaxConcurrent = 1
	first := booked(t, all[0], a)
	again := a
	again.Lease, again.Unused, again.MaxWait = first.Lease, true, time.Minute
	second := booked(t, all[0], again)
	about(t, "its next turn", second.At.Sub(first.At), 0)
	again.Lease, again.Unused = second.Lease, false
	near(t, "the one after what was sent", refused(t, all[0], again).Wait, hour)
	if turn := refused(t, all[1], a); !turn.Full {
		t.Errorf("Reserve = %+v, want it full", turn)
	}
}

func pauses(t *testing.T, all []pace.Store) {
	if turn := booked(t, all[0], loose(1000, 10)); turn.BackOff != (pace.BackOff{}) {
		t.Errorf("BackOff = %+v before there was one", turn.BackOff)
	}
	b := pace.BackOff{Until: time.Now().Add(hour), Length: time.Minute}
	all[0].Report(pace.Report{Key: "a.test", BackOff: b})
	hasty := loose(1000, 10)
	hasty.MaxWait = time.Second
	var turn pace.Reservation
	until(t, "the pause", func() bool { turn = reserve(t, all[1], hasty); return turn.At.IsZero() })
	same(t, turn.BackOff, b)
	near(t, "Wait", turn.Wait, hour)
	turn = booked(t, all[2], loose(1000, 10))
	about(t, "a turn after the pause", turn.At.Sub(b.Until), -slack)
	same(t, turn.BackOff, b)

	asks := loose(1000, 10)
	asks.Key, asks.BackOff = "b.test", b
	about(t, "one's own pause", booked(t, all[0], asks).At.Sub(b.Until), -slack)
	asks.BackOff = pace.BackOff{}
	same(t, booked(t, all[1], asks).BackOff, b)
}

// same fails unless two pauses are one, as far as clocks tell.
func same(t *testing.T, got, want pace.BackOff) {
	t.Helper()
	if d := got.Until.Sub(want.Until); d < -time.Second || d > time.Second || (got.Length-want.Length).Abs() > time.Millisecond {
		t.Errorf("BackOff = %+v, want %+v", got, want)
	}
}

// pauseApart: a pause of one of several hosts that share a key holds up nothing else of
// the key, and takes no turn of it.
func pauseApart(t *testing.T, all []pace.Store) {
	b := pace.BackOff{Until: time.Now().Add(hour), Length: time.Minute}
	all[0].Report(pace.Report{Key: "busy.test", BackOff: b})
	busy := strict(time.Minute)
	busy.BackOffKey = "busy.test"
	fine := strict(time.Minute)
	fine.BackOffKey = "fine.test"
	var turn pace.Reservation
	until(t, "the pause", func() bool { turn = reserve(t, all[1], busy); return turn.At.IsZero() })
	same(t, turn.BackOff, b)
	near(t, "Wait", turn.Wait, hour)
	if turn.Full {
		t.Error("it was for want of a place")
	}
	began := time.Now()
	first := booked(t, all[2], fine)
	if first.BackOff != (pace.BackOff{}) {
		t.Errorf("the other host's BackOff = %+v", first.BackOff)
	}
	if d := first.At.Sub(began); d > 2*time.Minute+tardy { // where the pause came late, a turn or two were given
		t.Errorf("the other host's turn is in %v", d)
	}
	told := strict(time.Minute)
	told.BackOffKey, told.BackOff = "told.test", b
	refused(t, all[0], told)
	told.BackOff = pace.BackOff{}
	same(t, refused(t, all[1], told).BackOff, b)
	about(t, "the next turn", booked(t, all[1], fine).At.Sub(first.Until), time.Minute)
}

func twoPauses(t *testing.T, all []pace.Store) {
	now := time.Now()
	a := loose(1000, 10)
	for i, b := range []pace.BackOff{
		{Until: now.Add(time.Minute), Length: time.Minute},
		{Until: now.Add(hour), Length: time.Second},
		{Until: now.Add(time.Second)},
		{},
	} {
		a.BackOff = b
		booked(t, all[i%3], a)
	}
	same(t, booked(t, all[2], a).BackOff, pace.BackOff{Until: now.Add(hour), Length: time.Minute})
	a.Key, a.BackOff = "b.test", pace.BackOff{Until: now.Add(-time.Minute), Length: time.Minute}
	about(t, "a turn after a pause that is over", booked(t, all[0], a).At.Sub(now), 0)
	a.BackOff = pace.BackOff{}
	same(t, booked(t, all[1], a).BackOff, pace.BackOff{Until: now.Add(-time.Minute), Length: time.Minute})
}
