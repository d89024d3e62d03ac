package storetest

import (
	"testing"
	"time"

	"robotsproxy/policy/pace"
)

func concurrencyLimit(t *testing.T, all []pace.Store) {
	a := loose(1e6, 1000)
	a.MaxConcurrent = 2
	one, two := reserved(t, all[0], a), reserved(t, all[1], a)
	for _, s := range all {
		if slot := refused(t, s, a); !slot.Full {
			t.Errorf("Reserve = %+v, want it full", slot)
		}
	}
	all[0].Report(pace.Report{Key: a.Key, Lease: one.Lease})
	until(t, "the lease given back", func() bool { return !reserve(t, all[2], a).At.IsZero() })
	refused(t, all[0], a)
	all[1].Report(pace.Report{Key: a.Key, Lease: two.Lease})
	// Returning it twice counts once.
	all[1].Report(pace.Report{Key: a.Key, Lease: two.Lease})
	until(t, "the other", func() bool { return !reserve(t, all[0], a).At.IsZero() })
	refused(t, all[1], a)
}

func keptLease(t *testing.T, all []pace.Store) {
	a := loose(1e6, 1000)
	a.MaxConcurrent = 1
	first := reserved(t, all[0], a)
	again := a
	again.Lease = first.Lease
	second := reserved(t, all[0], again)
	if slot := refused(t, all[1], a); !slot.Full {
		t.Errorf("Reserve = %+v, want it full", slot)
	}
	all[0].Report(pace.Report{Key: a.Key, Lease: second.Lease})
	until(t, "the lease given back", func() bool { return !reserve(t, all[1], a).At.IsZero() })
}

func unusedSlot(t *testing.T, all []pace.Store) {
	first := reserved(t, all[0], strict(hour))
	last := reserved(t, all[1], strict(hour))
	hasty := strict(hour)
	hasty.MaxWait = 90 * time.Minute
	refused(t, all[2], hasty)
	all[1].Report(pace.Report{Key: hasty.Key, Lease: last.Lease, Unused: true})
	var slot pace.Reservation
	until(t, "the unused slot", func() bool { slot = reserve(t, all[2], hasty); return !slot.At.IsZero() })
	about(t, "the unused slot", slot.At.Sub(first.Until), hour)

	a := loose(1.0/3600, 2)
	a.Key = "b.test"
	reserved(t, all[0], a)
	last = reserved(t, all[1], a)
	a.MaxWait = time.Minute
	refused(t, all[2], a)
	all[1].Report(pace.Report{Key: a.Key, Lease: last.Lease, Unused: true})
	until(t, "the unused token", func() bool { return !reserve(t, all[2], a).At.IsZero() })
	refused(t, all[0], a)
}

func unusedSlotBefore(t *testing.T, all []pace.Store) {
	a := strict(hour)
	reserved(t, all[0], a)
	second := reserved(t, all[1], a)
	third := reserved(t, all[2], a)
	a.MaxConcurrent = 3
	refused(t, all[0], a)
	all[1].Report(pace.Report{Key: a.Key, Lease: second.Lease, Unused: true})
	var slot pace.Reservation
	until(t, "the lease given back", func() bool { slot = reserve(t, all[0], a); return !slot.At.IsZero() })
	about(t, "the slot after all", slot.At.Sub(third.Until), hour)
}

func givenUp(t *testing.T, all []pace.Store) {
	a := strict(hour)
	a.MaxConcurrent = 1
	first := reserved(t, all[0], a)
	again := a
	again.Lease, again.Unused, again.MaxWait = first.Lease, true, time.Minute
	second := reserved(t, all[0], again)
	about(t, "its next slot", second.At.Sub(first.At), 0)
	again.Lease, again.Unused = second.Lease, false
	near(t, "the one after what was sent", refused(t, all[0], again).Wait, hour)
	if slot := refused(t, all[1], a); !slot.Full {
		t.Errorf("Reserve = %+v, want it full", slot)
	}
}

func sharedSlot(t *testing.T, all []pace.Store) {
	fetch := reserved(t, all[0], strict(hour))
	page := strict(hour)
	page.Follows = fetch.Lease
	first := reserved(t, all[0], page)
	about(t, "the page after the fetch", first.At.Sub(fetch.At), 0)
	again := page
	again.Lease, again.Unused = first.Lease, true
	second := reserved(t, all[0], again)
	about(t, "the page that has missed its slot", second.At.Sub(fetch.At), 0)
	third := reserved(t, all[1], strict(hour))
	about(t, "the slot after the page", third.At.Sub(second.Until), hour)
	late := reserved(t, all[0], page)
	about(t, "a page after another process's slot", late.At.Sub(third.Until), hour)
	again.Lease = late.Lease
	about(t, "that page when it has missed its slot", reserved(t, all[0], again).At.Sub(third.Until), hour)
}

func sharedSlotGivenUp(t *testing.T, all []pace.Store) {
	fetch := reserved(t, all[0], strict(hour))
	page := strict(hour)
	page.Follows = fetch.Lease
	given := reserved(t, all[0], page)
	page.Follows, page.MaxConcurrent = nil, 2
	all[0].Report(pace.Report{Key: page.Key, Lease: given.Lease, Unused: true})
	var slot pace.Reservation
	until(t, "the lease given back", func() bool { slot = reserve(t, all[1], page); return !slot.At.IsZero() })
	about(t, "the slot after the fetch", slot.At.Sub(fetch.Until), hour)
}

func backOffs(t *testing.T, all []pace.Store) {
	if slot := reserved(t, all[0], loose(1000, 10)); slot.BackOff != (pace.BackOff{}) {
		t.Errorf("BackOff = %+v before there was one", slot.BackOff)
	}
	b := pace.BackOff{Until: time.Now().Add(hour), Length: time.Minute}
	all[0].Report(pace.Report{Key: "a.test", BackOff: b})
	hasty := loose(1000, 10)
	hasty.MaxWait = time.Second
	var slot pace.Reservation
	until(t, "the back-off", func() bool { slot = reserve(t, all[1], hasty); return slot.At.IsZero() })
	same(t, slot.BackOff, b)
	near(t, "Wait", slot.Wait, hour)
	slot = reserved(t, all[2], loose(1000, 10))
	about(t, "a slot after the back-off", slot.At.Sub(b.Until), -slack)
	same(t, slot.BackOff, b)

	asks := loose(1000, 10)
	asks.Key, asks.BackOff = "b.test", b
	about(t, "the process's own back-off", reserved(t, all[0], asks).At.Sub(b.Until), -slack)
	asks.BackOff = pace.BackOff{}
	same(t, reserved(t, all[1], asks).BackOff, b)
}

// same fails unless two back-offs are equal within the accuracy of the clocks.
func same(t *testing.T, got, want pace.BackOff) {
	t.Helper()
	if d := got.Until.Sub(want.Until); d < -time.Second || d > time.Second || (got.Length-want.Length).Abs() > time.Millisecond {
		t.Errorf("BackOff = %+v, want %+v", got, want)
	}
}

// separateBackOff tests that a back-off of one of several hosts with a common key delays
// no other request of the key and takes no slot of it.
func separateBackOff(t *testing.T, all []pace.Store) {
	b := pace.BackOff{Until: time.Now().Add(hour), Length: time.Minute}
	all[0].Report(pace.Report{Key: "busy.test", BackOff: b})
	busy := strict(time.Minute)
	busy.BackOffKey = "busy.test"
	fine := strict(time.Minute)
	fine.BackOffKey = "fine.test"
	var slot pace.Reservation
	until(t, "the back-off", func() bool { slot = reserve(t, all[1], busy); return slot.At.IsZero() })
	same(t, slot.BackOff, b)
	near(t, "Wait", slot.Wait, hour)
	if slot.Full {
		t.Error("it was refused by the concurrency limit")
	}
	began := time.Now()
	first := reserved(t, all[2], fine)
	if first.BackOff != (pace.BackOff{}) {
		t.Errorf("the other host's BackOff = %+v", first.BackOff)
	}
	// If the back-off was reported late, one or two slots were reserved before.
	if d := first.At.Sub(began); d > 2*time.Minute+tardy {
		t.Errorf("the other host's slot is in %v", d)
	}
	told := strict(time.Minute)
	told.BackOffKey, told.BackOff = "told.test", b
	refused(t, all[0], told)
	told.BackOff = pace.BackOff{}
	same(t, refused(t, all[1], told).BackOff, b)
	about(t, "the next slot", reserved(t, all[1], fine).At.Sub(first.Until), time.Minute)
}

func twoBackOffs(t *testing.T, all []pace.Store) {
	now := time.Now()
	a := loose(1000, 10)
	for i, b := range []pace.BackOff{
		{Until: now.Add(time.Minute), Length: time.Minute},
		{Until: now.Add(hour), Length: time.Second},
		{Until: now.Add(time.Second)},
		{},
	} {
		a.BackOff = b
		reserved(t, all[i%3], a)
	}
	same(t, reserved(t, all[2], a).BackOff, pace.BackOff{Until: now.Add(hour), Length: time.Minute})
	a.Key, a.BackOff = "b.test", pace.BackOff{Until: now.Add(-time.Minute), Length: time.Minute}
	about(t, "a slot after a back-off that has ended", reserved(t, all[0], a).At.Sub(now), 0)
	a.BackOff = pace.BackOff{}
	same(t, reserved(t, all[1], a).BackOff, pace.BackOff{Until: now.Add(-time.Minute), Length: time.Minute})
}
