// Package socket reads and writes TCP connections as package net does, but for what that
// costs. A socket of net's never waits inside of the system for its peer, and yet each of
// its calls is announced to Go's scheduler as one that may: where it takes longer than some
// 20 µs, as a write over loopback does on a busy machine, another thread takes over what
// else there is to do. The calls here are not announced, on Linux; while one lasts, nothing
// else runs on its thread, and the collector may wait for it. docs/performance.md says what
// that gives.
//
// Errors are package net's (*net.OpError, io.EOF), but that they call every network "tcp".
package socket

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Conn is a TCP connection of package net's. Several goroutines may use it at once, as
// any net.Conn. Make one with New.
type Conn struct {
	net.Conn // tcp, for all but what is below
	tcp      *net.TCPConn
	raw      syscall.RawConn

	// Stalled is called where a Write has to wait for the peer, by its goroutine, before it waits. It is set before
	// the connection is used; nil: nobody is told.
	Stalled func()
}

// New gives c as a *Conn where it is a *net.TCPConn, and else as it is.
func New(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil { // it is no connection, which it says at every use
		return c
	}
	return &Conn{Conn: tcp, tcp: tcp, raw: raw}
}

// SyscallConn gives the socket, for Read and Write.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// CloseWrite ends what we send and leaves the other direction open.
func (c *Conn) CloseWrite() error { return c.tcp.CloseWrite() }

// SetLinger is that of a *net.TCPConn.
func (c *Conn) SetLinger(sec int) error { return c.tcp.SetLinger(sec) }

// Splice has the system copy what comes, to the other, until the end.
func (c *Conn) Splice(to *Conn) (int64, error) { return io.Copy(to.tcp, c.tcp) }

// Read reads into b what has come, and waits where that is nothing.
func (c *Conn) Read(b []byte) (int, error) { return c.read(b, false) }

// ErrNothing is what a Glance says where nothing has come. It is Temporary, so that
// crypto/tls goes on with the connection afterwards.
var ErrNothing error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing has come" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// Glance reads into b what has come, and waits for nothing but the end of another
// goroutine's Read. It ends a read deadline that has passed.
func (c *Conn) Glance(b []byte) (int, error) {
	n, err := c.read(b, true)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.SetReadDeadline(time.Time{}) // an error shows in the read
		n, err = c.read(b, true)
	}
	return n, err
}

func (c *Conn) read(b []byte, glance bool) (int, error) {
	if len(b) == 0 {
		return c.tcp.Read(b)
	}
	r := readings.Get().(*reading)
	r.b, r.glance, r.n, r.err = b, glance, 0, nil
	err := c.raw.Read(r.step)
	n, failure := r.n, r.err
	r.b = nil
	readings.Put(r)
	switch {
	case err == nil && failure == nil && n == 0:
		return 0, io.EOF
	case err == nil && (failure == nil || failure == ErrNothing):
		return n, failure
	}
	return n, c.failed("read", err, failure)
}

// Write writes b, and waits until all of it is with the system.
func (c *Conn) Write(b []byte) (int, error) { return c.WriteBoth(b, nil) }

// WriteBoth is Write of a and then b, by one call of the system where that takes all.
func (c *Conn) WriteBoth(a, b []byte) (int, error) {
	if len(a)+len(b) == 0 {
		return c.tcp.Write(nil)
	}
	w := writings.Get().(*writing)
	w.a, w.b, w.n, w.err, w.stalled = a, b, 0, nil, c.Stalled
	err := c.raw.Write(w.step)
	n, failure := w.n, w.err
	w.a, w.b, w.stalled = nil, nil, nil
	writings.Put(w)
	if err == nil && failure == nil {
		return n, nil
	}
	return n, c.failed("write", err, failure)
}

// failed is package net's error of a call: of what a RawConn has said, or else of what the
// system has.
func (c *Conn) failed(op string, said, failure error) error {
	err := cmp.Or(said, failure)
	if e, ok := errors.AsType[*net.OpError](said); ok {
		err = e.Err
	} else if _, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, err)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Calls under way. They are kept, since what a RawConn calls would have to be allocated.
var (
	readings = sync.Pool{New: func() any {
		r := new(reading)
		r.step = r.try
		return r
	}}
	writings = sync.Pool{New: func() any {
		w := new(writing)
		w.step = w.try
		return w
	}}
)

type reading struct {
	step   func(fd uintptr) (done bool)
	b      []byte
	glance bool // not to wait
	n      int
	err    error // of the system, or ErrNothing
}

func (r *reading) try(fd uintptr) (done bool) {
	if r.n, r.err = Read(fd, r.b); r.err == syscall.EAGAIN && r.glance {
		r.err = ErrNothing
	}
	return r.err != syscall.EAGAIN
}

type writing struct {
	step func(fd uintptr) (done bool)
	a, b []byte // what is not written yet
	n    int
	err  error // of the system, or io.ErrUnexpectedEOF

	stalled func()
}

func (w *writing) try(fd uintptr) (done bool) {
	for len(w.a)+len(w.b) > 0 {
		n, err := writeBoth(fd, w.a, w.b)
		if w.err = err; err == nil && n == 0 {
			w.err = io.ErrUnexpectedEOF // as package net has it
		}
		if w.err == syscall.EAGAIN && w.stalled != nil {
			w.stalled()
		}
		if w.err != nil {
			return w.err != syscall.EAGAIN
		}
		w.n += n
		ofA := min(n, len(w.a))
		w.a, w.b = w.a[ofA:], w.b[n-ofA:]
	}
	return true
}
