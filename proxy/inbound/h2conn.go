package inbound

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/h2"
)

// An h2Conn is a connection for HTTP/2. net/http writes the head of a response separately, even
// if the body is ready. An h2Conn holds back a write that ends with such a head until the next
// write, for at most heldFor. Both are then one TLS record and one packet if they fit into
// maxHeld.
//
// Several goroutines may use it like any net.Conn, except for Write, which net/http calls on one
// goroutine at a time.
type h2Conn struct {
	net.Conn
	state tls.ConnectionState

	// limit is the time for writing what was held back; zero: no limit.
	limit time.Duration

	// timer calls release.
	timer *time.Timer

	// heads reads from Conn, and belongs to net/http's reading goroutine.
	heads headReader

	// mu is held during each write, so that held bytes are sent before later ones. Close must not
	// lock it, because Close must end such a write.
	mu   sync.Mutex
	sent h2.Tracker

	// long says that longResponseHeadBytes are counted.
	long bool

	// buffer has held, the bytes that are held back; nil: there are none.
	buffer *[maxHeld]byte
	held   []byte

	// armed says that the timer runs.
	armed bool

	// deadline is that of net/http's writes.
	deadline time.Time

	// err is why nothing can be written any more; nil: it can.
	err error
}

func newH2Conn(c net.Conn, state tls.ConnectionState, limit time.Duration) *h2Conn {
	h := &h2Conn{Conn: c, state: state, limit: limit, heads: headReader{from: c, memory: layersOf(c).memory}}
	h.timer = time.AfterFunc(time.Hour, h.release)
	h.timer.Stop()
	return h
}

// UnencryptedNetConn returns c. net/http calls it to get the connection to serve if it does not
// use its own TLS.
func (c *h2Conn) UnencryptedNetConn() net.Conn { return c }

// ConnectionState returns the TLS state that net/http checks and passes to requests.
func (c *h2Conn) ConnectionState() tls.ConnectionState { return c.state }

// Read reads the client's frames with the headReader.
func (c *h2Conn) Read(b []byte) (int, error) { return c.heads.Read(b) }

// Write writes b. If b ends with the head of a response, Write may hold b back until the next Write.
func (c *h2Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	was := c.sent
	c.sent.Track(b)
	if c.err = c.countHead(); c.err != nil {
		c.Conn.Close()
		return 0, c.err
	}
	switch held := len(c.held); {
	case held+len(b) > maxHeld:
		if err := c.send(); err != nil {
			return 0, err
		}
	case awaitsBody(&c.sent):
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
	// Only the first n bytes were written, and net/http may continue with the rest.
	if n < len(b) {
		c.sent = was
		c.sent.Track(b[:n])
	}
	return n, err
}

// longResponseHeadBytes is the estimate for the head of a response that takes several frames, in bytes: net/http keeps the
// buffer in which it has encoded the head as long as the connection lives.
const longResponseHeadBytes = 2 * h1.MaxHead

// countHead counts a long head that is being written, until the connection is closed. The caller holds c.mu.
func (c *h2Conn) countHead() error {
	if c.long || c.sent.Type() != h2.Continuation {
		return nil
	}
	c.long = true
	return c.heads.memory.Hold(longResponseHeadBytes)
}

// hold holds b back. The caller holds c.mu.
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

// send writes what was held back. The caller holds c.mu.
func (c *h2Conn) send() error {
	if c.buffer == nil {
		return nil
	}
	_, c.err = c.Conn.Write(c.held)
	heldBuffers.Put(c.buffer)
	c.buffer, c.held = nil, nil
	return c.err
}

// release writes what was held back for too long. Closing the connection ends it.
func (c *h2Conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	if c.buffer == nil {
		return
	}
	if c.limit > 0 {
		// The write returns an error of this.
		c.Conn.SetWriteDeadline(time.Now().Add(c.limit))
	}
	if c.send() != nil {
		// net/http notices when it reads.
		c.Conn.Close()
		return
	}
	c.Conn.SetWriteDeadline(c.deadline)
}

// SetWriteDeadline sets the deadline of net/http's writes.
func (c *h2Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetWriteDeadline(t)
}

// Close closes the connection and stops the timer.
func (c *h2Conn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
