package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lastWait is how long the proxy waits for requests whose connections it has closed or is about to close.
const lastWait = 5 * time.Second

// A connLimit has a place for each open connection, as many as the Rules say. One
// waits for a place at a time.
type connLimit struct {
	mu    sync.Mutex // guards taken
	taken int
	free  chan struct{} // holds one token: there may be a place
}

// take takes one of so many places, if one is free.
func (r *connLimit) take(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken >= most {
		return false
	}
	r.taken++
	return true
}

func (r *connLimit) release() {
	r.mu.Lock()
	r.taken--
	r.mu.Unlock()
	r.notify()
}

// notify has who waits look again.
func (r *connLimit) notify() {
	select {
	case r.free <- struct{}{}:
	default:
	}
}

// closeWriteOrClose ends one direction of a connection, of one that cannot do that both.
func closeWriteOrClose(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// unusedConns are the connections that have not asked for anything yet. net/http
// would wait for them at a shutdown, and browsers make them ahead of need.
type unusedConns struct {
	conns sync.Map
	n     atomic.Int64 // of conns, or more
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

// remove removes a connection, and reports whether it was one of them.
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

// close closes them, and those that come from now on.
func (u *unusedConns) close() {
	u.ended.Store(true)
	u.conns.Range(func(c, _ any) bool {
		c.(net.Conn).Close()
		return true
	})
}

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

// hijackedConns are those that net/http no longer knows of: hijacked ones.
type hijackedConns struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	ended bool
	all   sync.WaitGroup
}

func newHijackedConns() *hijackedConns { return &hijackedConns{open: map[net.Conn]struct{}{}} }

// add notes a connection; false when no more are taken.
func (c *hijackedConns) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.open[conn] = struct{}{}
	c.all.Add(1)
	return true
}

func (c *hijackedConns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	c.all.Done()
}

// close closes all, takes no more, and waits until their owners have let go.
func (c *hijackedConns) close() {
	c.mu.Lock()
	c.ended = true
	for conn := range c.open {
		conn.Close()
	}
	c.mu.Unlock()
	c.all.Wait()
}
