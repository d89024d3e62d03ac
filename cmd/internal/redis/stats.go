package redis

import (
	"sync/atomic"
	"time"
)

// roundTripBounds are the upper bounds of [Stats.RoundTrips].
var roundTripBounds = [...]time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	50 * time.Millisecond, 200 * time.Millisecond, time.Second,
}

// counts are what a Fleet has counted. They may be shared.
type counts struct {
	reserved, late, full, dropped, outages atomic.Uint64

	failures [causeCount]atomic.Uint64

	usually usual
	trips   [len(roundTripBounds) + 1]atomic.Uint64
	took    atomic.Int64 // nanoseconds
}

func (c *counts) refused(full bool) {
	if full {
		c.full.Add(1)
	} else {
		c.late.Add(1)
	}
}

func (c *counts) usual() time.Duration { return c.usually.most() }

func (c *counts) roundTrip(d time.Duration) {
	c.usually.add(d)
	c.took.Add(int64(d))
	i := 0
	for i < len(roundTripBounds) && d > roundTripBounds[i] {
		i++
	}
	c.trips[i].Add(1)
}

// Stats are how a [Fleet] is at one moment, and what it has counted since Open.
type Stats struct {
	Alone     bool      // this replica paces by itself
	Returning bool      // it still does, but the server answers
	Cause     Cause     // why the replica is alone, or was the last time
	Since     time.Time // when Alone last changed
	Times     float64   // how many times slower than permitted the replica paces

	Replicas int // that were last seen, this one among them
	Left     int // shares of replicas that have ended in order
	Held     int // concurrency slots that this replica holds

	Reserved uint64            // slots
	Late     uint64            // requests for a slot that would have come too late
	Full     uint64            // requests for a slot beyond the concurrency limit
	Dropped  uint64            // reports that were lost
	Outages  uint64            // times that this replica became alone
	Failures map[string]uint64 // calls that failed, by the name of each Cause that one may have

	RoundTrips    []Trips       // of reservations
	RoundTripTime time.Duration // of all of them together
}

// Trips are how many round trips took at most so long, the shorter ones among them.
type Trips struct {
	Within time.Duration // zero: any
	Count  uint64
}

// Stats gives them.
func (f *Fleet) Stats() Stats {
	v := f.view.Load()
	s := Stats{
		Alone: v.Alone, Returning: !v.returnsSince.IsZero(), Cause: v.cause, Since: v.since, Times: v.Slowdown,
		Replicas: v.replicas, Left: v.freeShares, Held: f.held.count(),
		Reserved: f.counts.reserved.Load(), Late: f.counts.late.Load(), Full: f.counts.full.Load(),
		Dropped: f.counts.dropped.Load(), Outages: f.counts.outages.Load(),
		Failures:      make(map[string]uint64),
		RoundTripTime: time.Duration(f.counts.took.Load()),
	}
	for c := Ended + 1; c < causeCount; c++ { // those before are no call's
		s.Failures[c.Name()] = f.counts.failures[c].Load()
	}
	var sum uint64
	for i := range f.counts.trips {
		sum += f.counts.trips[i].Load()
		trips := Trips{Count: sum}
		if i < len(roundTripBounds) {
			trips.Within = roundTripBounds[i]
		}
		s.RoundTrips = append(s.RoundTrips, trips)
	}
	return s
}
