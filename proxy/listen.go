package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy/socket"
)

// maxRefusedConns is how many connections over a client's most, and how many without room in the memory budget,
// are open to be refused. More are closed at once.
const maxRefusedConns = 16

// A listener takes connections up to a most, for all clients together and for
// each. At the first the next ones wait in the system's queue; over the second
// they are answered with a refusal. A client is counted by its address until it
// is known by name. The memory budget counts it by its address always; a connection
// for which that has no room is closed, but for a few whose requests are refused.
type listener struct {
	net.Listener
	h        *Handler
	fullLog  logThrottle
	errorLog logThrottle

	overMemory atomic.Int64 // connections that are open although memory has no room for them

	ended chan struct{}
	end   sync.Once

	mu   sync.Mutex
	open map[string]int // connections, by client
}

func (h *Handler) newListener(l net.Listener) *listener {
	return &listener{Listener: l, h: h, ended: make(chan struct{}), open: make(map[string]int)}
}

// maxPerClient is how many connections one client may have.
func (l *listener) maxPerClient() int { return l.h.rules.active.Load().MaxConnsPerClient }

// waitForPlace waits for a place; false: the listener was closed first.
func (l *listener) waitForPlace() bool {
	for {
		most := l.h.rules.active.Load().MaxConns
		if l.h.connLimit.take(most) {
			return true
		}
		if l.fullLog.allow() {
			l.h.o.Log.Warn("as many connections are open as are taken; the next ones wait", "connections", most)
		}
		select {
		case <-l.h.connLimit.free:
		case <-l.ended:
			return false
		}
	}
}

// Accept waits for a place, then for a connection. An error of the system's,
// as when the process may open no more files, is said and handed on: net/http
// tries again after a while.
func (l *listener) Accept() (net.Conn, error) {
	for {
		if !l.waitForPlace() {
			return nil, net.ErrClosed
		}
		conn, err := l.Listener.Accept()
		if err != nil {
			l.h.connLimit.release()
			if !errors.Is(err, net.ErrClosed) {
				l.acceptFailed(err)
			}
			return nil, err
		}
		l.h.counts.conns.begin()
		c := &clientConn{Conn: socket.New(conn), listener: l}
		client := addressOf(conn.RemoteAddr().String())
		c.client.Store(&client)
		if c.memory, err = l.h.o.Memory.Open(policy.ShareKey(client), time.Now()); err != nil {
			if c.unbudgeted = l.overMemory.Add(1) <= maxRefusedConns; !c.unbudgeted { // else its requests are answered with a refusal
				l.overMemory.Add(-1)
				l.count(client, 1)
				c.Close()
				continue
			}
		}
		switch over := l.count(client, 1) - l.maxPerClient(); {
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

// acceptFailed counts and tells that the system gives no connection.
func (l *listener) acceptFailed(err error) {
	l.h.counts.failed.Add(1)
	if l.errorLog.allow() {
		l.h.o.Log.Warn("connections cannot be taken at present", "error", err)
	}
}

func (l *listener) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

// count adds to a client's open connections, and gives how many they are.
func (l *listener) count(client string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.add(client, n)
}

// forget counts a closed connection no more.
func (l *listener) forget(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.closed = true
	l.add(*c.client.Load(), -1)
}

// add is count under the lock.
func (l *listener) add(client string, n int) int {
	now := l.open[client] + n
	if now == 0 {
		delete(l.open, client)
	} else {
		l.open[client] = now
	}
	return now
}

// A clientConn is a client's connection to the proxy's own port.
type clientConn struct {
	net.Conn
	listener   *listener
	client     atomic.Pointer[string] // whose it is; changed under listener.mu
	tooMany    bool                   // it is one more than its client may have
	closed     bool                   // and so nobody's; guarded by listener.mu
	memory     memory.Work            // counts for the client's address until Close
	unbudgeted bool                   // held is zero: there was no room
	once       sync.Once
}

// assign counts it among those of the client that it is now known to be of.
// It says no where that client has as many as it may.
func (c *clientConn) assign(client string) bool {
	before := c.client.Load()
	if *before == client {
		return true
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed { // HTTP/2's requests may outlive it
		return true
	}
	if l.open[client] >= l.maxPerClient() {
		return false
	}
	if c.client.CompareAndSwap(before, &client) { // else by another request of the same connection
		l.add(*before, -1)
		l.add(client, 1)
	}
	return true
}

// Close closes it and gives its place to another.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.memory.End()
		if c.unbudgeted {
			c.listener.overMemory.Add(-1)
		}
		c.listener.forget(c)
		c.listener.h.counts.conns.end()
		c.listener.h.connLimit.release()
	})
	return err
}

// CloseWrite ends what we send and leaves the other direction open.
func (c *clientConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }
