//go:build unix && !plainsockets

package socket

import (
	"io"
	"sync"
	"syscall"
)

// Direct reports whether Read, Write and TryRead work. They do where a socket never blocks.
const Direct = true

func (c *Conn) read(b []byte, noWait bool) (int, error) {
	if len(b) == 0 {
		return c.tcp.Read(b)
	}
	r := readCalls.Get().(*readCall)
	r.b, r.noWait, r.n, r.err = b, noWait, 0, nil
	err := c.raw.Read(r.step)
	n, sysErr := r.n, r.err
	r.b = nil
	readCalls.Put(r)
	switch {
	case err == nil && sysErr == nil && n == 0:
		return 0, io.EOF
	case err == nil && (sysErr == nil || sysErr == ErrWouldBlock):
		return n, sysErr
	}
	return n, c.failed("read", err, sysErr)
}

// WriteBoth writes a and then b, in one system call if the kernel takes both.
func (c *Conn) WriteBoth(a, b []byte) (int, error) {
	if len(a)+len(b) == 0 {
		return c.tcp.Write(nil)
	}
	w := writeCalls.Get().(*writeCall)
	w.a, w.b, w.n, w.err, w.onBlocked = a, b, 0, nil, c.OnBlocked
	err := c.raw.Write(w.step)
	n, sysErr := w.n, w.err
	w.a, w.b, w.onBlocked = nil, nil, nil
	writeCalls.Put(w)
	if err == nil && sysErr == nil {
		return n, nil
	}
	return n, c.failed("write", err, sysErr)
}

// Pools of calls: without them the function that a RawConn calls would be allocated for each call.
var (
	readCalls = sync.Pool{New: func() any {
		r := new(readCall)
		r.step = r.try
		return r
	}}
	writeCalls = sync.Pool{New: func() any {
		w := new(writeCall)
		w.step = w.try
		return w
	}}
)

type readCall struct {
	step   func(fd uintptr) (done bool)
	b      []byte
	noWait bool
	n      int

	// err is that of the system call, or ErrWouldBlock.
	err error
}

func (r *readCall) try(fd uintptr) (done bool) {
	if r.n, r.err = Read(fd, r.b); r.err == syscall.EAGAIN && r.noWait {
		r.err = ErrWouldBlock
	}
	return r.err != syscall.EAGAIN
}

type writeCall struct {
	step func(fd uintptr) (done bool)

	// a and b are what is not written yet.
	a, b []byte
	n    int

	// err is that of the system call, or io.ErrUnexpectedEOF.
	err error

	onBlocked func()
}

func (w *writeCall) try(fd uintptr) (done bool) {
	for len(w.a)+len(w.b) > 0 {
		n, err := writeBoth(fd, w.a, w.b)
		if w.err = err; err == nil && n == 0 {
			// Package net does the same.
			w.err = io.ErrUnexpectedEOF
		}
		if w.err == syscall.EAGAIN && w.onBlocked != nil {
			w.onBlocked()
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
