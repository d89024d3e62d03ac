//go:build !linux || race || msan || asan

package socket

import "syscall"

// Read reads from a socket of package net into b, by its descriptor. It never waits:
// where nothing has come its error is syscall.EAGAIN.
func Read(fd uintptr, b []byte) (int, error) { return call(syscall.Read, fd, b) }

// Write writes as much of b to a socket of package net, by its descriptor, as that takes
// at once. It never waits: where that is nothing its error is syscall.EAGAIN.
func Write(fd uintptr, b []byte) (int, error) { return call(syscall.Write, fd, b) }

// writeBoth is Write of what is in a, or, where that is nothing, in b.
func writeBoth(fd uintptr, a, b []byte) (int, error) {
	if len(a) == 0 {
		a = b
	}
	return Write(fd, a)
}

func call(what func(fd int, b []byte) (int, error), fd uintptr, b []byte) (int, error) {
	for {
		if n, err := what(int(fd), b); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
