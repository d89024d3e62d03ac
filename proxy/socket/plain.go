//go:build windows || plainsockets

package socket

import (
	"errors"
	"net"
)

// Direct is false: on Windows a socket blocks in a system call that does not go through the runtime.
const Direct = false

// Read returns errors.ErrUnsupported.
func Read(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// Write returns errors.ErrUnsupported.
func Write(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// read is that of package net. It cannot read without waiting.
func (c *Conn) read(b []byte, noWait bool) (int, error) {
	if noWait {
		return 0, errors.ErrUnsupported
	}
	return c.tcp.Read(b)
}

// WriteBoth writes a and then b, in one system call. It does not call OnBlocked.
func (c *Conn) WriteBoth(a, b []byte) (int, error) {
	if len(b) == 0 {
		return c.tcp.Write(a)
	}
	both := net.Buffers{a, b}
	n, err := both.WriteTo(c.tcp)
	return int(n), err
}
