package inbound

import (
	"net"
	"sync"
	"sync/atomic"
)

// closeWriteOrClose closes the sending half of c, or all of c if that is not possible.
func closeWriteOrClose(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// closeConn closes all of c.
func closeConn(c net.Conn) { c.Close() }

// unusedConns are the connections that have not carried a request yet. Browsers open them in
// advance, and net/http would wait for them at a shutdown.
type unusedConns struct {
	conns sync.Map

	// n is at least the number of conns.
	n     atomic.Int64
	ended atomic.Bool
}

// add adds a connection.
func (u *unusedConns) add(c net.Conn) {
	u.n.Add(1)
	u.conns.Store(c, nil)
	if u.ended.Load() {
		c.Close()
	}
}

// remove removes a connection and reports whether it was present.
func (u *unusedConns) remove(c net.Conn) bool {
	if u.n.Load() == 0 {
		return false
	}
	_, was := u.conns.LoadAndDelete(c)
	if was {
		u.n.Add(-1)
	}
	return was
}

// close closes the connections and those that are added later.
func (u *unusedConns) close() {
	u.ended.Store(true)
	u.conns.Range(func(c, _ any) bool {
		c.(net.Conn).Close()
		return true
	})
}

// A handoff is the listener of the inner server. Its connections are those inside intercepted tunnels.
type handoff struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), ended: make(chan struct{})}
}

// give passes a connection to the inner server. It returns false after Close.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.ended:
		return false
	}
}

// isEnded reports whether Close was called.
func (h *handoff) isEnded() bool {
	select {
	case <-h.ended:
		return true
	default:
		return false
	}
}

// Accept returns the next connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.ended) })
	return nil
}

// Addr implements [net.Listener].
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// hijackedConns are the connections that were taken over from net/http: tunnels and upgraded connections.
type hijackedConns struct {
	mu sync.Mutex

	// open has the connections, and how close ends each.
	open  map[net.Conn]func(net.Conn)
	ended bool
	all   sync.WaitGroup
}

func newHijackedConns() *hijackedConns { return &hijackedConns{open: map[net.Conn]func(net.Conn){}} }

// add adds a connection, which close ends with end. It returns false after close.
func (c *hijackedConns) add(conn net.Conn, end func(net.Conn)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.open[conn] = end
	c.all.Add(1)
	return true
}

// remove removes a connection.
func (c *hijackedConns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	c.all.Done()
}

// close ends all connections and refuses further ones. It waits until their owners have removed
// them.
func (c *hijackedConns) close() {
	c.mu.Lock()
	c.ended = true
	for conn, end := range c.open {
		end(conn)
	}
	c.mu.Unlock()
	c.all.Wait()
}
