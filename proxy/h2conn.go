package proxy

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// An h2Conn is a connection that HTTP/2 is served on. net/http sends the head of an answer
// by itself, though its body is there. Here a write that ends with such a head waits for the
// next one, for heldFor at most, so that where both fit into maxHeld they are one record of
// TLS and one packet.
//
// Several goroutines may use it, as any net.Conn, but for Write: net/http has one at a time.
type h2Conn struct {
	net.Conn
	state tls.ConnectionState
	limit time.Duration // of writing what was held back; zero: none
	timer *time.Timer   // calls release
	heads headReader    // reads from Conn; belongs to net/http's one reading goroutine

	// Held while the connection is written to, or what was held back could come after what
	// follows it. Close, which ends such a write, must not take it.
	mu       sync.Mutex
	sent     frameTracker
	buffer   *[maxHeld]byte // nil: nothing is held back
	held     []byte         // in buffer
	armed    bool           // the timer goes
	deadline time.Time      // of net/http's writes
	err      error          // why nothing more goes out
}

func newH2Conn(c net.Conn, state tls.ConnectionState, limit time.Duration) *h2Conn {
	h := &h2Conn{Conn: c, state: state, limit: limit, heads: headReader{from: c, memory: connInfoOf(c).memory()}}
	h.timer = time.AfterFunc(time.Hour, h.release)
	h.timer.Stop()
	return h
}

// UnencryptedNetConn gives net/http the connection to serve: of one that no TLS of its own is
// under, it takes what has this method.
func (c *h2Conn) UnencryptedNetConn() net.Conn { return c }

// ConnectionState is what net/http goes by, and gives to requests.
func (c *h2Conn) ConnectionState() tls.ConnectionState { return c.state }

// Read reads the client's frames through a headReader.
func (c *h2Conn) Read(b []byte) (int, error) { return c.heads.Read(b) }

// Write writes b, or keeps it back, where it ends with the head of an answer, until the next.
func (c *h2Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	was := c.sent
	c.sent.track(b)
	switch held := len(c.held); {
	case held+len(b) > maxHeld:
		if err := c.send(); err != nil {
			return 0, err
		}
	case c.sent.awaitBody():
		c.hold(b)
		return len(b), nil
	case held > 0:
		c.hold(b)
		if err := c.send(); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if n < len(b) { // net/http may go on with the rest
		c.sent = was
		c.sent.track(b[:n])
	}
	return n, err
}

// hold keeps b back. The lock is held.
func (c *h2Conn) hold(b []byte) {
	if c.buffer == nil {
		c.buffer = heldBuffers.Get().(*[maxHeld]byte)
		c.held = c.buffer[:0]
	}
	c.held = append(c.held, b...)
	if !c.armed {
		c.armed = true
		c.timer.Reset(heldFor)
	}
}

// send sends what was kept back. The lock is held.
func (c *h2Conn) send() error {
	if c.buffer == nil {
		return nil
	}
	_, c.err = c.Conn.Write(c.held)
	heldBuffers.Put(c.buffer)
	c.buffer, c.held = nil, nil
	return c.err
}

// release sends what nothing has come after. It ends, at the latest, when the connection is
// closed.
func (c *h2Conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	if c.buffer == nil {
		return
	}
	if c.limit > 0 {
		c.Conn.SetWriteDeadline(time.Now().Add(c.limit)) // an error shows in the write
	}
	if c.send() != nil {
		c.Conn.Close() // net/http hears of it by its read
		return
	}
	c.Conn.SetWriteDeadline(c.deadline)
}

// SetWriteDeadline is for net/http's writes.
func (c *h2Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetWriteDeadline(t)
}

// Close ends the connection and what waits for it.
func (c *h2Conn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
