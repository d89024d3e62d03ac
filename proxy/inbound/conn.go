package inbound

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
)

// A Conn is a client's connection to the proxy's own port.
type Conn struct {
	net.Conn

	// OverLimit says that the client has too many connections, and that the requests of this one must be refused.
	OverLimit bool

	server  *Server
	handler Handler

	// redirect is the original destination of the connection; nil: the client connected to the proxy.
	redirect *redirect

	// share is the key of the share for which the connection is counted, and closed says that it is not counted any more.
	// Both are guarded by the lock of clientConns.
	share  string
	closed bool

	// requests is the number of requests in progress, also in the tunnel that the connection has become. idleSince is when
	// the last of them ended, or the connection was accepted, in nanoseconds since 1970.
	requests  atomic.Int32
	idleSince atomic.Int64

	// memory is the connection in the memory budget, for the share of the address, until Close. It is zero if unbudgeted is
	// set, because the budget had no space.
	memory     memory.Work
	unbudgeted bool
	once       sync.Once
}

// CountFor counts the connection for a share, that of its client, whose name is now known. It returns false if that share
// has its maximum of connections.
func (c *Conn) CountFor(share string) bool {
	all := &c.server.conns
	all.mu.Lock()
	defer all.mu.Unlock()
	// With HTTP/2, a request may outlive its connection.
	if c.closed || share == c.share {
		return true
	}
	if all.of[share] >= c.server.o.Rules().MaxConnsPerClient {
		return false
	}
	all.add(c.share, -1)
	all.add(share, 1)
	c.share = share
	return true
}

// begin counts a request in progress, until end.
func (c *Conn) begin() { c.requests.Add(1) }

// end counts a request that has ended.
func (c *Conn) end() {
	c.idleSince.Store(time.Now().UnixNano())
	c.requests.Add(-1)
}

// isIdle reports whether the connection has carried no request since a time, in nanoseconds since 1970.
func (c *Conn) isIdle(since int64) bool {
	return c.requests.Load() == 0 && c.idleSince.Load() <= since
}

// Redirected reports whether a firewall has redirected the connection to the proxy, so that its client does not know of
// the proxy.
func (c *Conn) Redirected() bool { return c.redirect != nil }

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.handler.Closed()
		c.memory.End()
		if c.redirect != nil && c.redirect.release != nil {
			c.redirect.release()
		}
		if c.unbudgeted {
			c.server.conns.overMemory.Add(-1)
		}
		c.server.conns.forget(c)
		c.server.counts.conns.End()
		c.server.limit.release()
	})
	return err
}

// CloseWrite closes the writing direction.
func (c *Conn) CloseWrite() error { return closeWriteOrClose(c.Conn) }
