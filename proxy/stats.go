package proxy

import (
	"sync/atomic"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/mitm"
)

// Stats is what a Handler is at, to be shown.
type Stats struct {
	Requests Flow // being answered, but for those for the proxy's own page; those in tunnels passed unopened, and on upgraded connections, last as long as these

	Conns    Flow   // of clients, to the proxy's own port
	MaxConns int    // as many may be open
	Failed   uint64 // tries so far to take one that the system failed, as where no more files may be opened
	Answered uint64 // connections so far over a client's most whose requests were answered with a refusal
	Closed   uint64 // more of them, closed without a word

	Intercepted   Flow   // tunnels
	Unused        uint64 // of these, those that ended without a request, those included whose handshake failed; of HTTP/2 only the latter
	PassedThrough Flow   // tunnels
	Upgraded      Flow   // connections, in tunnels too

	Memory memory.Stats

	Faults map[mitm.Fault]uint64 // TLS handshakes at the proxy's own port that failed; those in tunnels are the Authority's
}

// A Flow counts what begins and ends.
type Flow struct {
	Open  int    // begun, and not ended
	Total uint64 // begun so far
}

// counts is what Stats are made of.
type counts struct {
	requests, conns, intercepted, passedThrough, upgraded flowCounter

	failed, answered, closed, unused atomic.Uint64
	faults                           mitm.Faults
}

// A flowCounter counts what begins and ends.
type flowCounter struct{ begun, ended atomic.Uint64 }

func (t *flowCounter) begin() { t.begun.Add(1) }
func (t *flowCounter) end()   { t.ended.Add(1) }

func (t *flowCounter) flow() Flow {
	ended := t.ended.Load() // first: what ends has begun
	begun := t.begun.Load()
	return Flow{int(begun - ended), begun}
}
