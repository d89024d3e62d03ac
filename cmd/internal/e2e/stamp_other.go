//go:build !linux

package e2e

import (
	"net"
	"syscall"
	"time"
)

// stampNew has nothing to ask of other kernels.
func stampNew(_, _ string, _ syscall.RawConn) error { return nil }

// readStamped reads and takes the time itself.
func readStamped(c *net.TCPConn, b []byte) (int, time.Time, error) {
	n, err := c.Read(b)
	return n, time.Now(), err
}
