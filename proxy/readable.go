package proxy

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitReadable waits until src has something to read, or its end, or its read
// deadline. It keeps nothing while it waits, where the kernel's own copying
// (splice) keeps a pipe: two more descriptors for each direction of a tunnel.
// What is no socket is not waited for.
func awaitReadable(src io.Reader) error {
	socket, ok := src.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		var octet [1]byte
		_, _, err := unix.Recvfrom(int(fd), octet[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR // any other outcome is the next read's to see
	})
}
