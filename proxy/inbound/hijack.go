package inbound

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"robotsproxy/proxy/socket"
)

// closeWriteOrClose closes the sending half of c, or all of c if that is not possible.
func closeWriteOrClose(c net.Conn) error {
	if err := socket.CloseWrite(c); err != errors.ErrUnsupported {
		return err
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
