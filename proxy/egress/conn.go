package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

var longAgo = time.Unix(1, 0)

// protocols are offered in TLS handshakes (RFC 7301), in order of preference.
type protocols []string

const (
	http11 = "http/1.1"
	http2  = "h2"
)

// An endpoint is an origin at one address. If addr is zero, it is the origin at any of
// its addresses.
type endpoint struct {
	robots.Origin
	addr netip.Addr
}

// clone returns a copy that can be kept: the host of e may be part of a long URL.
func (e endpoint) clone() endpoint {
	e.Host = strings.Clone(e.Host)
	return e
}

// A trackedConn is a connection to an origin, below TLS. It reports when it is closed,
// and knows whether everything that arrived has been read.
type trackedConn struct {
	net.Conn
	once    sync.Once
	onClose func()    // nil: the connection is not counted yet
	ahead   []byte    // data that was read while the connection was unused, and is returned first
	reader  readState // not used with HTTP/2, and while pooled
	writes  writeHook
	http2   bool           // was negotiated
	pooled  bool           // belongs to a persistConn, not to a Transport; only its owner sets it
	peek    *socket.Conn   // Read reads from it without waiting; nil: Read reads as usual
	records *recordTracker // TLS records of what was read; nil: no TLS
	idle    transportIdle
}

// A transportIdle says whether a connection is idle in a Transport. The mutex of the
// idlePool guards it.
type transportIdle struct {
	endpoint endpoint
	user     *sending // uses the connection; nil: none, or not one of the Transport
	is       bool
	closed   bool // the connection is closed
}

// tracked returns the trackedConn below a connection of a Transport, or nil.
func tracked(conn net.Conn) *trackedConn {
	if c, ok := conn.(*originFormConn); ok {
		conn = c.Conn
	}
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

// Read returns what was read ahead, then reads from the connection. Only HTTP/2
// connections are read ahead, and crypto/tls calls no other method to read from them.
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

// Write calls the hook of the next write, and writes to the connection if the hook
// permits it.
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

// An originFormConn is a connection of a Transport that speaks HTTP/1.1 only. For a target in origin
// form (RFC 9112 3.2.1) that begins with two slashes, a Transport can write only the absolute form,
// since net/url has no other for one that it cannot parse. An originFormConn removes what is too much.
type originFormConn struct {
	net.Conn
	extra string // what to remove from the next write; "": nothing
}

var errRequestLine = errors.New("the request line is too long")

// Write writes b, without extra.
func (c *originFormConn) Write(b []byte) (int, error) {
	if c.extra == "" {
		return c.Conn.Write(b)
	}
	method, rest, found := bytes.Cut(b, []byte(c.extra))
	if !found {
		return 0, errRequestLine
	}
	c.extra = ""
	if _, err := c.Conn.Write(slices.Concat(method, rest)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseWrite closes the sending half of the connection.
func (c *originFormConn) CloseWrite() error { return closeWrite(c.Conn) }

// ConnectionState returns the state of TLS on the connection, for a caller's httptrace. It is zero
// without TLS.
func (c *originFormConn) ConnectionState() (state tls.ConnectionState) {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		state = secure.ConnectionState()
	}
	return state
}

// An aheadConn is a connection of which some bytes were already read.
type aheadConn struct {
	net.Conn
	ahead []byte
}

// Read returns the bytes that were already read, then reads from the connection.
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
		conn = tunnel.Conn // the TLS handshake has consumed the bytes that were read ahead
	}
	s, _ := conn.(*socket.Conn)
	return s
}

// A writer is notified of the next write to a connection.
type writer interface {
	beforeWrite() error // if it returns an error, nothing is written and the write returns that error
	afterWrite()        // called right after the write
}

// A writeHook holds the writer of the next write, or nil.
type writeHook struct {
	mu     sync.Mutex // guards writer
	writer writer
}

func (h *writeHook) set(w writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writer = w
}

// get returns the writer, and removes it after the write.
func (h *writeHook) get(written bool) writer {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writer
	if written {
		h.writer = nil
	}
	return w
}

// A readState knows whether a goroutine waits for the next bytes of the peer. If so, that
// goroutine has used all earlier bytes.
type readState struct {
	mu      sync.Mutex
	change  sync.Cond // of the fields below; its L is mu
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

// drained reports whether a goroutine waits, or will never wait.
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

// A recordTracker follows the boundaries of TLS records (RFC 8446 5.1) in the bytes that
// were read. It is needed because crypto/tls does not report that it holds part of a
// record.
type recordTracker struct {
	header [5]byte // header of the current record
	have   int     // number of bytes of header that were read
	left   int     // number of bytes of its content that were not read yet
	size   int     // size of the last record, in bytes, including its header
}

// smallRead bounds, in bytes, a read at the beginning of a record of unknown length. It
// holds most responses as a whole.
const smallRead = 4 << 10

// maxRead returns how many bytes to read at once so that a read ends at the end of a long
// record. crypto/tls keeps its buffer as long as the connection. It doubles the buffer, up
// to 40 KiB, if reads contain parts of several long records.
func (t *recordTracker) maxRead() int {
	switch {
	case t.left > 0:
		return t.left
	case t.have > 0:
		return len(t.header) - t.have
	}
	return max(t.size, smallRead) // long records mostly follow records of the same size
}

// advance updates the state for bytes that were read.
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

// maxAhead is the maximum number of bytes that an HTTP/2 peer may send before the first
// request. Its settings take about 100 bytes.
const maxAhead = 16 << 10

// An idleWatch reads from an idle connection. It reads what TLS sends after the handshake
// (session tickets) and, with HTTP/2, the peer's settings. It also notices when the peer
// closes the connection. Its owner calls run on a separate goroutine.
type idleWatch struct {
	conn  net.Conn
	http2 *trackedConn  // below TLS, if HTTP/2 was negotiated; else nil
	done  chan struct{} // closed when run returns
	alive bool          // the peer neither sent data nor closed the connection; set before done is closed
}

// newIdleWatch creates the watch of conn. The watch ends at deadline.
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

// read reads until the deadline and reports whether the connection can take a request. If
// an HTTP/1.1 peer sends data before a request, it cannot. An HTTP/2 peer begins with its
// settings (RFC 9113 3.4), which are kept for the Transport.
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
