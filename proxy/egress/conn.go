package egress

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

var longAgo = time.Unix(1, 0)

// protocols are what a TLS handshake offers (RFC 7301), the preferred first.
type protocols []string

const (
	http11 = "http/1.1"
	http2  = "h2"
)

// An endpoint is an origin at one address, or at any of its addresses if addr is zero.
type endpoint struct {
	robots.Origin
	addr netip.Addr
}

// clone returns a copy that may be kept: the host of e may be a part of a long URL.
func (e endpoint) clone() endpoint {
	e.Host = strings.Clone(e.Host)
	return e
}

// A trackedConn is a connection to an origin, below TLS. It reports that it was closed,
// and knows whether everything that arrived has been used up.
type trackedConn struct {
	net.Conn
	once    sync.Once
	onClose func()    // nil: nothing counts the connection yet
	ahead   []byte    // was read while the connection was unused, and is read first
	reader  readState // not used with HTTP/2, and while pooled
	writes  writeHook
	http2   bool           // was negotiated
	pooled  bool           // belongs to a persistConn, not to a Transport; only its owner sets it
	peek    *socket.Conn   // Read reads from it without waiting; nil: Read reads as usual
	records *recordTracker // of what was read; nil: no TLS
	idle    transportIdle
}

// A transportIdle is whether a connection is idle in a Transport. It is guarded by the mutex
// of the idlePool.
type transportIdle struct {
	endpoint endpoint
	is       bool
	closed   bool // the connection is closed
}

// tracked returns the trackedConn below a connection that a Transport was given, or nil.
func tracked(conn net.Conn) *trackedConn {
	for secure, ok := conn.(*tls.Conn); ok; secure, ok = conn.(*tls.Conn) {
		conn = secure.NetConn()
	}
	c, _ := conn.(*trackedConn)
	return c
}

func newTrackedConn(raw net.Conn) *trackedConn {
	c := &trackedConn{Conn: raw}
	c.reader.change.L = &c.reader.mu
	return c
}

// Read reads what was read ahead, then from the connection. Only HTTP/2 connections are
// read ahead, and crypto/tls calls no other method to read from them.
func (c *trackedConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	if c.records != nil {
		b = b[:min(len(b), c.records.maxRead())]
	}
	n, err := c.read(b)
	if c.records != nil {
		c.records.advance(b[:n])
	}
	return n, err
}

func (c *trackedConn) read(b []byte) (int, error) {
	switch {
	case c.peek != nil:
		return c.peek.TryRead(b)
	case c.pooled || c.http2:
		return c.Conn.Read(b)
	}
	c.reader.set(true)
	n, err := c.Conn.Read(b)
	c.reader.set(false)
	return n, err
}

// Write writes to the connection, once the hook of the next write permits it.
func (c *trackedConn) Write(b []byte) (int, error) {
	w := c.writes.get(false)
	if w == nil || c.peek != nil { // during a peek, TLS itself may write
		return c.Conn.Write(b)
	}
	if err := w.beforeWrite(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if n > 0 {
		if w = c.writes.get(true); w != nil {
			w.afterWrite()
		}
	}
	return n, err
}

// CloseWrite closes the sending half of the connection.
func (c *trackedConn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.once.Do(func() {
		if c.onClose != nil {
			c.onClose()
		}
	})
	c.reader.close()
	return c.Conn.Close()
}

// closeWrite calls conn's CloseWrite. All connections to a parent have one.
func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// An aheadConn is a connection of which some bytes have been read already.
type aheadConn struct {
	net.Conn
	ahead []byte
}

// Read reads the bytes that were read already, then from the connection.
func (c *aheadConn) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// CloseWrite closes the sending half of the connection.
func (c *aheadConn) CloseWrite() error { return closeWrite(c.Conn) }

// socketUnder returns the socket below conn, or nil.
func socketUnder(conn net.Conn) *socket.Conn {
	if tunnel, ok := conn.(*aheadConn); ok {
		conn = tunnel.Conn // the TLS handshake has read what was ahead
	}
	s, _ := conn.(*socket.Conn)
	return s
}

// A writer is told of the next bytes that are written to a connection.
type writer interface {
	beforeWrite() error // an error keeps the bytes from being written, and is returned by the write
	afterWrite()        // right after
}

// A writeHook holds the writer of the next write; nil: none.
type writeHook struct {
	mu     sync.Mutex // guards writer
	writer writer
}

func (h *writeHook) set(w writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writer = w
}

// get returns the writer, and removes it if the write has been made.
func (h *writeHook) get(written bool) writer {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writer
	if written {
		h.writer = nil
	}
	return w
}

// A readState knows whether a goroutine waits for the peer's next bytes, and so has
// used up all bytes before them.
type readState struct {
	mu      sync.Mutex
	change  sync.Cond // of what follows; its L is mu
	waiting bool
	closed  bool
}

func (r *readState) set(waiting bool) {
	r.mu.Lock()
	r.waiting = waiting
	r.mu.Unlock()
	if waiting {
		r.change.Broadcast()
	}
}

// close ends all calls of await.
func (r *readState) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.change.Broadcast()
}

// drained reports whether a goroutine waits, or never will.
func (r *readState) drained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting || r.closed
}

// await waits until drained.
func (r *readState) await() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.waiting && !r.closed {
		r.change.Wait()
	}
}

// A recordTracker follows the boundaries of TLS records (RFC 8446 5.1) in what is read,
// because crypto/tls does not tell that it holds a part of a record.
type recordTracker struct {
	header [5]byte // of the record that is being read
	have   int     // bytes of header that are there
	left   int     // bytes of its content that are not
	size   int     // of the last record that began, in bytes, header included
}

// smallRead bounds, in bytes, a read at the beginning of a record of unknown length. It
// holds most responses as a whole.
const smallRead = 4 << 10

// maxRead returns how many bytes to read at once, so that a read ends at the end of a long
// record. crypto/tls keeps its buffer as long as the connection, and doubles it, up to
// 40 KiB, when a read has a part of one long record after another.
func (t *recordTracker) maxRead() int {
	switch {
	case t.left > 0:
		return t.left
	case t.have > 0:
		return len(t.header) - t.have
	}
	return max(t.size, smallRead) // long records mostly follow others of their size
}

// advance takes note of the bytes that were read.
func (t *recordTracker) advance(b []byte) {
	for len(b) > 0 {
		if t.left > 0 {
			n := min(t.left, len(b))
			t.left -= n
			b = b[n:]
			continue
		}
		n := copy(t.header[t.have:], b)
		b = b[n:]
		if t.have += n; t.have == len(t.header) {
			t.left = int(t.header[3])<<8 | int(t.header[4])
			t.have = 0
			t.size = len(t.header) + t.left
		}
	}
}

// atBoundary reports whether the last record is complete.
func (t *recordTracker) atBoundary() bool { return t.have == 0 && t.left == 0 }

// maxAhead bounds, in bytes, what an HTTP/2 peer sends before the first request. Its
// settings take about 100 bytes.
const maxAhead = 16 << 10

// An idleWatch reads from an idle connection. It takes in what TLS sends after the
// handshake (session tickets), with HTTP/2 the peer's settings too, and notices when the
// peer closes the connection. Its owner calls run, on a goroutine of its own.
type idleWatch struct {
	conn  net.Conn
	http2 *trackedConn  // below TLS, if HTTP/2 was negotiated; else nil
	done  chan struct{} // closed when run returns
	alive bool          // the peer neither sent data nor closed the connection; set before done is closed
}

// newIdleWatch makes the watch of conn, which ends at deadline.
func newIdleWatch(conn net.Conn, deadline time.Time) (*idleWatch, error) {
	w := &idleWatch{conn: conn, done: make(chan struct{})}
	if c := tracked(conn); c != nil && c.http2 {
		w.http2 = c
	}
	return w, conn.SetReadDeadline(deadline)
}

func (w *idleWatch) run() {
	w.alive = w.read()
	close(w.done)
}

// read reads until the deadline and reports whether the connection can take a request. A
// peer that sends HTTP/1.1 data before a request gets none. A peer that speaks HTTP/2
// begins with its settings (RFC 9113 3.4), which are kept for the Transport.
func (w *idleWatch) read() bool {
	if w.http2 == nil {
		var b [1]byte
		n, err := w.conn.Read(b[:])
		return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	}
	ahead, err := io.ReadAll(io.LimitReader(w.http2, maxAhead))
	w.http2.ahead = ahead
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// stop ends the watch and reports whether the connection can take a request.
func (w *idleWatch) stop() bool {
	err := w.conn.SetReadDeadline(longAgo) // does not harm TLS
	<-w.done
	return err == nil && w.alive && w.conn.SetReadDeadline(time.Time{}) == nil
}
