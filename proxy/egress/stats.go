package egress

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"robotsproxy/proxy/socket"
)

// Stats counts a Client's connections.
type Stats struct {
	// Origins counts connections to origins, made directly or by tunnels through the upstream proxy.
	Origins Peers

	// Parent counts connections to the upstream proxy, for tunnels and forwarded requests; zero without one.
	Parent Peers
}

// Peers counts the connections to one kind of peer.
type Peers struct {
	// Open is the number of open HTTP connections, including idle ones.
	Open int

	// Dialed counts the attempts to connect so far, by outcome. It includes those for FTP and for tunnels that are
	// passed through.
	Dialed map[DialResult]uint64
}

// counters are the sources of Stats. A Client shares them with its Options.Previous.
type counters struct{ origins, parent counter }

// A DialResult is the result of an attempt to connect.
type DialResult string

// The outcomes.
const (
	OutcomeOK          DialResult = "ok"          // connected, including the TLS handshake if there is one
	OutcomeDNS         DialResult = "dns"         // the name has no address, or no name server replied
	OutcomeRefused     DialResult = "refused"     // connection refused
	OutcomeUnreachable DialResult = "unreachable" // no route, or the upstream proxy cannot reach the origin
	OutcomeTimeout     DialResult = "timeout"     // no reply in time
	OutcomeTLS         DialResult = "tls"         // the handshake failed, or the certificate is not valid
	OutcomeForbidden   DialResult = "forbidden"   // no allowed address: ErrForbiddenAddr, ErrForbiddenPort
	OutcomeExhausted   DialResult = "exhausted"   // ErrExhausted
	OutcomeParent      DialResult = "parent"      // ErrParent
	OutcomeCanceled    DialResult = "canceled"    // the caller left, or the Client was closed
	OutcomeOther       DialResult = "other"
)

var allOutcomes = [...]DialResult{
	OutcomeOK, OutcomeDNS, OutcomeRefused, OutcomeUnreachable, OutcomeTimeout, OutcomeTLS,
	OutcomeForbidden, OutcomeExhausted, OutcomeParent, OutcomeCanceled, OutcomeOther,
}

// outcomeOf returns the first outcome that matches the error of an attempt. It does not
// recognise TLS failures.
func outcomeOf(err error) DialResult {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	_, dns := errors.AsType[*net.DNSError](err)
	timed, ok := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return OutcomeOK
	case is(context.Canceled, net.ErrClosed):
		return OutcomeCanceled
	case is(ErrParent):
		return OutcomeParent
	case is(ErrForbiddenAddr, ErrForbiddenPort):
		return OutcomeForbidden
	case is(ErrExhausted):
		return OutcomeExhausted
	case dns:
		return OutcomeDNS
	case is(socket.ECONNREFUSED):
		return OutcomeRefused
	case ok && timed.Timeout() || is(context.DeadlineExceeded):
		return OutcomeTimeout
	case is(ErrBeyondParent, socket.ENETUNREACH, socket.EHOSTUNREACH, socket.EADDRNOTAVAIL, socket.EAFNOSUPPORT):
		return OutcomeUnreachable
	}
	return OutcomeOther
}

// A counter counts the connections to one kind of peer. A nil counter counts nothing.
type counter struct {
	open atomic.Int64

	// dialed counts the attempts, by the index of their outcome in allOutcomes.
	dialed [len(allOutcomes)]atomic.Uint64
}

// dial counts an attempt to dial.
func (c *counter) dial(err error) { c.add(outcomeOf(err)) }

// handshake counts an attempt that reached the TLS handshake.
func (c *counter) handshake(err error) {
	o := outcomeOf(err)
	if o != OutcomeOK && o != OutcomeCanceled {
		o = OutcomeTLS
	}
	c.add(o)
}

func (c *counter) add(o DialResult) {
	if c != nil {
		c.dialed[slices.Index(allOutcomes[:], o)].Add(1)
	}
}

func (c *counter) peers() Peers {
	p := Peers{Open: int(c.open.Load()), Dialed: make(map[DialResult]uint64)}
	for i, o := range allOutcomes {
		p.Dialed[o] = c.dialed[i].Load()
	}
	return p
}
