package proxy

import (
	"fmt"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/proxy/mitm"
)

// Stats are the counters of a Handler.
type Stats struct {
	// requests in progress, except those for the proxy's own page; a tunnel that is passed through and an upgraded
	// connection last as long as their request.
	Requests Flow

	// Connections from clients to the proxy's own port.
	Conns Flow

	// Maximum open connections.
	MaxConns int

	// Accepts that failed so far, for example because too many files are open.
	Failed uint64

	// Connections over a client's limit so far whose requests were refused.
	Answered uint64

	// Connections over a client's limit, or its share of MaxConns, so far that were closed without a response.
	Closed uint64

	// Idle connections so far that were closed to make room for others at MaxConns.
	Evicted uint64

	// When a connection last found MaxConns open; zero: never.
	FullAt time.Time

	// Tunnels.
	Intercepted Flow

	// intercepted tunnels so far without a request, failed handshakes included; with HTTP/2, those whose client sent no
	// preface.
	Unused uint64

	// Tunnels.
	PassedThrough Flow

	// Connections, also inside tunnels.
	Upgraded Flow

	Memory memory.Stats

	// failed TLS handshakes at the proxy's own port; the Authority counts those in tunnels.
	Faults map[mitm.Fault]uint64
}

// fullFor is how long Stats.Warning tells that all connections were open.
const fullFor = time.Minute

// Warning says that MaxConns is reached, or was a short time ago. It is "" otherwise.
func (s Stats) Warning() string {
	if s.Conns.Open < s.MaxConns && time.Since(s.FullAt) >= fullFor {
		return ""
	}
	return fmt.Sprintf("limits.connections (%d) is reached: idle connections of the clients with the most are closed, or new connections wait", s.MaxConns)
}

// A Flow counts things that begin and end.
type Flow struct {
	// Number that have begun and not ended.
	Open int

	// Number that have begun so far.
	Total uint64
}

// counts are the counters that Stats returns.
type counts struct {
	requests, conns, intercepted, passedThrough, upgraded flowCounter

	failed, answered, closed, evicted, unused atomic.Uint64

	// In nanoseconds since 1970; 0: never.
	fullAt       atomic.Int64
	faults       mitm.Faults
	clientFaults clientfault.Table
}

// A flowCounter counts a Flow.
type flowCounter struct{ begun, ended atomic.Uint64 }

func (f *flowCounter) begin() { f.begun.Add(1) }
func (f *flowCounter) end()   { f.ended.Add(1) }

func (f *flowCounter) flow() Flow {
	// Read first, so that Open is never negative.
	ended := f.ended.Load()
	begun := f.begun.Load()
	return Flow{int(begun - ended), begun}
}
