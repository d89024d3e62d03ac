package pace

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	slowAnswer = time.Second      // a longer response time slows the host down
	maxSpacing = 30 * time.Second // maximum gap, however long responses take
	slowFor    = 10 * time.Minute // after this time without a response, the host counts as fast again
	slowWeight = 4                // one response moves the average of its path by a quarter of the difference
	maxPaths   = 7                // paths of a host whose response times are kept
)

// latency is the response time of a host: the median of the averages of the latest different
// paths, so that one slow path does not count for the host. Of an even number, the lower one of
// the two in the middle counts. The zero value has no response.
type latency struct {
	// paths begins with the latest path.
	paths [maxPaths]pathLatency

	// n is the number of paths.
	n int

	// at is the time of the last response; zero if there was none.
	at time.Time

	// turn is the latest turn of a request while the host is slow and shares its rate with others.
	turn time.Time
}

// pathLatency is the moving average of the response time of one path.
type pathLatency struct {
	// path is a hash. Two paths with the same one count as one.
	path uint32

	// average is in microseconds.
	average uint32
}

// note counts a response. An error response may come quickly because the host is in
// trouble, so it never lowers an average.
func (l *latency) note(path uint32, took time.Duration, fine bool, now time.Time) {
	if l.forgotten(now) {
		l.n = 0
	}
	l.at = now
	i := slices.IndexFunc(l.paths[:l.n], func(p pathLatency) bool { return p.path == path })
	p := pathLatency{path, uint32(min(took.Microseconds(), 1<<32-1))}
	switch {
	case i >= 0 && (fine || p.average > l.paths[i].average):
		was := l.paths[i].average
		p.average = uint32(int64(was) + (int64(p.average)-int64(was))/slowWeight)
	case i >= 0:
		p = l.paths[i]
	case l.n > 0 && !fine && took <= l.median():
		return
	default:
		l.n = min(l.n+1, maxPaths)
		i = l.n - 1
	}
	copy(l.paths[1:i+1], l.paths[:i])
	l.paths[0] = p
}

func (l *latency) median() time.Duration {
	if l.n == 0 {
		return 0
	}
	sorted := l.paths
	slices.SortFunc(sorted[:l.n], func(a, b pathLatency) int { return int(int64(a.average) - int64(b.average)) })
	return time.Duration(sorted[(l.n-1)/2].average) * time.Microsecond
}

func (l *latency) forgotten(now time.Time) bool { return l.at.IsZero() || now.Sub(l.at) >= slowFor }

// A hostLatency holds the latency of a host. Any goroutine may use it.
type hostLatency struct {
	// slow is the median in nanoseconds, or zero if the host is not slow.
	slow atomic.Int64

	// mu guards held. No other lock is taken under it.
	mu sync.Mutex

	// held is nil if there was no response.
	held *latency
}

func (h *hostLatency) note(path uint32, took time.Duration, fine bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = new(latency)
	}
	h.held.note(path, took, fine, now)
	slow := h.held.median()
	if slow < slowAnswer {
		slow = 0
	}
	h.slow.Store(int64(slow))
}

// get returns the median if it is slow, and the time of the last response; zero if there was none.
func (h *hostLatency) get(now time.Time) (slow time.Duration, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held == nil:
		return 0, time.Time{}
	case h.held.forgotten(now):
		return 0, h.held.at
	}
	return time.Duration(h.slow.Load()), h.held.at
}

// spacing returns the minimum gap between requests at which one request is in flight on
// average. It returns zero if the host responds quickly.
func (h *hostLatency) spacing(now time.Time) time.Duration {
	if h.slow.Load() == 0 {
		return 0
	}
	slow, _ := h.get(now)
	return min(slow, maxSpacing)
}

// take notes the turn of a request.
func (h *hostLatency) take(now time.Time) {
	if h.slow.Load() != 0 {
		h.mu.Lock()
		h.held.turn = now
		h.mu.Unlock()
	}
}

// turnLeft returns the time until the spacing since the last turn has passed. The turn that a
// request has taken at own does not delay the request itself.
func (h *hostLatency) turnLeft(own, now time.Time) time.Duration {
	spacing := h.spacing(now)
	if spacing == 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held.turn.IsZero() || h.held.turn.Equal(own) {
		return 0
	}
	return max(0, spacing-now.Sub(h.held.turn))
}

// restore takes over the latency of an earlier process.
func (h *hostLatency) restore(slow time.Duration, at, now time.Time) {
	if !at.IsZero() {
		h.note(0, slow, true, localTime(at, now, now))
	}
}
