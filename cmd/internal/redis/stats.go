package redis

import (
	"math"
	"sync/atomic"
	"time"
)

// roundTripBounds are the upper bounds of [Stats.RoundTrips].
var roundTripBounds = [...]time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	50 * time.Millisecond, 200 * time.Millisecond, time.Second,
}

// counts are the counters of a Fleet. They may be shared.
type counts struct {
	reserved, late, full, dropped atomic.Uint64

	usually usual
	trips   [len(roundTripBounds) + 1]atomic.Uint64

	// Nanoseconds.
	took atomic.Int64
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

// Stats are the state of a [Fleet] and its counts since Open.
type Stats struct {
	// This replica paces by itself.
	Alone bool

	// As before, but the server answers.
	Returning bool

	// Why the replica is alone, or was the last time.
	Cause Cause

	// When Alone last changed.
	Since time.Time

	// How many times slower than permitted the replica paces.
	Times float64

	// Replicas last seen, including this one.
	Replicas int

	// Shares of replicas that have shut down.
	Left int

	// Concurrency slots that this replica holds.
	Held int

	// Slots reserved.
	Reserved uint64

	// Requests for a slot that would have come too late.
	Late uint64

	// Requests for a slot beyond the concurrency limit.
	Full uint64

	// Reports that were lost.
	Dropped uint64

	// Times that this replica became alone.
	Outages uint64

	// Calls that failed, by the name of each Cause that one may have.
	Failures map[string]uint64

	// Duration of reservations.
	RoundTrips []Trips

	// Total duration of all of them.
	RoundTripTime time.Duration
}

// Trips is the number of round trips that took at most Within, including the shorter
// ones.
type Trips struct {
	// Zero: no limit.
	Within time.Duration
	Count  uint64
}

// usual estimates the usual time of a round trip with its variation, as TCP does (RFC
// 6298).
type usual struct {
	// Nanoseconds; a lost update does no harm.
	mean, spread atomic.Int64
}

func (u *usual) add(d time.Duration) {
	took := float64(d)
	mean, spread := float64(u.mean.Load()), float64(u.spread.Load())
	if mean == 0 {
		mean, spread = took, took/2
	}
	spread += (math.Abs(took-mean) - spread) / 4
	mean += (took - mean) / 8
	u.mean.Store(int64(mean))
	u.spread.Store(int64(spread))
}

func (u *usual) most() time.Duration {
	return min(time.Duration(u.mean.Load()+4*u.spread.Load()), callTime)
}
