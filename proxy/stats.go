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
	Requests Flow // requests in progress, except those for the proxy's own page; a tunnel that is passed through and an upgraded connection last as long as their request

	Conns    Flow      // connections from clients to the proxy's own port
	MaxConns int       // maximum open connections
	Failed   uint64    // accepts that failed so far, for example because too many files are open
	Answered uint64    // connections over a client's limit so far whose requests were refused
	Closed   uint64    // connections over a client's limit, or its share of MaxConns, so far that were closed without a response
	Evicted  uint64    // idle connections so far that were closed to make room for others at MaxConns
	FullAt   time.Time // when a connection last found MaxConns open; zero: never

	Intercepted   Flow   // tunnels
	Unused        uint64 // intercepted tunnels so far without a request, failed handshakes included; with HTTP/2, those whose client sent no preface
	PassedThrough Flow   // tunnels
	Upgraded      Flow   // connections, also inside tunnels

	Memory memory.Stats

	Faults map[mitm.Fault]uint64 // failed TLS handshakes at the proxy's own port; the Authority counts those in tunnels
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
	Open  int    // number that have begun and not ended
	Total uint64 // number that have begun so far
}

// counts are the counters that Stats returns.
type counts struct {
	requests, conns, intercepted, passedThrough, upgraded flowCounter

	failed, answered, closed, evicted, unused atomic.Uint64
	fullAt                                    atomic.Int64 // in nanoseconds since 1970; 0: never
	faults                                    mitm.Faults
	clientFaults                              clientfault.Table
}

// A flowCounter counts a Flow.
type flowCounter struct{ begun, ended atomic.Uint64 }

func (t *flowCounter) begin() { t.begun.Add(1) }
func (t *flowCounter) end()   { t.ended.Add(1) }

func (t *flowCounter) flow() Flow {
	ended := t.ended.Load() // read first, so that Open is never negative
	begun := t.begun.Load()
	return Flow{int(begun - ended), begun}
}
