package egress

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// Errors of destinations that the guard forbids. errors.Is finds them in the errors of
// every method of a Client.
var (
	ErrForbiddenAddr = errors.New("forbidden address")
	ErrForbiddenPort = errors.New("forbidden port")

	// ErrOwnListener is an ErrForbiddenAddr for the proxy's own listeners: a request
	// to them would come back, and the operator's listener is not for clients.
	ErrOwnListener = fmt.Errorf("%w: one of the proxy's own listeners", ErrForbiddenAddr)
)

var (
	// ErrExhausted marks a lack of resources of this machine: no more files can be
	// opened, or no port or memory is left for a connection.
	ErrExhausted = errors.New("this machine cannot open another connection")

	// ErrParent marks a failure or refusal of the parent proxy itself. It says nothing
	// about an origin.
	ErrParent = errors.New("the upstream proxy does not work")

	// ErrBeyondParent marks an origin that the parent proxy says it cannot reach.
	ErrBeyondParent = errors.New("the upstream proxy cannot reach the origin")

	// ErrElsewhere marks a failed dial of a host that has another address, which
	// [Client.Address] returns from then on. The failure does not count against the host.
	ErrElsewhere = errors.New("trying the next address of the host from now on")

	// errClosed is the error of a closed Client.
	errClosed = fmt.Errorf("egress: %w", net.ErrClosed)
)

// A RetryError is a failure that is returned again until the next attempt is due.
type RetryError struct {
	Err error
	At  time.Time // of the next attempt
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// LocalError reports whether an error is a failure of this machine or of the parent
// proxy (ErrExhausted, ErrParent). Such an error says nothing about an origin.
func LocalError(err error) bool { return errors.Is(err, ErrParent) || errors.Is(err, ErrExhausted) }

// resourceErrors are the errors of a system that lacks a resource.
var resourceErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// exhausted reports whether a dial failed for lack of a resource. The resolver's errors
// are text alone: for one of them, exhausted tries whether a file can be opened now.
func exhausted(err error) bool {
	if d, ok := errors.AsType[*net.DNSError](err); ok && !d.IsNotFound {
		f, now := os.Open(os.DevNull)
		if now == nil {
			f.Close()
			return false
		}
		err = now
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && errors.Is(err, syscall.EADDRNOTAVAIL) {
		// No port is left. For IPv6 it may mean that this machine has no IPv6.
		to, ok := op.Addr.(*net.TCPAddr)
		return ok && to.IP.To4() != nil
	}
	return slices.ContainsFunc(resourceErrors, func(e error) bool { return errors.Is(err, e) })
}
