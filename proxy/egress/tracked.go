package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"

	"robotsproxy/proxy/socket"
)

// longAgo is a deadline that ends a read at once.
var longAgo = time.Unix(1, 0)

// A trackedConn is a connection to an origin, below TLS. It reports when it is closed.
type trackedConn struct {
	net.Conn

	// onClose is called each time when the connection is closed or detached; nil: the connection is not counted yet.
	onClose func()

	// peek is the socket from which Read reads without waiting; nil: Read reads as usual.
	peek *socket.Conn

	// records follows the TLS records in what was read; nil: there is no TLS.
	records *recordTracker
}

// tracked returns the trackedConn below TLS.
func tracked(conn net.Conn) *trackedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return conn.(*trackedConn)
}

// Read reads from the connection.
func (c *trackedConn) Read(b []byte) (n int, err error) {
	if c.records != nil {
		b = b[:min(len(b), c.records.maxRead())]
	}
	if c.peek != nil {
		n, err = c.peek.TryRead(b)
	} else {
		n, err = c.Conn.Read(b)
	}
	if c.records != nil {
		c.records.advance(b[:n])
	}
	return n, err
}

// detach ends the count of the connection and returns the connection below, which stays open.
func (c *trackedConn) detach() net.Conn {
	c.onClose()
	return c.Conn
}

// CloseWrite closes the sending half of the connection.
func (c *trackedConn) CloseWrite() error { return socket.CloseWrite(c.Conn) }

// Close closes the connection.
func (c *trackedConn) Close() error {
	if c.onClose != nil {
		c.onClose()
	}
	return c.Conn.Close()
}

// A recordTracker follows the boundaries of TLS records (RFC 8446 5.1) in the bytes that
// were read. It is needed because crypto/tls does not report that it holds part of a
// record.
type recordTracker struct {
	// The header of the current record, and how many of its bytes were read.
	header [5]byte
	have   int

	// How many bytes of the content of the record were not read yet.
	left int

	// The size of the last record, in bytes, including its header.
	size int
}

// smallRead bounds, in bytes, a read at the beginning of a record of unknown length. It
// holds most responses as a whole.
const smallRead = 4 << 10

// maxRead returns how many bytes to read at once so that a read ends at the end of a long
// record. crypto/tls keeps its buffer as long as the connection. It doubles the buffer, up
// to 40 KiB, if reads contain parts of several long records.
func (t *recordTracker) maxRead() int {
	switch {
	case t.left > 0:
		return t.left
	case t.have > 0:
		return len(t.header) - t.have
	}
	// Long records mostly follow records of the same size.
	return max(t.size, smallRead)
}

// advance updates the state for bytes that were read.
func (t *recordTracker) advance(b []byte) {
	for len(b) > 0 {
		if t.left > 0 {
			n := min(t.left, len(b))
			t.left -= n
			b = b[n:]
			continue
		}
		n := copy(t.header[t.have:], b)
		b = b[n:]
		if t.have += n; t.have == len(t.header) {
			t.left = int(t.header[3])<<8 | int(t.header[4])
			t.have = 0
			t.size = len(t.header) + t.left
		}
	}
}

// atBoundary reports whether the last record is complete.
func (t *recordTracker) atBoundary() bool { return t.have == 0 && t.left == 0 }

// An idleWatch reads from an idle connection of HTTP/1.1. It reads what TLS sends after the handshake
// (session tickets), and notices when the peer closes the connection. Its owner calls run on a
// separate goroutine.
type idleWatch struct {
	conn net.Conn

	// run closes done when it returns.
	done chan struct{}

	// alive says that the peer neither sent data nor closed the connection. run sets it before it closes done.
	alive bool
}

// newIdleWatch creates the watch of conn. The watch ends at deadline.
func newIdleWatch(conn net.Conn, deadline time.Time) *idleWatch {
	// This fails only if the connection is closed, which the read then finds.
	conn.SetReadDeadline(deadline)
	return &idleWatch{conn: conn, done: make(chan struct{})}
}

// run reads until the deadline, or until stop.
func (w *idleWatch) run() {
	var b [1]byte
	n, err := w.conn.Read(b[:])
	w.alive = n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	close(w.done)
}

// stop ends the watch and reports whether the connection can take a request.
func (w *idleWatch) stop() bool {
	// A read that times out does not harm TLS.
	err := w.conn.SetReadDeadline(longAgo)
	<-w.done
	return err == nil && w.alive && w.conn.SetReadDeadline(time.Time{}) == nil
}
