//go:build unix

package egress

import "syscall"

// peeked reports whether there is something to read.
func peeked(fd uintptr) bool {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n > 0 || err != syscall.EAGAIN
}
