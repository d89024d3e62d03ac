package egress

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
)

// Stats is what a Client is at, to be shown.
type Stats struct {
	Origins Peers // that the Client itself connects to, or through tunnels of the parent's
	Parent  Peers // the parent proxy, on the way to them and with what it forwards; none without one
}

// Peers are the connections to some.
type Peers struct {
	Open   int                // that HTTP is spoken on, those at rest included
	Dialed map[Outcome]uint64 // tries to make one so far, by their outcome; those for FTP and for tunnels passed unopened too
}

// Stats waits for no connection. Every outcome is in both Dialed. What Clients before
// this one have counted, and have open still, is in them.
func (d *Client) Stats() Stats {
	return Stats{Origins: d.counts.origins.peers(), Parent: d.counts.parent.peers()}
}

// counts is what Stats are made of. Clients that follow each other share it.
type counts struct{ origins, parent tally }

// An Outcome is how a try to connect came out.
type Outcome string

// The outcomes that there are.
const (
	OutcomeOK          Outcome = "ok"          // it stands, with its TLS handshake done where there is to be one
	OutcomeDNS         Outcome = "dns"         // the name leads nowhere, or no name server answered
	OutcomeRefused     Outcome = "refused"     // nobody listens there
	OutcomeUnreachable Outcome = "unreachable" // no way leads there; by what the parent says too
	OutcomeTimeout     Outcome = "timeout"     // no answer
	OutcomeTLS         Outcome = "tls"         // the handshake failed, or the certificate is not good
	OutcomeForbidden   Outcome = "forbidden"   // no address that may be dialled: ErrForbiddenAddr, ErrForbiddenPort
	OutcomeExhausted   Outcome = "exhausted"   // ErrExhausted
	OutcomeParent      Outcome = "parent"      // ErrParent
	OutcomeCanceled    Outcome = "canceled"    // who asked has left, or the Client was closed
	OutcomeOther       Outcome = "other"
)

var allOutcomes = [...]Outcome{
	OutcomeOK, OutcomeDNS, OutcomeRefused, OutcomeUnreachable, OutcomeTimeout, OutcomeTLS,
	OutcomeForbidden, OutcomeExhausted, OutcomeParent, OutcomeCanceled, OutcomeOther,
}

// outcomeOf says how a try came out by its error: the first that fits. What failed
// of TLS is not among them: connect knows.
func outcomeOf(err error) Outcome {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
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
	case is(syscall.ECONNREFUSED):
		return OutcomeRefused
	case ok && timed.Timeout() || is(context.DeadlineExceeded):
		return OutcomeTimeout
	case is(ErrBeyondParent, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT):
		return OutcomeUnreachable
	}
	return OutcomeOther
}

// A tally counts the connections to some. A nil one counts nothing.
type tally struct {
	open   atomic.Int64
	dialed [len(allOutcomes)]atomic.Uint64 // tries, by their place in allOutcomes
}

// note counts a try to dial.
func (t *tally) note(err error) { t.add(outcomeOf(err)) }

// noteTLS counts a try that stood, as far as its handshake.
func (t *tally) noteTLS(err error) {
	how := outcomeOf(err)
	if how != OutcomeOK && how != OutcomeCanceled {
		how = OutcomeTLS
	}
	t.add(how)
}

func (t *tally) add(how Outcome) {
	if t != nil {
		t.dialed[slices.Index(allOutcomes[:], how)].Add(1)
	}
}

func (t *tally) peers() Peers {
	p := Peers{Open: int(t.open.Load()), Dialed: make(map[Outcome]uint64)}
	for i, how := range allOutcomes {
		p.Dialed[how] = t.dialed[i].Load()
	}
	return p
}
