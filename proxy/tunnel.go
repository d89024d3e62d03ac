package proxy

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/robots"
)

// A tunnelConn is a client's connection after its CONNECT was answered. It returns first the
// bytes that the server has read ahead.
type tunnelConn struct {
	net.Conn
	buffered   *bufio.Reader
	pass       policy.Pass // how the client was admitted
	admitted   atomic.Pointer[admission]
	origin     robots.Origin // that the CONNECT named; its scheme is a guess
	authority  string        // origin, as in a Host header
	redirect   *redirect     // where its client was connecting to; nil: to the proxy
	secure     bool          // the client speaks TLS in it
	serverName string        // the server name of the TLS handshake; "": none
	counter    *flowCounter  // counts the tunnel
	memory     memory.Work   // what an intercepted tunnel counts as until Close
	once       sync.Once
}

// An admission is the client that a tunnel belongs to, with all requests in it.
type admission struct {
	client     string
	generation uint64 // number of the latest generation under which the client was admitted
}

// owner returns the client that the tunnel belongs to under g. The error is the policy's for
// a client that would not be admitted any more as it was.
func (c *tunnelConn) owner(g *generation) (client string, err error) {
	let := c.admitted.Load()
	if let.generation >= g.number {
		return let.client, nil
	}
	if client, err = g.Engine.Readmit(c.pass); err == nil {
		c.admitted.Store(&admission{client, g.number})
	}
	return client, err
}

// Read reads what was read ahead, then the connection.
func (c *tunnelConn) Read(b []byte) (int, error) {
	if c.buffered != nil {
		if c.buffered.Buffered() > 0 {
			return c.buffered.Read(b[:min(len(b), c.buffered.Buffered())])
		}
		c.buffered = nil
	}
	return c.Conn.Read(b)
}

// Close closes the connection.
func (c *tunnelConn) Close() error {
	c.once.Do(func() {
		c.memory.End()
		c.counter.end()
	})
	return c.Conn.Close()
}

// CloseWrite closes the writing direction.
func (c *tunnelConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }
