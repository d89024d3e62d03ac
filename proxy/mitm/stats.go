package mitm

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Stats is what an Authority is at, to be shown.
type Stats struct {
	NotAfter time.Time        // when the CA's certificate expires
	Leaves   int              // certificates held
	Minted   uint64           // certificates made so far
	Failed   map[Fault]uint64 // handshakes so far that failed, by what of; every Fault is there
}

// Stats waits for no handshake. The zero Authority has none.
func (a *Authority) Stats() Stats {
	return Stats{NotAfter: a.ca.NotAfter, Leaves: a.leaves.len(), Minted: a.leaves.made.Load(), Failed: a.faults.Counts()}
}

// A Fault is what a TLS handshake with a client failed of.
type Fault string

// The faults that there are.
const (
	FaultUntrusted     Fault = "untrusted"      // the client says that it does not take our certificate: it does not know who signed it
	FaultLeft          Fault = "left"           // the client hung up
	FaultTimeout       Fault = "timeout"        // it did not end in time
	FaultNoCertificate Fault = "no-certificate" // there was none to show, or the CA has expired
	FaultProtocol      Fault = "protocol"       // all else: no TLS, nothing in common
)

var allFaults = [...]Fault{FaultUntrusted, FaultLeft, FaultTimeout, FaultNoCertificate, FaultProtocol}

// faultOf says what the error of a handshake is about.
func faultOf(err error) Fault {
	if _, ok := errors.AsType[*noCertificate](err); ok {
		return FaultNoCertificate
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		is := func(a tls.AlertError) bool { return a.Error() == op.Err.Error() } // crypto/tls's own type for one has no name
		switch op.Op {
		case "remote error": // an alert that was received
			if slices.ContainsFunc(distrust, is) {
				return FaultUntrusted
			}
			return FaultProtocol
		case "local error": // one that was sent
			if is(badRecordMAC) {
				return FaultUntrusted
			}
			return FaultProtocol
		}
	}
	if timed, ok := errors.AsType[net.Error](err); ok && timed.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return FaultTimeout
	}
	for _, left := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, io.ErrClosedPipe} {
		if errors.Is(err, left) {
			return FaultLeft
		}
	}
	return FaultProtocol
}

// distrust are the alerts by which clients turn a certificate down (RFC 8446 6.2):
// bad_certificate (Go), unsupported_certificate, certificate_revoked,
// certificate_expired, certificate_unknown (Chromium, Java), unknown_ca (OpenSSL).
var distrust = []tls.AlertError{42, 43, 44, 45, 46, 48}

// badRecordMAC is what crypto/tls makes of an alert in the clear where one has to be
// encrypted (RFC 8446 6). OpenSSL, and so curl and Python, turns a certificate down
// like that in TLS 1.3 (golang.org/issue/76767). There is next to no other cause of it
// within a handshake.
const badRecordMAC = tls.AlertError(20)

// A noCertificate is the error of a handshake that there was no certificate for.
type noCertificate struct{ error }

func (e *noCertificate) Unwrap() error { return e.error }

// Faults counts handshakes with clients that failed, a server's on another port too.
// Any number of goroutines may share one; its zero value has counted none.
type Faults struct{ n [len(allFaults)]atomic.Uint64 } // by their place in allFaults

// Add counts one, by the error that it ended with.
func (f *Faults) Add(err error) { f.n[slices.Index(allFaults[:], faultOf(err))].Add(1) }

// Counts gives the number of every Fault.
func (f *Faults) Counts() map[Fault]uint64 {
	all := make(map[Fault]uint64)
	for i, fault := range allFaults {
		all[fault] = f.n[i].Load()
	}
	return all
}
