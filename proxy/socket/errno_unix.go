//go:build unix

package socket

import "syscall"

// The errors of sockets, which have other numbers on each system. On Windows those of package syscall never occur.
const (
	EADDRINUSE    = syscall.EADDRINUSE
	EADDRNOTAVAIL = syscall.EADDRNOTAVAIL
	EAFNOSUPPORT  = syscall.EAFNOSUPPORT
	ECONNREFUSED  = syscall.ECONNREFUSED
	ECONNRESET    = syscall.ECONNRESET
	EHOSTUNREACH  = syscall.EHOSTUNREACH
	EMFILE        = syscall.EMFILE
	ENETUNREACH   = syscall.ENETUNREACH
	ENFILE        = syscall.ENFILE
	ENOBUFS       = syscall.ENOBUFS
	ENOMEM        = syscall.ENOMEM
	EPIPE         = syscall.EPIPE
)
