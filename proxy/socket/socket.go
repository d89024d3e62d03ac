// Package socket reads and writes TCP connections like package net, at a lower cost. The sockets of
// package net never block in a system call, yet Go's runtime is told before each call that it may
// block. If the call takes longer than some 20 µs, as a write over loopback does on a busy machine,
// another thread takes over the goroutines of this one. On Linux the calls of this package do not
// tell the runtime. While one lasts, nothing else runs on its thread, and the garbage collector may
// have to wait for it. docs/performance.md has the measurements. On Windows, where such a socket may
// block, a Conn only calls package net.
//
// Errors are those of package net (*net.OpError, io.EOF), except that their network is always
// "tcp".
package socket

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// A Conn is a TCP connection of package net. Like any net.Conn it may be used by several goroutines
// at once. Make one with New.
type Conn struct {
	// The embedded Conn is tcp. It has all methods but those below.
	net.Conn
	tcp *net.TCPConn
	raw syscall.RawConn

	// OnBlocked, if not nil, is called by the goroutine of a Write that has to wait for the peer, before
	// it waits. It must be set before the connection is used.
	OnBlocked func()
	// OnClose, if not nil, is called when the connection is closed. It must be set before the connection is used.
	OnClose func()
}

// New wraps a *net.TCPConn in a *Conn and returns any other connection unchanged.
func New(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		// The connection is invalid and fails at every use.
		return c
	}
	return &Conn{Conn: tcp, tcp: tcp, raw: raw}
}

// AddrPort returns the address of a TCP connection or listener, without a zone; of anything else, the zero value.
func AddrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().WithZone("").Unmap(), at.Port())
}

// SyscallConn returns the socket, for Read and Write.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// CloseWrite closes the sending direction and leaves the other one open.
func (c *Conn) CloseWrite() error { return c.tcp.CloseWrite() }

// CloseWrite closes the sending direction of a connection of any type, and leaves the other one open. The error is
// errors.ErrUnsupported if that is not possible.
func CloseWrite(c any) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// CloseRead closes the receiving direction and leaves the other one open.
func (c *Conn) CloseRead() error { return c.tcp.CloseRead() }

// Close closes the connection.
func (c *Conn) Close() error {
	err := c.tcp.Close()
	if c.OnClose != nil && !errors.Is(err, net.ErrClosed) {
		c.OnClose()
	}
	return err
}

// SetLinger is that of *net.TCPConn.
func (c *Conn) SetLinger(sec int) error { return c.tcp.SetLinger(sec) }

// Splice copies everything received on c to another connection until the end, within the kernel if
// it can.
func (c *Conn) Splice(to *Conn) (int64, error) { return io.Copy(to.tcp, c.tcp) }

// Read reads received bytes into b, and waits if there are none.
func (c *Conn) Read(b []byte) (int, error) { return c.read(b, false) }

// ErrWouldBlock is the error of TryRead if no bytes have been received. It is Temporary, so that
// crypto/tls goes on with the connection afterwards.
var ErrWouldBlock error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "no data" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// TryRead reads received bytes into b without waiting for the peer; it waits only for the Read of
// another goroutine. It clears a read deadline that has passed.
func (c *Conn) TryRead(b []byte) (int, error) {
	n, err := c.read(b, true)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The next read returns any error.
		c.SetReadDeadline(time.Time{})
		n, err = c.read(b, true)
	}
	return n, err
}

// Write writes b and returns when the kernel has taken all of it.
func (c *Conn) Write(b []byte) (int, error) { return c.WriteBoth(b, nil) }

// failed returns the error that package net would return: for the error of a RawConn, or else for
// that of the system call.
func (c *Conn) failed(op string, rawErr, sysErr error) error {
	err := cmp.Or(rawErr, sysErr)
	if e, ok := errors.AsType[*net.OpError](rawErr); ok {
		err = e.Err
	} else if _, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, err)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
