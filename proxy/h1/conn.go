package h1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	hijackBuffer = 64                    // bytes of a hijacked connection's Writer: handlers write to the connection itself
	watchAfter   = 20 * time.Millisecond // a request that takes longer is cancelled when its client disconnects
	drainTime    = 5 * time.Second       // as for connections with other requests
)

// MaxDiscarded is how many bytes of a client are read after the last response of its connection.
const MaxDiscarded = 256 << 10

// A conn is a connection that a Server serves.
type conn struct {
	server  *http.Server
	group   *Group[*conn]
	handoff *Handoff

	// full is the connection as the listener returned it, and rw is full.Direct().
	full Conn
	rw   net.Conn

	// br is nil after a hijack.
	br *bufio.Reader

	// cancel cancels the context of its requests.
	cancel context.CancelFunc

	// readDeadline is the last deadline that was set; zero: none.
	readDeadline time.Time

	// watchTimer calls watchClient.
	watchTimer *time.Timer

	// gone says that the connection was handed over, hijacked or closed.
	gone atomic.Bool

	// mu guards the fields below.
	mu sync.Mutex

	// watchEnded signals that watching has become false.
	watchEnded sync.Cond

	// busy says that a request is being served.
	busy bool

	// watching says that watchClient reads, and interrupted that it is to return.
	watching, interrupted bool

	// readAhead is what watchClient has read; the next Read returns it. While busy is set mu guards it, otherwise it
	// belongs to the goroutine that serves.
	readAhead []byte
}

// next waits for the next request and returns all bytes that have arrived. They are valid until
// the next read.
func (c *conn) next(first bool) ([]byte, error) {
	// As in net/http's server: fewer bytes before the end are no request.
	limit, least := c.server.IdleTimeout, 4
	if first {
		limit, least = c.server.ReadHeaderTimeout, 1
	}
	if c.br.Buffered() < least {
		// To set a deadline is expensive. Therefore the last one is kept while it is near enough.
		if now := time.Now(); limit > 0 && c.readDeadline.Sub(now) < limit-limit/8 {
			c.readDeadline = now.Add(limit)
			if err := c.rw.SetReadDeadline(c.readDeadline); err != nil {
				return nil, err
			}
		}
	}
	if _, err := c.br.Peek(least); err != nil {
		return nil, err
	}
	return c.br.Peek(c.br.Buffered())
}

// inHandshake reports whether a TLS handshake has not ended. The http.Server logs why.
func (c *conn) inHandshake() bool {
	secure, ok := c.rw.(*tls.Conn)
	return ok && !secure.ConnectionState().HandshakeComplete
}

// Read returns what watchClient has read, then reads the connection.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.readAhead) > 0 {
		n := copy(b, c.readAhead)
		c.readAhead = c.readAhead[n:]
		return n, nil
	}
	return c.rw.Read(b)
}

// begin marks the connection as busy and starts the timer of watchClient. It returns false if the Server
// is shutting down.
func (c *conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group.ended.Load() {
		return false
	}
	c.busy = true
	if c.watchTimer == nil {
		c.watchTimer = time.AfterFunc(watchAfter, c.watchClient)
	} else {
		c.watchTimer.Reset(watchAfter)
	}
	return true
}

// watchClient reads until the client disconnects, and then cancels the request's context. It runs in
// the timer's goroutine and returns before the request ends. It cannot notice that a client disconnects
// that has begun to send its next request.
func (c *conn) watchClient() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy || len(c.readAhead) > 0 || c.watching {
		return
	}
	c.watching = true
	c.readDeadline = time.Time{}
	// If this fails, the read returns the error.
	c.rw.SetReadDeadline(c.readDeadline)
	b := make([]byte, 1)
	c.mu.Unlock()
	n, err := c.rw.Read(b)
	c.mu.Lock()
	c.watching, c.readAhead = false, b[:n]
	if err != nil && !(c.interrupted && errors.Is(err, os.ErrDeadlineExceeded)) {
		c.cancel()
	}
	c.watchEnded.Broadcast()
}

// stopWatching undoes begin, and waits until watchClient has returned.
func (c *conn) stopWatching() {
	c.watchTimer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	if !c.watching {
		return
	}
	c.interrupted = true
	c.rw.SetReadDeadline(longAgo)
	for c.watching {
		c.watchEnded.Wait()
	}
	c.interrupted, c.readDeadline = false, time.Time{}
	c.rw.SetReadDeadline(c.readDeadline)
}

// handOver passes the connection to the http.Server, with the bytes that were read and not
// answered.
func (c *conn) handOver(read []byte) {
	if c.rw.SetReadDeadline(time.Time{}) != nil || !c.remove() {
		return
	}
	// Shutdown may have closed the connection.
	if c.group.ended.Load() {
		c.close()
		c.setState(http.StateClosed)
		return
	}
	c.full.HandOver(slices.Concat(read, c.readAhead))
	// The http.Server sets the state to new again.
	c.setState(http.StateActive)
	if !c.handoff.Give(c.full, nil) {
		c.full.Close()
	}
}

// hijack hands the connection to the handler.
func (c *conn) hijack() (net.Conn, *bufio.ReadWriter, error) {
	// This comes before stopWatching, after which Shutdown would close the connection as idle.
	if !c.remove() {
		return nil, nil, http.ErrHijacked
	}
	c.stopWatching()
	c.setState(http.StateHijacked)
	// net/http's server does the same. The next read or write returns the error.
	c.rw.SetDeadline(time.Time{})
	if len(c.readAhead) > 0 {
		// The handler expects what was read in the Reader.
		c.br.Peek(c.br.Buffered() + 1)
	}
	in := c.br
	c.br = nil
	return c.full, bufio.NewReadWriter(in, bufio.NewWriterSize(c.full, hijackBuffer)), nil
}

// remove ends the Server's part in the connection. It returns false if it was called before.
func (c *conn) remove() bool {
	if !c.gone.CompareAndSwap(false, true) {
		return false
	}
	c.group.Remove(c)
	return true
}

// drain prepares the end of a connection, after its last response, whose client has already sent another request. If it
// were closed with unread bytes, the system would reset it, and the client could lose the response.
func (c *conn) drain() {
	if c.br != nil && c.br.Buffered()+len(c.readAhead) > 0 {
		Discard(c.rw, time.Now().Add(drainTime))
	}
}

// Discard reads what the client of c still sends, until a time and at most MaxDiscarded bytes, after it has closed the
// sending direction. It does nothing if that is not possible.
func Discard(c net.Conn, until time.Time) {
	half, ok := c.(interface{ CloseWrite() error })
	if ok && half.CloseWrite() == nil && c.SetReadDeadline(until) == nil {
		io.CopyN(io.Discard, c, MaxDiscarded)
	}
}

// setState calls the ConnState hook of the http.Server.
func (c *conn) setState(state http.ConnState) {
	if hook := c.server.ConnState; hook != nil {
		hook(c.full, state)
	}
}

// end closes the connection, unless it was handed over or hijacked.
func (c *conn) end() {
	if c.gone.CompareAndSwap(false, true) {
		c.close()
		c.setState(http.StateClosed)
		// This comes last: Shutdown waits for it.
		c.group.Remove(c)
	}
}

// close closes the connection and cancels the request in flight.
func (c *conn) close() {
	c.cancel()
	c.full.Close()
}

// closeIdle closes the connection unless a request is being served.
func (c *conn) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy {
		c.close()
	}
}

// A Conn is a connection that a [Server] may serve. Connections of other types go to the
// http.Server at once.
type Conn interface {
	net.Conn
	// Direct returns the connection to read from and write to. Closing Conn closes it.
	Direct() net.Conn
	// HandOver prepares Conn for the http.Server: its next reads return ahead first.
	HandOver(ahead []byte)
}

// longAgo is a deadline that ends a read at once.
var longAgo = time.Unix(1, 0)
