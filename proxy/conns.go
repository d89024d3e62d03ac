package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lastWait is how long the proxy waits for requests whose connections it has closed or is about to close.
const lastWait = 5 * time.Second

// A connLimit counts the open connections to the proxy's own port. One goroutine at a time
// waits for a free place.
type connLimit struct {
	mu    sync.Mutex // guards taken
	taken int
	free  chan struct{} // has a token if a place may have become free
}

// take reports whether fewer than most connections are open, and then counts one more.
func (r *connLimit) take(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken >= most {
		return false
	}
	r.taken++
	return true
}

// release counts a closed connection.
func (r *connLimit) release() {
	r.mu.Lock()
	r.taken--
	r.mu.Unlock()
	r.notify()
}

// notify wakes the goroutine that waits for a place.
func (r *connLimit) notify() {
	select {
	case r.free <- struct{}{}:
	default:
	}
}

// closeWriteOrClose closes the writing direction of c, or both if c cannot close one.
func closeWriteOrClose(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// unusedConns are the connections without a request so far. net/http would wait for them at a
// shutdown, and browsers open them before they need them.
type unusedConns struct {
	conns sync.Map
	n     atomic.Int64 // at least the number of conns
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

// close closes the connections, and those that are added from now on.
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

// give hands a connection to the inner server, and returns false after Close.
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

// Addr implements [net.Listener].
func (l *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// hijackedConns are the connections that were taken over from net/http: tunnels and upgraded connections.
type hijackedConns struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	ended bool
	all   sync.WaitGroup
}

func newHijackedConns() *hijackedConns { return &hijackedConns{open: map[net.Conn]struct{}{}} }

// add adds a connection, and returns false after close.
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

// remove removes a connection.
func (c *hijackedConns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	c.all.Done()
}

// close closes all connections, refuses further ones, and waits until their owners have removed them.
func (c *hijackedConns) close() {
	c.mu.Lock()
	c.ended = true
	for conn := range c.open {
		conn.Close()
	}
	c.mu.Unlock()
	c.all.Wait()
}
