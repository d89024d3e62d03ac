package e2e

import (
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"
)

// stampNew asks the kernel for the arrival time of each segment: on a busy machine a goroutine
// may read a request long after it arrived.
func stampNew(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
	})
	if err != nil {
		return err
	}
	return failed
}

// readStamped reads from the connection and returns the arrival time of the bytes.
func readStamped(c *net.TCPConn, b []byte) (n int, at time.Time, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, time.Time{}, err
	}
	var oob [64]byte
	var oobn int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, failed = syscall.Recvmsg(int(fd), b, oob[:], 0)
			if failed != syscall.EINTR {
				return failed != syscall.EAGAIN
			}
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, time.Time{}, err
	}
	if n == 0 {
		return 0, time.Time{}, io.EOF
	}
	return n, kernelTime(oob[:oobn]), nil
}

// kernelTime returns the receive time in the control messages, or the current time without one.
func kernelTime(oob []byte) time.Time {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SO_TIMESTAMPNS &&
			len(m.Data) >= int(unsafe.Sizeof(syscall.Timespec{})) {
			ts := *(*syscall.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix())
		}
	}
	return time.Now()
}
