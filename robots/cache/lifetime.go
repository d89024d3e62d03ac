package cache

import "time"

const (
	// maxStale is how long a stale file is used while its origin fails (RFC 9309 2.3.1.4: "a
	// reasonably long period of time, for example 30 days").
	maxStale = 30 * 24 * time.Hour

	// maxRetry is the maximum of the doubled Options.Retry.
	maxRetry = 30 * time.Minute

	// storeTime is how long it may take to store the result of a refresh, beyond the fetch timeout.
	storeTime = time.Second
)

// A timing contains the times of the Options.
type timing struct {
	minAge, maxAge, retry, fetchTimeout time.Duration
}

// ttl returns how long a file may be used (RFC 9309 2.4: at most 24 hours; RFC 9111 5.2.2.1 may
// shorten it). maxAge is that of the response; -1: it has none.
func (t timing) ttl(maxAge time.Duration) time.Duration {
	if maxAge < 0 {
		return t.maxAge
	}
	return min(max(maxAge, t.minAge), t.maxAge)
}

// refreshLimit is how long a refresh may take.
func (t timing) refreshLimit() time.Duration { return t.fetchTimeout + storeTime }

// refreshTimes returns, from the time of a fetch, when an entry in use is refreshed and until
// when it is usable. The refresh begins early enough to end before ttl, so that no request
// waits, but never before minAge. If minAge leaves too little time, the entry is usable beyond
// its ttl, for as long as the refresh may take.
func (t timing) refreshTimes(ttl time.Duration) (refresh, until time.Duration) {
	refresh = max(ttl-max(t.refreshLimit(), ttl/10), t.minAge)
	until = max(ttl, refresh+t.refreshLimit())
	return refresh, until
}

// A lifetime contains the times of an entry until its next fetch.
type lifetime struct {
	// refreshAt is when the entry is refreshed or retried in the background; zero: never.
	refreshAt time.Time

	// expires is until when the entry is usable, in use or not.
	expires time.Time

	// usableUntil is until when an entry in use is usable, because its refresh is running.
	usableUntil time.Time
}

// lifetime returns the lifetime of a file that is usable for ttl from now on.
func (t timing) lifetime(now time.Time, ttl time.Duration) lifetime {
	refresh, until := t.refreshTimes(ttl)
	return lifetime{refreshAt: now.Add(refresh), expires: now.Add(ttl), usableUntil: now.Add(until)}
}

// backoff returns the time from a failure to the next retry. last is the time before this
// failure, or 0 for the first failure.
func (t timing) backoff(last time.Duration) time.Duration {
	if last <= 0 {
		return t.retry
	}
	return min(2*last, max(maxRetry, t.retry))
}

// scaleRetry converts a retry time that was computed with before into the times of t.
func (t timing) scaleRetry(delay time.Duration, before timing) time.Duration {
	if t.retry == before.retry {
		return delay
	}
	limit := max(maxRetry, t.retry)
	x := delay.Seconds() / before.retry.Seconds() * t.retry.Seconds()
	if !(x < limit.Seconds()) {
		return limit
	}
	return max(t.retry, time.Duration(x*float64(time.Second)))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
