//go:build !plainsockets && !race && !msan && !asan

package socket

import (
	"syscall"
	"unsafe"
)

// Read reads from a socket of package net, by its descriptor, into b. It never blocks: if nothing
// has been received its error is syscall.EAGAIN.
func Read(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

// Write writes to a socket of package net, by its descriptor, as many bytes of b as the kernel
// takes at once. It never blocks: if the kernel takes none its error is syscall.EAGAIN.
func Write(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

// writeBoth writes bytes of a and then of b in one system call.
func writeBoth(fd uintptr, a, b []byte) (int, error) {
	if len(b) == 0 {
		return Write(fd, a)
	}
	both := [2]syscall.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	both[0].SetLen(len(a))
	both[1].SetLen(len(b))
	return call(syscall.SYS_WRITEV, fd, unsafe.Pointer(&both), len(both))
}

// call makes a system call without telling the runtime, and repeats it if a signal interrupts it.
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
