package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"robotsproxy/proxy/socket"
)

// Errors for destinations that the guard forbids. errors.Is finds them in the errors of
// all methods of a Client.
var (
	ErrForbiddenAddr = errors.New("forbidden address")
	ErrForbiddenPort = errors.New("forbidden port")

	// ErrForbiddenName is an ErrForbiddenAddr for a name, all of whose addresses are forbidden. What a client learns
	// of it must not differ from what it learns of a name that does not exist, or it could list internal names.
	ErrForbiddenName = fmt.Errorf("%w: all that the name has", ErrForbiddenAddr)

	// ErrOwnListener is an ErrForbiddenAddr for the proxy's own listeners. A request to
	// the proxy's port would come back, and the operator's listener is not for clients.
	ErrOwnListener = fmt.Errorf("%w: one of the proxy's own listeners", ErrForbiddenAddr)
)

var (
	// ErrExhausted marks a lack of resources of this machine: it has no file descriptor,
	// port or memory left for a connection.
	ErrExhausted = errors.New("this machine cannot open another connection")

	// ErrParent marks a failure or refusal of the upstream proxy itself. It says nothing
	// about an origin.
	ErrParent = errors.New("the upstream proxy does not work")

	// ErrBeyondParent marks an origin that the upstream proxy cannot reach.
	ErrBeyondParent = errors.New("the upstream proxy cannot reach the origin")

	// ErrElsewhere marks a failed dial of a host that has another address.
	// [Client.Address] returns that address from then on. The failure does not count
	// against the host.
	ErrElsewhere = errors.New("later requests use another address of the host")

	// errClosed is the error of a closed Client.
	errClosed = fmt.Errorf("egress: %w", net.ErrClosed)
)

// ErrOldTLS marks a server that speaks no version of TLS that the proxy does.
var ErrOldTLS = errors.New("the server speaks only TLS 1.0 or 1.1 (for origins: egress.tls_min)")

// A CertificateError is a certificate that the proxy cannot verify, of an origin or of the upstream proxy.
type CertificateError struct {
	// Server is host:port.
	Server string
	Err    *tls.CertificateVerificationError
}

func (e *CertificateError) Error() string {
	fault := ""
	if _, ok := errors.AsType[x509.UnknownAuthorityError](e.Err); ok {
		fault = " is signed by no authority that the proxy trusts (egress.extra_ca)"
	}
	return fmt.Sprintf("the certificate of %s%s: %v", e.Server, fault, e.Err.Err)
}

func (e *CertificateError) Unwrap() error { return e.Err }

// A RetryError is a failure that is repeated until the next attempt is due.
type RetryError struct {
	Err error

	// At is the time of the next attempt.
	At time.Time

	// Repeated says that nothing was tried, because an earlier attempt has failed.
	Repeated bool
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// LocalError reports whether an error is a failure of this machine or of the upstream
// proxy (ErrExhausted, ErrParent). Such an error says nothing about an origin.
func LocalError(err error) bool { return errors.Is(err, ErrParent) || errors.Is(err, ErrExhausted) }

// missing are the errors for a resource that this machine does not have any more.
var missing = []error{socket.EMFILE, socket.ENFILE, socket.ENOBUFS, socket.ENOMEM}

// openFiles returns why n files cannot be opened at once; nil: they can.
func openFiles(n int) error {
	for range n {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	return nil
}

// lookupFiles is how many files a lookup may have open at once: sockets for both kinds of addresses and the resolver's own files.
const lookupFiles = 8

// exhausted reports whether a dial failed because a resource was missing. The resolver's errors are only text, and do not always
// have that of the system, so for these exhausted also tries to open as many files as a lookup.
func exhausted(err error) bool {
	if d, ok := errors.AsType[*net.DNSError](err); ok && !d.IsNotFound {
		if slices.ContainsFunc(missing, func(e error) bool { return strings.Contains(d.Err, e.Error()) }) {
			return true
		}
		if err = openFiles(lookupFiles); err == nil {
			return false
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && errors.Is(err, socket.EADDRNOTAVAIL) {
		// No port is left. For IPv6 the error may mean that this machine has no IPv6.
		to, ok := op.Addr.(*net.TCPAddr)
		return ok && to.IP.To4() != nil
	}
	return slices.ContainsFunc(missing, func(e error) bool { return errors.Is(err, e) })
}
