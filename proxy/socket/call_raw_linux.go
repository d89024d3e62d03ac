//go:build !race && !msan && !asan

package socket

import (
	"syscall"
	"unsafe"
)

// Read reads from a socket of package net into b, by its descriptor. It never waits:
// where nothing has come its error is syscall.EAGAIN.
func Read(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

// Write writes as much of b to a socket of package net, by its descriptor, as that takes
// at once. It never waits: where that is nothing its error is syscall.EAGAIN.
func Write(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

// writeBoth is Write of what is in a and then b.
func writeBoth(fd uintptr, a, b []byte) (int, error) {
	if len(b) == 0 {
		return Write(fd, a)
	}
	both := [2]syscall.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	both[0].SetLen(len(a))
	both[1].SetLen(len(b))
	return call(syscall.SYS_WRITEV, fd, unsafe.Pointer(&both), len(both))
}

func call(number, fd uintptr, p unsafe.Pointer, n int) (int, error) {
	for {
		done, _, err := syscall.RawSyscall(number, fd, uintptr(p), uintptr(n))
		switch err {
		case 0:
			return int(done), nil
		case syscall.EINTR:
		default:
			return 0, err
		}
	}
}
