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

// A tunnelConn is a client's connection after its CONNECT was answered: the
// octets that the server had read ahead come first.
type tunnelConn struct {
	net.Conn
	buffered  *bufio.Reader
	pass      policy.Pass // how who asked for it was let in
	let       atomic.Pointer[letIn]
	origin    robots.Origin // that CONNECT named; its scheme is a guess
	authority string        // the same as a Host header has it
	secure    bool          // the client speaks TLS in it
	named     string        // the host that it names in that; "": none
	kind      *tally        // counts it
	held      memory.Work   // of one that is opened: counts for the client until Close
	once      sync.Once
}

// A letIn is who a tunnel belongs to, and so all that comes out of it.
type letIn struct {
	client string
	reign  uint64 // number of the last that it was asked of
}

// who is the client that the tunnel belongs to in a reign. The error is the
// policy's, of one who would not be let in any more as it was.
func (c *tunnelConn) who(r *reign) (client string, err error) {
	let := c.let.Load()
	if let.reign >= r.number {
		return let.client, nil
	}
	if client, err = r.Engine.Readmit(c.pass); err == nil {
		c.let.Store(&letIn{client, r.number})
	}
	return client, err
}

// Read reads what came behind the CONNECT, then the connection.
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
		c.held.End()
		c.kind.end()
	})
	return c.Conn.Close()
}

// CloseWrite ends what we send and leaves the other direction open.
func (c *tunnelConn) CloseWrite() error { return endWriting(c.Conn) }

// A handoff is the inner server's listener: connections come out of tunnels.
type handoff struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), ended: make(chan struct{})}
}

// give hands a connection to the inner server; false when that has ended.
func (l *handoff) give(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.ended:
		return false
	}
}

// Accept takes the next connection.
func (l *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close ends the listener.
func (l *handoff) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

// Addr names the listener in net/http's words.
func (l *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// connections are those that net/http no longer knows of: hijacked ones.
type connections struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	ended bool
	all   sync.WaitGroup
}

func newConnections() *connections { return &connections{open: map[net.Conn]struct{}{}} }

// add notes a connection; false when no more are taken.
func (c *connections) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.open[conn] = struct{}{}
	c.all.Add(1)
	return true
}

func (c *connections) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	c.all.Done()
}

// close closes all, takes no more, and waits until their owners have let go.
func (c *connections) close() {
	c.mu.Lock()
	c.ended = true
	for conn := range c.open {
		conn.Close()
	}
	c.mu.Unlock()
	c.all.Wait()
}
