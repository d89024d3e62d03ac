//go:build !linux

package e2e

import (
	"net"
	"syscall"
	"time"
)

// stampNew does nothing: only the Linux kernel is asked for time stamps.
func stampNew(_, _ string, _ syscall.RawConn) error { return nil }

// readStamped reads and returns the current time.
func readStamped(c *net.TCPConn, b []byte) (int, time.Time, error) {
	n, err := c.Read(b)
	return n, time.Now(), err
}
