package redis

import (
	"context"
	"log/slog"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/robots/cache"
)

// Options are the parameters of a [Fleet].
type Options struct {
	// URL is the URL of the server, redis://, rediss:// or unix://, or with ?master_name=… that of its Sentinels; required.
	URL string

	// Replicas is the maximum number of replicas that share the server; required, at most 10,000.
	Replicas int

	// Name is the name of this replica, store.replica.
	Name string

	// Log gets one line for each change of state; required.
	Log *slog.Logger
}

// Hooks are the functions of the process that [Fleet.Run] calls.
type Hooks struct {
	// Clocks returns recent requests, see pace.Pacer.Clocks; required.
	Clocks func(now, since time.Time) []pace.Clock

	// Recheck is called when the Standing has changed, see pace.Pacer.Recheck; required.
	Recheck func()

	// Stops are shared with the other replicas; nil: none are.
	Stops *stops.Table

	// Self returns what this replica tells the others of itself; nil: nothing.
	Self func() Member

	// Tell is called once a second, at the end, and while this replica returns from an outage, to tell [Fleet.Take] what it does not
	// know yet; nil: there is nothing to tell.
	Tell func(ctx context.Context)

	// BackOff is called when another replica has begun a back-off, or any has ended one, see pace.Pacer.MergeBackOff; required.
	BackOff func(key string, b pace.BackOff)
}

// A Fleet is one replica's connection to the state that all replicas share. It implements
// [pace.Store] and [policy.QuotaStore].
type Fleet struct {
	connection
	robots sharedFiles
	tdmrep sharedFiles

	// files are the counters of robots and tdmrep.
	files   robotsCounts
	reports reportQueue
	held    leases
	counts  counts

	// Only maintain uses these: enrolled is when this replica last told of itself, refused means that the store would not have
	// it, and clock is the last good measurement.
	enrolled time.Time
	refused  bool
	clock    clockSample
}

// RobotsStats returns the counters of the shared robots.txt and tdmrep.json files.
func (f *Fleet) RobotsStats() RobotsStats {
	c := &f.files
	return RobotsStats{
		Loads: c.loads.Load(), Saves: c.saves.Load(), Claims: c.fetchLeases.Load(), Waits: c.waits.Load(),
		Purges: c.purges.Load(), Heard: c.heard.Load(), Lost: c.lost.Load(), Failures: c.failures.Load(),
	}
}

// Robots returns the store of robots.txt files that all replicas share, a [cache.SharedStore].
// local, which may be nil, is used if the server has no entry or is unavailable. Everything that
// this replica fetches or loads is also saved in local. The others do not get a file that a replica
// fetches while the server is unavailable until the file is fetched again.
//
// [Fleet.Run] sends saves and purges. Purges wait for the server. Everything else is lost while it
// is unavailable.
func (f *Fleet) Robots(local cache.Store) cache.Store { return f.robots.store(local) }

// TDMRep is Robots for tdmrep.json files.
func (f *Fleet) TDMRep(local cache.Store) cache.Store { return f.tdmrep.store(local) }

// Stats returns the current state.
func (f *Fleet) Stats() Stats {
	v := f.view.Load()
	held, _ := f.held.list()
	s := Stats{
		StoreAway: v.StoreAway, Returning: !v.returnsSince.IsZero(), Cause: v.cause, Since: v.since, Times: v.Slowdown,
		Replicas: v.replicas, Expected: f.replicas, Members: v.members, Guard: max(v.guard, minGuard), Left: v.freeShares, Held: len(held),
		Reserved: f.counts.reserved.Load(), Late: f.counts.late.Load(), Full: f.counts.full.Load(),
		Dropped: f.counts.dropped.Load(), Outages: f.outages.Load(),
		Failures:      make(map[string]uint64),
		RoundTripTime: time.Duration(f.counts.took.Load()),
	}
	// The causes up to Ended do not belong to calls.
	for c := Ended + 1; c < causeCount; c++ {
		s.Failures[c.Name()] = f.failures[c].Load()
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
