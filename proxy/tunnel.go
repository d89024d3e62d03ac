package proxy

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
)

// A tunnelConn is a client's connection after its CONNECT was answered. Its first reads
// return the bytes that the server has read ahead.
type tunnelConn struct {
	net.Conn
	buffered   *bufio.Reader
	pass       policy.Pass // how the client was admitted
	admitted   atomic.Pointer[admission]
	origin     robots.Origin // the origin in the CONNECT; its scheme is a guess
	authority  string        // origin in the form of a Host header
	outer      *clientConn   // the connection to the proxy's own port that carries the tunnel
	redirect   *redirect     // original destination of the connection; nil: the client connected to the proxy
	secured    time.Time     // when the TLS handshake in the tunnel ended; zero: the client speaks no TLS in it
	serverName string        // the server name of the TLS handshake; "": none
	counter    *flowCounter  // counts the tunnel
	memory     memory.Work   // an intercepted tunnel in the memory budget, until Close
	used       atomic.Bool   // a request has arrived
	onUnused   func()        // Close calls it if none has; nil: it calls nothing
	logins     egress.Owner  // of the connections to origins that carry the client's login, until Close
	once       sync.Once
}

// An admission is the client to which a tunnel and all its requests belong.
type admission struct {
	client     string
	generation uint64 // the latest generation under which the client was admitted
}

// owner returns the client to which the tunnel belongs under g. It returns an error of the
// policy if the client would not be admitted in the same way any more. A later generation may
// have admitted the client under another name, which g does not know.
func (c *tunnelConn) owner(g *generation) (client string, err error) {
	let := c.admitted.Load()
	if let.generation == g.number {
		return let.client, nil
	}
	if client, err = g.Engine.Readmit(c.pass); err != nil {
		return "", err
	}
	for let.generation < g.number && !c.admitted.CompareAndSwap(let, &admission{client, g.number}) {
		let = c.admitted.Load()
	}
	return client, nil
}

// Read returns the bytes that were read ahead, then reads from the connection.
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
		if c.onUnused != nil && !c.used.Load() {
			c.onUnused()
		}
		c.logins.End()
		c.memory.End()
		c.counter.end()
	})
	return c.Conn.Close()
}

// CloseWrite closes the sending half of the connection.
func (c *tunnelConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }
