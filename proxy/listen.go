package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/socket"
)

// minIdle is how long a connection must carry no request before it is closed to make room for another. A shorter time
// would hit clients that are about to send a request.
const minIdle = time.Second

// maxRefusedConns limits the connections that stay open only so that their requests are refused:
// those over a client's limit, and those that the memory budget has no space for. Further ones
// are closed at once.
const maxRefusedConns = 16

// A listener accepts connections up to a limit for all clients together and a limit for each
// client. At the first limit, idle connections of the client with the most connections make room for further ones; see
// clientConns.makeRoom. Over the second limit, requests are refused. Both limits hold for all listeners of a Handler
// together. Until the client's name is known, its connections count by address (policy.Engine.AddressShare).
// The memory budget always counts them so. A connection that it has no space for
// is closed, except for a few whose requests are refused.
type listener struct {
	net.Listener
	h        *Handler
	fullLog  logThrottle
	errorLog logThrottle

	ended chan struct{}
	end   sync.Once
}

func (h *Handler) newListener(l net.Listener) *listener {
	return &listener{Listener: l, h: h, ended: make(chan struct{})}
}

// maxPerClient returns how many connections one client may have.
func (l *listener) maxPerClient() int { return l.h.rules.active.Load().MaxConnsPerClient }

// errNoPlace says that all places are taken, and that the client has more than its share of them.
var errNoPlace = errors.New("no place for another connection of the client")

// waitForPlace waits until a connection that counts for share may be served. The error is errNoPlace, or net.ErrClosed if the
// listener is closed.
func (l *listener) waitForPlace(share string) error {
	for waited := false; ; waited = true {
		most := l.h.rules.active.Load().MaxConns
		if l.h.connLimit.take(most) {
			if waited {
				// Another listener may wait too, and there may be more slots.
				l.h.connLimit.notify()
			}
			return nil
		}
		l.h.counts.fullAt.Store(time.Now().UnixNano())
		if l.fullLog.allow() {
			l.h.o.Log.Warn("limits.connections reached", "connections", most)
		}
		idle, fair := l.h.clientConns.makeRoom(share, most)
		if len(idle) == 0 && !fair {
			return errNoPlace
		}
		for _, c := range idle {
			l.h.counts.evicted.Add(1)
			c.Close()
		}
		if len(idle) > 0 {
			continue
		}
		select {
		case <-l.h.connLimit.free:
		// Some may have become idle.
		case <-time.After(minIdle):
		case <-l.ended:
			return net.ErrClosed
		}
	}
}

// Accept waits for a connection, then for a place for it. It logs and returns an error of the
// system, for example too many open files. net/http then tries again after a while.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.acceptFailed(err)
			}
			return nil, err
		}
		client := addressOf(conn.RemoteAddr().String())
		c := &clientConn{Conn: socket.New(conn), listener: l, share: l.h.rules.active.Load().Engine.AddressShare(client)}
		c.client.Store(&client)
		switch err := l.waitForPlace(c.share); err {
		case nil:
		case errNoPlace:
			l.h.counts.closed.Add(1)
			conn.Close()
			continue
		default:
			conn.Close()
			return nil, err
		}
		l.h.counts.conns.begin()
		if c.memory, err = l.h.o.Memory.Open(c.share, time.Now()); err != nil {
			// Otherwise its requests are refused.
			if c.unbudgeted = l.h.clientConns.overMemory.Add(1) <= maxRefusedConns; !c.unbudgeted {
				l.h.clientConns.overMemory.Add(-1)
				l.h.clientConns.open(c)
				c.Close()
				continue
			}
		}
		switch over := l.h.clientConns.open(c) - l.maxPerClient(); {
		case over > maxRefusedConns:
			l.h.counts.closed.Add(1)
			c.Close()
			continue
		case over > 0:
			l.h.counts.answered.Add(1)
			c.tooMany = true
		}
		return c, nil
	}
}

// acceptFailed counts and logs an error of the system.
func (l *listener) acceptFailed(err error) {
	l.h.counts.failed.Add(1)
	if l.errorLog.allow() {
		l.h.o.Log.Warn("accept failed", "error", err)
	}
}

func (l *listener) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

// A clientConn is a client's connection to the proxy's own port.
type clientConn struct {
	net.Conn
	listener *listener

	// Original destination of the connection; nil: the client connected to the proxy.
	redirect *redirect

	// The client; changed under the lock of clientConns.
	client atomic.Pointer[string]

	// Key of the share for which the connection is counted; guarded by the lock of clientConns.
	share string

	// The connection is over its client's limit.
	tooMany bool

	// The connection is not counted any more; guarded by the lock of clientConns.
	closed bool

	// requests in progress, also in the tunnel that the connection has become.
	requests atomic.Int32

	// When the last of them ended, or the connection was accepted, in nanoseconds since 1970.
	idleSince atomic.Int64

	// The connection in the memory budget, for the share of the address, until Close.
	memory memory.Work

	// memory is zero, because the budget had no space.
	unbudgeted bool

	// Of the connections to origins that carry the client's login, until Close.
	logins egress.Owner
	once   sync.Once
}

// assign counts the connection for client, whose name is now known. It returns false if
// client already has its maximum.
func (c *clientConn) assign(client string) bool {
	if *c.client.Load() == client {
		return true
	}
	all := &c.listener.h.clientConns
	all.mu.Lock()
	defer all.mu.Unlock()
	before := *c.client.Load()
	// Another request of the connection has done it; or, with HTTP/2, outlives it.
	if before == client || c.closed {
		return true
	}
	if share := policy.ShareKey(client); share != c.share {
		if all.of[share] >= c.listener.maxPerClient() {
			return false
		}
		all.add(c.share, -1)
		all.add(share, 1)
		c.share = share
	}
	c.client.Store(&client)
	return true
}

// begin counts a request in progress, until end.
func (c *clientConn) begin() { c.requests.Add(1) }

// end counts a request that has ended.
func (c *clientConn) end() {
	c.idleSince.Store(time.Now().UnixNano())
	c.requests.Add(-1)
}

// isIdle reports whether the connection has carried no request since a time, in nanoseconds since 1970.
func (c *clientConn) isIdle(since int64) bool {
	return c.requests.Load() == 0 && c.idleSince.Load() <= since
}

// Close closes the connection and frees its place.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.logins.End()
		c.memory.End()
		if c.redirect != nil && c.redirect.release != nil {
			c.redirect.release()
		}
		if c.unbudgeted {
			c.listener.h.clientConns.overMemory.Add(-1)
		}
		c.listener.h.clientConns.forget(c)
		c.listener.h.counts.conns.end()
		c.listener.h.connLimit.release()
	})
	return err
}

// CloseWrite closes the writing direction.
func (c *clientConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }
