package cache

import "time"

const (
	// maxHeld is how long a copy stays in force while its origin fails
	// (RFC 9309 2.3.1.4: "a reasonably long period of time, for example 30 days").
	maxHeld = 30 * 24 * time.Hour

	// maxRetry is where the doubling of Options.Retry ends.
	maxRetry = 30 * time.Minute

	// handover is what a refresh may need beyond its timeout to be stored.
	handover = time.Second
)

// clock holds the times of the Options that the arithmetic needs.
type clock struct {
	minAge, maxAge, retry, fetchTimeout time.Duration
}

// ttl is how long an answer may be used (RFC 9309 2.4: at most 24 hours; RFC
// 9111 5.2.2.1 may shorten it). said is -1 where the origin did not say.
func (c clock) ttl(said time.Duration) time.Duration {
	if said < 0 {
		return c.maxAge
	}
	return min(max(said, c.minAge), c.maxAge)
}

// overtime is how long a refresh may take.
func (c clock) overtime() time.Duration { return c.fetchTimeout + handover }

// plan gives, from the moment of a fetch, when an entry in use is refreshed and
// until when it may be used: a lead before its ttl is over, so that nobody
// waits; never sooner than minAge; and where that leaves no lead, past its ttl
// for as long as the refresh can take.
func (c clock) plan(ttl time.Duration) (refresh, until time.Duration) {
	refresh = max(ttl-max(c.overtime(), ttl/10), c.minAge)
	until = max(ttl, refresh+c.overtime())
	return refresh, until
}

// A life is the time of an entry between two fetches.
type life struct {
	due     time.Time // its refresh or retry in the background; zero: none
	expires time.Time // answered with before, used or not
	until   time.Time // answered with before, if in use: its refresh is under way
}

// life is that of an answer which may be used for ttl from now on.
func (c clock) life(now time.Time, ttl time.Duration) life {
	refresh, until := c.plan(ttl)
	return life{due: now.Add(refresh), expires: now.Add(ttl), until: now.Add(until)}
}

// backoff is how long after a failure the next try comes; last is the wait
// before this failure, 0 for the first in a row.
func (c clock) backoff(last time.Duration) time.Duration {
	if last <= 0 {
		return c.retry
	}
	return min(2*last, max(maxRetry, c.retry))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
