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
	buffered *bufio.Reader

	// How the client was admitted.
	pass     policy.Pass
	admitted atomic.Pointer[admission]

	// The origin in the CONNECT; its scheme is a guess.
	origin robots.Origin

	// origin in the form of a Host header.
	authority string

	// The connection to the proxy's own port that carries the tunnel.
	outer *clientConn

	// Original destination of the connection; nil: the client connected to the proxy.
	redirect *redirect

	// When the TLS handshake in the tunnel ended; zero: the client speaks no TLS in it.
	secured time.Time

	// The server name of the TLS handshake; "": none.
	serverName string

	// Counts the tunnel.
	counter *flowCounter

	// An intercepted tunnel in the memory budget, until Close.
	memory memory.Work

	// A request has arrived.
	used atomic.Bool

	// Close calls it if none has; nil: it calls nothing.
	onUnused func()

	// Of the connections to origins that carry the client's login, until Close.
	logins egress.Owner
	once   sync.Once
}

// An admission is the client to which a tunnel and all its requests belong.
type admission struct {
	client string

	// The latest generation under which the client was admitted.
	generation uint64
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
