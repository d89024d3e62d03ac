package lean

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readOctets  = 4 << 10               // what is read at once; a longer head is for the server
	writeOctets = 64                    // that a hijacked connection's Writer holds: handlers write to the connection itself
	noticeAfter = 20 * time.Millisecond // a request that takes longer is broken off when its client leaves
)

// readers are not in use.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readOctets) }}

// A conn is a connection as long as it is served here.
type conn struct {
	front  *Front
	gate   *gate
	whole  Conn          // as the listener gave it
	io     net.Conn      // what is read and written
	in     *bufio.Reader // nil when it is the handler's
	remote string
	cancel context.CancelFunc // of the context of its requests
	until  time.Time          // the deadline of a read, as it was set last; zero: none
	timer  *time.Timer        // calls look

	left   atomic.Bool // it is not here any more
	closed atomic.Bool

	mu      sync.Mutex // guards what follows
	change  sync.Cond  // of looking
	busy    bool       // a request is served
	piped   bool       // and more has come than was looked for
	looking bool       // a goroutine reads, to see whether the client leaves
	stopped bool       // it is to end
	seen    []byte     // what it has read; the next Read gives it. Only while looking is mu needed for it
}

// serve serves requests until one is not for here, or there are no more.
func (c *conn) serve(ctx context.Context) {
	c.io, c.remote = c.whole.Lean(), c.whole.RemoteAddr().String()
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c)
	c.change.L = &c.mu
	defer c.cancel()
	c.front.state(c.whole, http.StateNew)
	defer func() {
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
			c.front.log("lean: a fault in serving %s: %v\n%s", c.remote, fault, debug.Stack())
		}
		c.end()
		if c.in != nil {
			c.in.Reset(nil)
			readers.Put(c.in)
		}
	}()
	blank := c.blank(ctx)
	for first := true; ; first = false {
		read, err := c.await(first)
		if err != nil {
			if first && c.mayExplain(err) {
				c.handOver(nil)
			}
			return
		}
		r, octets := plain(read, blank)
		if r == nil {
			c.handOver(read)
			return
		}
		c.in.Discard(octets)
		if !c.begin() {
			return
		}
		c.front.state(c.whole, http.StateActive)
		if !c.answer(r) || c.front.ending.Load() { // or nobody would close it
			return
		}
		c.front.state(c.whole, http.StateIdle)
	}
}

// blank is what all requests of the connection have in common.
func (c *conn) blank(ctx context.Context) *http.Request {
	if hook := c.front.server.ConnContext; hook != nil {
		ctx = hook(ctx, c.whole)
	}
	r := http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, RemoteAddr: c.remote}
	return r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, c.whole.LocalAddr()))
}

// await waits for the next request, and gives all that has come. That is good until
// the next read.
func (c *conn) await(first bool) ([]byte, error) {
	limit, least := c.front.server.IdleTimeout, 4 // as the server has it: what is less and ends is no request
	if first {
		limit, least = c.front.server.ReadHeaderTimeout, 1
	}
	if c.in.Buffered() < least {
		// A deadline costs more than to look whether the last one will do.
		if now := time.Now(); limit > 0 && c.until.Sub(now) < limit-limit/8 {
			c.until = now.Add(limit)
			if err := c.io.SetReadDeadline(c.until); err != nil {
				return nil, err
			}
		}
	}
	if _, err := c.in.Peek(least); err != nil {
		return nil, err
	}
	return c.in.Peek(c.in.Buffered())
}

// mayExplain says whether the server may have something to say about an error of a
// connection's first read: about a handshake that failed.
func (c *conn) mayExplain(err error) bool {
	secure, ok := c.io.(*tls.Conn)
	return ok && !c.closed.Load() && !secure.ConnectionState().HandshakeComplete
}

// Read reads what look has, then the connection.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.seen) > 0 {
		n := copy(b, c.seen)
		c.seen = c.seen[n:]
		return n, nil
	}
	return c.io.Read(b)
}

// begin begins to serve a request, unless the Front is about to end.
func (c *conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.front.ending.Load() {
		return false
	}
	c.busy, c.piped = true, len(c.seen) > 0
	if c.timer == nil {
		c.timer = time.AfterFunc(noticeAfter, c.look)
	} else {
		c.timer.Reset(noticeAfter)
	}
	return true
}

// look waits for the client to leave, in the timer's goroutine, and ends with the
// request. Nothing is known of a client that sends on meanwhile.
func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy || c.piped || c.looking {
		return
	}
	c.looking = true
	c.until = time.Time{}
	c.io.SetReadDeadline(c.until) // an error shows in the read
	b := make([]byte, 1)
	c.mu.Unlock()
	n, err := c.io.Read(b)
	c.mu.Lock()
	c.looking, c.seen, c.piped = false, b[:n], n > 0
	if err != nil && !(c.stopped && errors.Is(err, os.ErrDeadlineExceeded)) {
		c.cancel()
	}
	c.change.Broadcast()
}

// rest ends what begin began.
func (c *conn) rest() {
	c.timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	if !c.looking {
		return
	}
	c.stopped = true
	c.io.SetReadDeadline(past)
	for c.looking {
		c.change.Wait()
	}
	c.stopped, c.until = false, time.Time{}
	c.io.SetReadDeadline(c.until)
}

// answer serves a request, and says whether another may follow.
func (c *conn) answer(r *http.Request) bool {
	defer func() {
		if !c.left.Load() {
			c.rest()
		}
	}()
	a := newAnswer(c, r)
	defer a.release()
	c.front.server.Handler.ServeHTTP(a, r)
	return a.finish()
}

// handOver gives the connection to the server, with what was read and not answered.
func (c *conn) handOver(read []byte) {
	if c.io.SetReadDeadline(time.Time{}) != nil || !c.leave() {
		return
	}
	c.whole.Full(slices.Concat(read, c.seen))
	c.front.state(c.whole, http.StateActive) // the server calls it new again
	c.gate.give(c.whole, nil)
}

// hijack gives the connection to the handler.
func (c *conn) hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.rest()
	if !c.leave() {
		return nil, nil, net.ErrClosed
	}
	c.front.state(c.whole, http.StateHijacked)
	c.io.SetDeadline(time.Time{}) // as net/http's server does; an error shows in what follows
	if len(c.seen) > 0 {
		c.in.Peek(c.in.Buffered() + 1) // the handler looks for it there
	}
	in := c.in
	c.in = nil
	return c.whole, bufio.NewReadWriter(in, bufio.NewWriterSize(c.whole, writeOctets)), nil
}

// leave takes the connection out of the Front's hands, once.
func (c *conn) leave() bool {
	if !c.left.CompareAndSwap(false, true) {
		return false
	}
	c.front.forget(c)
	c.front.gone.Done()
	return true
}

// end closes a connection that is here still.
func (c *conn) end() {
	if c.leave() {
		c.close()
		c.front.state(c.whole, http.StateClosed)
	}
}

// close closes the connection, which ends what waits for it, and the request under way.
func (c *conn) close() {
	c.closed.Store(true)
	c.cancel()
	c.whole.Close()
}

// closeAtRest closes it unless a request is served.
func (c *conn) closeAtRest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy {
		c.close()
	}
}
