package egress

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
)

// ErrExhausted marks what this machine had no room for: it may open no more
// files, or has no port or memory left for a connection.
var ErrExhausted = errors.New("this machine has no room for another connection")

// LocalError says of an error whether our own way out has failed, by ErrParent or
// ErrExhausted: no origin is to blame for it, and nothing is learnt of one.
func LocalError(err error) bool { return errors.Is(err, ErrParent) || errors.Is(err, ErrExhausted) }

// noRoom are the errors of a system that has none.
var noRoom = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// exhausted says whether a dial failed for want of room. The resolver tells its
// errors in words, so that one of its is held against what the system says now.
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
		// No port is left; for IPv6 it may be that this machine speaks none.
		to, ok := op.Addr.(*net.TCPAddr)
		return ok && to.IP.To4() != nil
	}
	return slices.ContainsFunc(noRoom, func(e error) bool { return errors.Is(err, e) })
}
