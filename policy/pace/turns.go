package pace

import (
	"hash/fnv"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// A turn is longer than the gap by this part of it, within these bounds. A process begins a request within that time after
// its turn has begun. A shorter time would be missed more often.
const (
	beginPart = 16
	minBegin  = 5 * time.Millisecond
	maxBegin  = 250 * time.Millisecond
)

// Turns say how processes that have lost their Store take turns at each host that has a gap. The wall clock is divided into
// turns, each as long as the gap and what clocks and delays need. Each process sends at the beginning of its own turns. The
// zero Turns are none.
type Turns struct {
	// Of is the number of processes that take turns; there are none with fewer than two. All processes need the same number.
	Of int

	// Number is the turn of this process, from 0 to Of-1.
	Number int

	// Guard is how far apart the wall clocks of two processes may be. All processes need the same.
	Guard time.Duration

	// From is when no other process can send by a slot of the Store any more. A turn is not used until the gap has passed
	// after that. Zero means that it has.
	From time.Time

	// Quiet is until when no turn is used, because another process may use the Store again; zero: they are used.
	Quiet time.Time
}

// length returns the length of a turn under a gap, and for how long after its beginning a request may be sent.
func (t *Turns) length(gap time.Duration) (turn, begin time.Duration) {
	begin = min(max(gap/beginPart, minBegin), maxBegin)
	return min(gap, maxDelay) + begin + t.Guard, begin
}

// gap returns the least time between two requests of this process, whose host permits one in each gap.
func (t *Turns) gap(gap time.Duration) time.Duration {
	if t.Of < 2 || gap <= 0 {
		return 0
	}
	turn, begin := t.length(gap)
	return limiter.Nanoseconds(float64(turn)*float64(t.Of)) - begin
}

// next returns when the next turn of this process at a host begins, now or later, and until when a request may be sent then.
// Without turns it returns now and zero.
func (t *Turns) next(key string, gap time.Duration, now time.Time) (from, until time.Time) {
	if t.Of < 2 || gap <= 0 {
		return now, time.Time{}
	}
	from = limiter.Later(now, t.Quiet)
	if !t.From.IsZero() {
		from = limiter.Later(from, t.From.Add(gap))
	}
	turn, begin := t.length(gap)
	round := limiter.Nanoseconds(float64(turn) * float64(t.Of))
	// Hosts with the same gap do not all have their turns at the same time.
	hash := fnv.New64a()
	hash.Write([]byte(key))
	first := time.Duration(hash.Sum64()>>1)%round + time.Duration(t.Number)*turn
	// since is how long before from the last turn of this process has begun.
	since := (time.Duration(from.UnixNano()) - first) % round
	if since < 0 {
		since += round
	}
	if since > begin {
		from, since = from.Add(round-since), 0
	}
	return from, from.Add(begin - since)
}

// gap returns the gap that the limits leave between two requests to the host, without that of slow responses.
func (l *Limits) gap() time.Duration { return l.terms(0).limit().Gap }
