//go:build unix && !plainsockets && (!linux || race || msan || asan)

package socket

import "syscall"

// Read reads from a socket of package net, by its descriptor, into b. It never blocks: if nothing
// has been received its error is syscall.EAGAIN.
func Read(fd uintptr, b []byte) (int, error) { return call(syscall.Read, fd, b) }

// Write writes to a socket of package net, by its descriptor, as many bytes of b as the kernel
// takes at once. It never blocks: if the kernel takes none its error is syscall.EAGAIN.
func Write(fd uintptr, b []byte) (int, error) { return call(syscall.Write, fd, b) }

// writeBoth writes bytes of a or, if a is empty, of b.
func writeBoth(fd uintptr, a, b []byte) (int, error) {
	if len(a) == 0 {
		a = b
	}
	return Write(fd, a)
}

// call repeats a system call that a signal interrupts.
func call(what func(fd int, b []byte) (int, error), fd uintptr, b []byte) (int, error) {
	for {
		if n, err := what(int(fd), b); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
