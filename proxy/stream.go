package proxy

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A streamConn is the connection inside a CONNECT that came as a stream of
// HTTP/2 (RFC 9113 8.5): a pipe for each direction, whose other ends the
// exchange's pumps join to the stream. A stream's own deadlines cannot be taken
// back, as net/http does with those of a connection. What is sent to the client
// ends with the stream, and so with both directions.
type streamConn struct {
	net.Conn          // what is sent
	received net.Conn // what is read
	remote   net.Addr
	client   *http.ResponseController
	broken   atomic.Bool // the stream is to be reset

	mu          sync.Mutex
	streamEnded bool // nothing more is written to the stream, which may have ended
}

func (c *streamConn) RemoteAddr() net.Addr { return c.remote }

func (c *streamConn) Read(b []byte) (int, error) { return c.received.Read(b) }

func (c *streamConn) SetReadDeadline(t time.Time) error { return c.received.SetReadDeadline(t) }

func (c *streamConn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetWriteDeadline(t), c.received.SetReadDeadline(t))
}

// Close ends both directions. What is still to be written to the stream gets
// a little time.
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

// remoteAddr is where a request came from, as an address.
func remoteAddr(r *http.Request) net.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(at)
}
