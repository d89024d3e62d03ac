package proxy

import (
	"sync/atomic"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/mitm"
)

// Stats are the counters of a Handler.
type Stats struct {
	Requests Flow // requests in progress, except those for the proxy's own page; a tunnel that is passed through and an upgraded connection last as long as their request

	Conns    Flow   // connections from clients to the proxy's own port
	MaxConns int    // maximum open connections
	Failed   uint64 // accepts that failed so far, for example because too many files are open
	Answered uint64 // connections over a client's limit so far whose requests were refused
	Closed   uint64 // connections over a client's limit so far that were closed without a response

	Intercepted   Flow   // tunnels
	Unused        uint64 // intercepted tunnels so far without a request, failed handshakes included; with HTTP/2, those whose client sent no preface
	PassedThrough Flow   // tunnels
	Upgraded      Flow   // connections, also inside tunnels

	Memory memory.Stats

	Faults map[mitm.Fault]uint64 // failed TLS handshakes at the proxy's own port; the Authority counts those in tunnels
}

// A Flow counts things that begin and end.
type Flow struct {
	Open  int    // number that have begun and not ended
	Total uint64 // number that have begun so far
}

// counts are the counters that Stats returns.
type counts struct {
	requests, conns, intercepted, passedThrough, upgraded flowCounter

	failed, answered, closed, unused atomic.Uint64
	faults                           mitm.Faults
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
