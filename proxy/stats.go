package proxy

import (
	"sync/atomic"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/mitm"
)

// Stats are the counters of a Handler.
type Stats struct {
	Requests Flow // being answered, without those for the proxy's own page; a tunnel that is passed through and an upgraded connection last as long as their request

	Conns    Flow   // from clients to the proxy's own port
	MaxConns int    // how many may be open
	Failed   uint64 // failed accepts so far, for example because too many files are open
	Answered uint64 // connections over a client's limit so far whose requests were refused
	Closed   uint64 // connections over a client's limit so far that were closed without an answer

	Intercepted   Flow   // tunnels
	Unused        uint64 // intercepted tunnels so far without a request, failed handshakes included; with HTTP/2, those whose client sent no preface
	PassedThrough Flow   // tunnels
	Upgraded      Flow   // connections, inside tunnels too

	Memory memory.Stats

	Faults map[mitm.Fault]uint64 // failed TLS handshakes at the proxy's own port; the Authority counts those in tunnels
}

// A Flow counts what begins and ends.
type Flow struct {
	Open  int    // have begun and not ended
	Total uint64 // have begun so far
}

// counts are the counters that Stats reads.
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
