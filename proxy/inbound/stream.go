package inbound

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lastWait is how long a connection that is about to end may still send, or take what was sent.
const lastWait = 5 * time.Second

// A streamConn is the connection inside a CONNECT that arrived as a stream of HTTP/2 (RFC 9113 8.5).
// It has a pipe for each direction, and acceptStream starts the goroutines that copy between the pipes
// and the stream. The pipes are needed because a deadline of a stream cannot be removed again, as
// net/http does with deadlines of connections. The sending half cannot be closed alone: it ends with
// the stream.
type streamConn struct {
	// Conn writes to the client, and received reads from it.
	net.Conn
	received net.Conn
	remote   net.Addr
	client   *http.ResponseController

	// broken says that the stream must be reset.
	broken atomic.Bool

	// mu guards streamEnded, which says that nothing more is written to the stream.
	mu          sync.Mutex
	streamEnded bool
}

func (c *streamConn) RemoteAddr() net.Addr { return c.remote }

func (c *streamConn) Read(b []byte) (int, error) { return c.received.Read(b) }

func (c *streamConn) SetReadDeadline(t time.Time) error { return c.received.SetReadDeadline(t) }

func (c *streamConn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetWriteDeadline(t), c.received.SetReadDeadline(t))
}

// Close closes both directions. Bytes that were not written to the stream yet get at most
// lastWait.
func (c *streamConn) Close() error {
	c.mu.Lock()
	if !c.streamEnded {
		c.client.SetWriteDeadline(time.Now().Add(lastWait))
	}
	c.mu.Unlock()
	return errors.Join(c.Conn.Close(), c.received.Close())
}

func (c *streamConn) end() {
	c.mu.Lock()
	c.streamEnded = true
	c.mu.Unlock()
}
