// Package limiter computes when the next request may be sent under a rate, a burst and a
// least gap between two requests. It is the one place for this arithmetic: policy/pace and
// policy/pace/ledger call it, and the scripts reserve.lua and push.lua of cmd/internal/redis
// mirror it line by line. A change here needs the same change there; a test of
// cmd/internal/redis runs both.
//
// The limiter is a token bucket as in golang.org/x/time/rate, with a gap besides. It is
// pure: it reads no clock, takes no lock and cannot fail. Its functions take a [State] and
// return the next one, which a Store can write down. For a limit that is known only to
// one process, rate.Limiter is the simpler choice.
package limiter

import (
	"math"
	"time"
)

// Never is a wait that does not end.
const Never = time.Duration(math.MaxInt64)

// A Limit says how often requests may be sent.
type Limit struct {
	// PerSecond is the number of requests per second; positive.
	PerSecond float64

	// Burst is the number of requests at once after a quiet time; positive.
	Burst int

	// Gap is the least time between two requests; zero means none.
	Gap time.Duration
}

// Each returns the time in which the bucket earns one token, in nanoseconds.
func (l Limit) Each() float64 { return float64(time.Second) / l.PerSecond }

// A State is what a limiter remembers of earlier requests. The zero State has neither a
// request nor a Limit.
type State struct {
	// Limit is the active limit. The zero Limit means that none was applied yet.
	Limit

	// Tokens is how many tokens were in the bucket at Stamp, which may be in the future. A negative number is owed.
	Tokens float64
	Stamp  time.Time

	// Last is the time of the last request, from which the gap counts; zero if there was none.
	Last time.Time

	// Longest is the longest gap that was ever active.
	Longest time.Duration
}

// Apply makes l the active limit at now. The bucket earns tokens under the earlier limit
// until now and keeps those that fit into the new burst. A new gap counts from the last
// request. sent is the last request that the caller knows of; zero means none. If s has
// no request, the bucket was empty at sent, or is full if sent is zero.
func Apply(s State, l Limit, sent, now time.Time) State {
	if s.PerSecond == 0 {
		switch {
		case !s.Stamp.IsZero():
		case sent.IsZero():
			s.Tokens, s.Stamp = float64(l.Burst), now
		default:
			s.Tokens, s.Stamp = 0, sent
		}
		s.Limit = l
	}
	s.Tokens, s.Stamp = s.TokensAt(now), Later(s.Stamp, now)
	s.Limit = l
	s.Last = Later(s.Last, sent)
	s.Longest = max(s.Longest, l.Gap)
	return s
}

// TokensAt returns the number of tokens at the given time, or at Stamp if that is later.
func (s *State) TokensAt(at time.Time) float64 {
	return min(float64(s.Burst), s.Tokens+float64(max(0, at.Sub(s.Stamp)))/s.Each())
}

// Due returns when the n-th request from now may be sent, at start or later. s must have a
// Limit.
func (s *State) Due(n int, start time.Time) time.Time {
	start = Later(start, s.Stamp)
	at := start
	if short := float64(n) - s.TokensAt(start); short > 0 {
		at = start.Add(Nanoseconds(short * s.Each()))
	}
	if s.Gap > 0 {
		if !s.Last.IsZero() {
			start = Later(start, s.Last.Add(s.Gap))
		}
		at = Later(at, start.Add(Nanoseconds(float64(n-1)*float64(s.Gap))))
	}
	return at
}

// Take counts a request that is sent at the given time. If it is sent before it was due,
// the bucket owes the tokens, and the next gap begins when the request would have been
// due.
func Take(s State, at time.Time) State {
	s.Tokens, s.Stamp = s.TokensAt(at)-1, at
	if s.Gap > 0 && !s.Last.IsZero() {
		at = Later(at, s.Last.Add(s.Gap))
	}
	s.Last = at
	return s
}

// Spend counts a request of another process whose limits are unknown, except that the
// request delayed others for reach. It empties the bucket.
func Spend(s State, sent time.Time, reach time.Duration) State {
	s.Tokens, s.Stamp = min(s.Tokens, 0), Later(s.Stamp, sent)
	s.Last = Later(s.Last, sent)
	s.Longest = max(s.Longest, reach)
	return s
}

// IdleAt returns the time from which the requests so far delay no further request, under any
// limit that was ever active: the bucket is full, and the longest gap has passed. It returns
// the zero time if there was no request.
func (s *State) IdleAt() time.Time {
	var at time.Time
	if !s.Last.IsZero() {
		at = s.Last.Add(s.Longest)
	}
	if short := float64(s.Burst) - s.Tokens; short > 0 {
		at = Later(at, s.Stamp.Add(Nanoseconds(short*s.Each())))
	}
	return at
}

// Nanoseconds rounds up. It returns Never if ns is too large.
func Nanoseconds(ns float64) time.Duration {
	if ns = math.Ceil(ns); !(ns < float64(Never)) {
		return Never
	}
	return time.Duration(ns)
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
