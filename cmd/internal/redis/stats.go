package redis

import (
	"math"
	"slices"
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

	// took is the duration of all round trips in nanoseconds.
	took atomic.Int64
}

func (c *counts) roundTrip(d time.Duration) {
	c.usually.add(d)
	c.took.Add(int64(d))
	i, _ := slices.BinarySearch(roundTripBounds[:], d)
	c.trips[i].Add(1)
}

// Stats are the state of a [Fleet] and its counts since Open.
type Stats struct {
	// StoreAway means that this replica paces by itself.
	StoreAway bool

	// Returning means that the replica is alone, but that the server answers again.
	Returning bool

	// Cause is why the replica is alone, or was the last time.
	Cause Cause

	// Since is when StoreAway last changed.
	Since time.Time

	// Times is how many times slower than permitted the replica paces.
	Times float64

	// Replicas is the number of replicas last seen, including this one.
	Replicas int

	// Expected is Options.Replicas.
	Expected int

	// Members are replicas that share the store, as they told last, at most 64; none before this one has joined.
	Members []Member

	// Guard is the time by which the clocks of the replicas may differ, see pace.Turns.Guard.
	Guard time.Duration

	// Left is the number of shares of replicas that have shut down.
	Left int

	// Held is the number of concurrency slots that this replica holds.
	Held int

	// Reserved is the number of slots reserved.
	Reserved uint64

	// Late is the number of requests for a slot that would have come too late.
	Late uint64

	// Full is the number of requests for a slot beyond the concurrency limit.
	Full uint64

	// Dropped is the number of reports that were lost.
	Dropped uint64

	// Outages is the number of times that this replica became alone.
	Outages uint64

	// Failures are the calls that failed, by the name of each Cause that a call may have.
	Failures map[string]uint64

	// RoundTrips counts the reservations by their duration.
	RoundTrips []Trips

	// RoundTripTime is the duration of all reservations together.
	RoundTripTime time.Duration
}

// Trips is the number of round trips that took at most Within, including the shorter
// ones.
type Trips struct {
	// Within is zero if there is no limit.
	Within time.Duration
	Count  uint64
}

// usual estimates the usual time of a round trip with its variation, as TCP does (RFC
// 6298).
type usual struct {
	// mean and spread are in nanoseconds. A lost update does no harm.
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
