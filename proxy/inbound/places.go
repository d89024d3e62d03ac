package inbound

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A connLimit counts the open connections to the proxy's own port. One goroutine of each
// listener waits for a free slot.
type connLimit struct {
	// Guards taken.
	mu    sync.Mutex
	taken int

	// Has a value if a slot may have become free.
	free chan struct{}
}

// take counts one more connection and returns true if fewer than most are open.
func (c *connLimit) take(most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken >= most {
		return false
	}
	c.taken++
	return true
}

// release counts a closed connection.
func (c *connLimit) release() {
	c.mu.Lock()
	c.taken--
	c.mu.Unlock()
	c.notify()
}

// notify wakes the goroutine that waits for a slot.
func (c *connLimit) notify() {
	select {
	case c.free <- struct{}{}:
	default:
	}
}

// clientConns counts the open connections of each client to the proxy's own ports. Its zero value has
// counted none.
type clientConns struct {
	// open connections that the memory budget has no space for.
	overMemory atomic.Int64

	// Guards all and of, and the client, share and closed of each clientConn.
	mu sync.Mutex

	// The open connections.
	all map[*Conn]struct{}

	// Their number, by the key of their client's share.
	of map[string]int
}

// open adds a connection and returns how many its client has.
func (all *clientConns) open(c *Conn) int {
	c.idleSince.Store(time.Now().UnixNano())
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.all == nil {
		all.all, all.of = map[*Conn]struct{}{}, map[string]int{}
	}
	all.all[c] = struct{}{}
	return all.add(c.share, 1)
}

// roomDivisor is the divisor of the limit of all connections that gives how many idle ones are closed at once, so that the
// search for them is rare.
const roomDivisor = 256

// makeRoom returns connections to close for another one of a share. They are the ones that have been idle for the
// longest, of the client with the most connections that has idle ones. That must be the client of the new connection, or
// one with more connections. If there are none, fair reports whether the client of the new connection has no more than an
// equal division of the places gives.
func (all *clientConns) makeRoom(share string, most int) (idle []*Conn, fair bool) {
	since := time.Now().Add(-minIdle).UnixNano()
	all.mu.Lock()
	defer all.mu.Unlock()
	largest := share
	for c := range all.all {
		n := all.of[c.share] - all.of[largest]
		if n < 0 || n == 0 && c.share != largest || !c.isIdle(since) {
			continue
		}
		if c.share != largest {
			largest, idle = c.share, nil
		}
		idle = append(idle, c)
	}
	slices.SortFunc(idle, func(a, b *Conn) int { return cmp.Compare(a.idleSince.Load(), b.idleSince.Load()) })
	room := 1 + most/roomDivisor
	if largest != share {
		room = min(room, all.of[largest]-all.of[share])
	}
	return idle[:min(room, len(idle))], all.of[share]*len(all.of) <= most
}

// forget removes a closed connection from the counts.
func (all *clientConns) forget(c *Conn) {
	all.mu.Lock()
	defer all.mu.Unlock()
	c.closed = true
	delete(all.all, c)
	all.add(c.share, -1)
}

// add adds n to the number of a client's connections and returns it. The caller holds all.mu.
func (all *clientConns) add(share string, n int) int {
	now := all.of[share] + n
	if all.of[share] = now; now == 0 {
		delete(all.of, share)
	}
	return now
}

// closeWriteOrClose closes the sending half of c, or all of c if that is not possible.
func closeWriteOrClose(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// closeReadOrClose ends the receiving half of c, or all of c if that is not possible. With Linux, what
// has arrived can still be read.
func closeReadOrClose(c net.Conn) {
	if r, ok := rawConn(underlying(c)).(interface{ CloseRead() error }); ok {
		// Fails if the peer has reset the connection, and what it sent before can be read.
		r.CloseRead()
		return
	}
	c.Close()
}

// closeConn closes all of c.
func closeConn(c net.Conn) { c.Close() }

// unusedConns are the connections that have not carried a request yet. Browsers open them in
// advance, and net/http would wait for them at a shutdown.
type unusedConns struct {
	conns sync.Map

	// At least the number of conns.
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

	// How close ends it.
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
