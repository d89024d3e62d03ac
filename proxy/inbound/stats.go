package inbound

import (
	"fmt"
	"sync/atomic"
	"time"

	"robotsproxy/proxy/mitm"
)

// Stats are the counters of a Server.
type Stats struct {
	// Conns are the connections from clients to the proxy's own port, and MaxConns is the maximum of open ones.
	Conns    Flow
	MaxConns int

	// Failed is the number of accepts that failed so far, for example because too many files are open.
	Failed uint64

	// Answered is the number of connections over a client's limit so far whose requests were refused.
	Answered uint64

	// Closed is the number of connections over a client's limit, or its share of MaxConns, so far that were closed without
	// a response.
	Closed uint64

	// Evicted is the number of idle connections so far that were closed to make room for others at MaxConns.
	Evicted uint64

	// FullAt is when a connection last found MaxConns open; zero: never.
	FullAt time.Time

	// Intercepted are the tunnels whose requests are served. Unused is the number of those so far without a request, failed
	// handshakes included; with HTTP/2, of those whose client sent no preface.
	Intercepted Flow
	Unused      uint64

	// Faults are the failed TLS handshakes at the proxy's own port; the Authority counts those in tunnels.
	Faults map[mitm.Fault]uint64
}

// fullFor is how long Stats.Warning tells that all connections were open.
const fullFor = time.Minute

// Warning says that MaxConns is reached, or was a short time ago. It is "" otherwise.
func (s Stats) Warning() string {
	if s.Conns.Open < s.MaxConns && time.Since(s.FullAt) >= fullFor {
		return ""
	}
	return fmt.Sprintf("limits.connections (%d) is reached: "+
		"idle connections of the clients with the most are closed, or new connections wait", s.MaxConns)
}

// A Flow says how many things there are that begin and end.
type Flow struct {
	// Open is the number of those that have begun and not ended, and Total that of all that have begun so far.
	Open  int
	Total uint64
}

// counts are the counters that Stats returns.
type counts struct {
	conns, intercepted FlowCounter

	failed, answered, closed, evicted, unused atomic.Uint64

	// fullAt is in nanoseconds since 1970; 0: never.
	fullAt atomic.Int64
	faults mitm.Faults
}

// A FlowCounter counts a Flow. Its zero value has counted nothing. Any number of goroutines may use it.
type FlowCounter struct{ begun, ended atomic.Uint64 }

// Begin counts one more that has begun.
func (f *FlowCounter) Begin() { f.begun.Add(1) }

// End counts one more that has ended.
func (f *FlowCounter) End() { f.ended.Add(1) }

// Flow returns the present Flow.
func (f *FlowCounter) Flow() Flow {
	// Read first, so that Open is never negative.
	ended := f.ended.Load()
	begun := f.begun.Load()
	return Flow{int(begun - ended), begun}
}
