package mitm

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"robotsproxy/proxy/socket"
)

// A Fault is why a TLS handshake with a client failed.
type Fault string

// The faults.
const (
	FaultUntrusted     Fault = "untrusted"      // the client rejects our certificate, most likely because it does not trust the CA
	FaultClosed        Fault = "left"           // the client closed the connection
	FaultTimeout       Fault = "timeout"        // it took too long
	FaultNoCertificate Fault = "no-certificate" // there was none for the name, or the CA has expired
	FaultProtocol      Fault = "protocol"       // everything else: not TLS, or no common version or cipher
)

// FaultUnused is why a client may have sent no request after a handshake that did not fail: GnuTLS
// clients look at the certificate only then. Faults names its hosts, and does not count it.
const FaultUnused Fault = "unused"

var allFaults = [...]Fault{FaultUntrusted, FaultClosed, FaultTimeout, FaultNoCertificate, FaultProtocol}

// FaultOf classifies the error of a handshake.
func FaultOf(err error) Fault {
	if _, ok := errors.AsType[*noCertificateError](err); ok {
		return FaultNoCertificate
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		// crypto/tls does not export its own alert type.
		is := func(a tls.AlertError) bool { return a.Error() == op.Err.Error() }
		received, sent := op.Op == "remote error", op.Op == "local error"
		switch {
		case received && slices.ContainsFunc(distrust, is), sent && is(badRecordMAC):
			return FaultUntrusted
		case received, sent:
			return FaultProtocol
		}
	}
	if timed, ok := errors.AsType[net.Error](err); ok && timed.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return FaultTimeout
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, socket.ECONNRESET, socket.EPIPE, io.ErrClosedPipe} {
		if errors.Is(err, closed) {
			return FaultClosed
		}
	}
	return FaultProtocol
}

// distrust are the alerts with which clients reject a certificate (RFC 8446 6.2): bad_certificate
// (Go), unsupported_certificate, certificate_revoked, certificate_expired, certificate_unknown
// (Chromium, Java), unknown_ca (OpenSSL).
var distrust = []tls.AlertError{42, 43, 44, 45, 46, 48}

// badRecordMAC is what crypto/tls sends on an unencrypted alert where an encrypted one is required
// (RFC 8446 6). OpenSSL, and therefore curl and Python, rejects a certificate like that in TLS 1.3
// (golang.org/issue/76767). Within a handshake it has hardly any other cause.
const badRecordMAC = tls.AlertError(20)

// A noCertificateError is the error of a handshake for which there was no certificate.
type noCertificateError struct{ error }

func (e *noCertificateError) Unwrap() error { return e.error }

// Faults counts failed handshakes with clients, of this package or of another TLS server. Any
// number of goroutines may share one; its zero value has counted none.
type Faults struct {
	// n counts the handshakes, by the index of their Fault in allFaults.
	n [len(allFaults)]atomic.Uint64

	// mu guards hosts, which has the Faults of the first maxFaultHosts hosts.
	mu    sync.Mutex
	hosts map[string]Fault
}

// maxFaultHosts bounds the hosts in Faults.
const maxFaultHosts = 100

// Add counts the handshake that failed with err, for a tunnel to host ("": there is none).
func (f *Faults) Add(host string, err error) {
	fault := FaultOf(err)
	f.n[slices.Index(allFaults[:], fault)].Add(1)
	f.addHost(host, fault)
}

// addHost stores the Fault of a tunnel to host.
func (f *Faults) addHost(host string, fault Fault) {
	if host == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.hosts[host]; !known && len(f.hosts) >= maxFaultHosts {
		return
	}
	if f.hosts == nil {
		f.hosts = make(map[string]Fault)
	}
	if known := f.hosts[host]; fault == FaultUntrusted || known != FaultUntrusted && known != FaultUnused {
		f.hosts[host] = fault
	}
}

// Hosts returns the hosts to which a tunnel failed with this Fault, sorted. Only the first 100
// hosts with any Fault are known.
func (f *Faults) Hosts(fault Fault) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for host, its := range f.hosts {
		if its == fault {
			all = append(all, host)
		}
	}
	slices.Sort(all)
	return all
}

// Counts returns the number of handshakes for every Fault.
func (f *Faults) Counts() map[Fault]uint64 {
	all := make(map[Fault]uint64)
	for i, fault := range allFaults {
		all[fault] = f.n[i].Load()
	}
	return all
}
