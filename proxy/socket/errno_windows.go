package socket

import "golang.org/x/sys/windows"

// The errors of sockets, which have other numbers on each system. On Windows those of package syscall never occur.
const (
	EADDRINUSE    = windows.WSAEADDRINUSE
	EADDRNOTAVAIL = windows.WSAEADDRNOTAVAIL
	EAFNOSUPPORT  = windows.WSAEAFNOSUPPORT
	ECONNREFUSED  = windows.WSAECONNREFUSED
	ECONNRESET    = windows.WSAECONNRESET
	EHOSTUNREACH  = windows.WSAEHOSTUNREACH
	EMFILE        = windows.WSAEMFILE
	ENETUNREACH   = windows.WSAENETUNREACH
	ENFILE        = windows.ERROR_NO_SYSTEM_RESOURCES
	ENOBUFS       = windows.WSAENOBUFS
	ENOMEM        = windows.ERROR_NOT_ENOUGH_MEMORY
	EPIPE         = windows.WSAECONNABORTED
)
