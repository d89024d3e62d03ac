package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/proxy/socket"
)

// A kept is an HTTP/1.1 connection that requests are sent over on their caller's own
// goroutine, one after the other. Between them it is the pool's.
type kept struct {
	conn    net.Conn     // TLS, where the origin speaks it
	counted *countedConn // under that
	socket  *socket.Conn // under all
	pool    *pool
	at      spot
	cut     func() // closes the socket

	watch *watch // nil: it has none; the pool's mu guards it while it rests
	round uint64 // of the pool's sweeps, that it came to rest in

	older, newer *kept // while it rests: who came to rest right before and after it

	used  bool            // an answer has come over it
	wrote bool            // of the request under way, an octet at least
	head  int             // octets that may yet come of its answer's head; -1: the head is there
	lines int             // of that head that have come, and maybe some of what follows
	until time.Time       // the read deadline that was set for a quick answer; zero: another one, or none
	timed bool            // a read has the deadline of a slow answer
	from  *bufio.Reader   // reads what comes; nil: nothing is under way
	ctx   context.Context // of the request under way
	stop  func() bool     // keeps the end of ctx from cutting the connection; nil: it does not cut it
	octet [1]byte
}

// quick bounds how long a request may be under way before the end of its context cuts the connection. A request
// that is answered sooner is spared the cost of that, and of a deadline of its own: see docs/performance.md.
const quick = 200 * time.Millisecond

// newKept gives nil for a connection that cannot be looked at.
func newKept(conn net.Conn, at spot, p *pool) *kept {
	c := counted(conn)
	s := socketUnder(c.Conn)
	if s == nil {
		return nil
	}
	c.kept = true
	k := &kept{conn: conn, counted: c, socket: s, pool: p, at: at, cut: func() { c.Close() }}
	s.Stalled = k.guard
	return k
}

// socketUnder is the socket under conn, or nil.
func socketUnder(conn net.Conn) *socket.Conn {
	if tunnel, ok := conn.(*aheadConn); ok {
		conn = tunnel.Conn // what was ahead has been read by the handshake
	}
	s, _ := conn.(*socket.Conn)
	return s
}

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferBytes) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferBytes) }}

	errUnasked = errors.New("the origin sends what it was not asked for")
	errHead    = fmt.Errorf("the head of the origin's answer has exceeded %d octets", maxHeadBytes)
	errFields  = fmt.Errorf("the head of the origin's answer has exceeded %d fields", maxFields)
)

// unanswered marks what a connection ended of before the first octet of an answer.
type unanswered struct{ error }

func (e unanswered) Unwrap() error { return e.error }

// silent is the error of an answer whose head has not come in time.
type silent struct{}

func (silent) Error() string        { return "the origin's answer has not come in time" }
func (silent) Timeout() bool        { return true }
func (silent) Temporary() bool      { return true }
func (silent) Is(target error) bool { return target == context.DeadlineExceeded }

// look says what there is on a connection that nothing was asked on: nil where that
// is nothing, as it should be.
func (k *kept) look() error {
	k.counted.glance = k.socket
	n, err := k.conn.Read(k.octet[:])
	k.counted.glance = nil
	switch {
	case n > 0 || k.counted.records != nil && !k.counted.records.between():
		return errUnasked
	case err == socket.ErrNothing:
		return nil
	}
	return err
}

// Write writes to the connection; NextWrite's Writer is told.
func (k *kept) Write(b []byte) (int, error) {
	n, err := k.conn.Write(b)
	k.wrote = k.wrote || n > 0
	return n, err
}

// Read reads of an answer, its head within its limits of size and time.
func (k *kept) Read(b []byte) (int, error) {
	switch {
	case k.head == 0:
		return 0, errHead
	case k.head > 0 && k.lines > maxFields: // all that has come is of the head
		return 0, errFields
	}
	if k.head > 0 {
		b = b[:min(len(b), k.head)]
	} else if k.timed {
		k.timed = false
		if err := k.conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
	n, err := k.conn.Read(b)
	if k.head > 0 {
		k.head -= n
		k.lines += bytes.Count(b[:n], []byte("\n"))
	}
	return n, err
}

// send sends r, whose answer's head is to come within timeout. With an error the
// connection is closed.
func (k *kept) send(r *http.Request, trace *httptrace.ClientTrace, timeout time.Duration) (*http.Response, error) {
	ctx := r.Context()
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: k.conn, Reused: k.used})
	}
	k.from, k.ctx, k.stop, k.wrote = readers.Get().(*bufio.Reader), ctx, nil, false
	k.from.Reset(k)
	resp, err := k.exchange(r, trace, timeout)
	if err != nil {
		k.end(false)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	again := !r.Close && !resp.Close && resp.StatusCode >= http.StatusOK
	if resp.Body == http.NoBody {
		k.end(again)
	} else {
		resp.Body = &body{inner: resp.Body, k: k, ctx: ctx, again: again}
	}
	return resp, nil
}

func (k *kept) exchange(r *http.Request, trace *httptrace.ClientTrace, timeout time.Duration) (*http.Response, error) {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := k.look(); err != nil {
		return nil, unanswered{err}
	}
	if err := k.ask(r, trace); err != nil {
		return nil, err
	}
	err := k.first(timeout)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, silent{}
	}
	if err != nil {
		return nil, unanswered{fmt.Errorf("no answer from the origin: %w", err)}
	}
	resp, err := k.answer(r, trace, timeout)
	if err != nil && k.lines > maxFields {
		err = errFields // and not what the line is that was cut
	}
	k.head = -1
	if err == nil && resp.Body != http.NoBody && (resp.ContentLength < 0 || resp.ContentLength > int64(k.from.Buffered())) {
		k.guard()
		k.timed, k.until = true, time.Time{} // the first read of the body ends the deadline
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, silent{}
	case err != nil:
		return nil, fmt.Errorf("read the origin's answer: %w", err)
	}
	return resp, nil
}

// first waits for the first byte of the answer.
func (k *kept) first(timeout time.Duration) error {
	k.head, k.lines, k.timed = maxHeadBytes, 0, false
	limit := min(quick, timeout)
	if now := time.Now(); k.until.Sub(now) < limit/2 { // else the deadline of a request before this one will do
		k.until = now.Add(limit)
		if err := k.conn.SetReadDeadline(k.until); err != nil {
			return err
		}
	}
	_, err := k.from.Peek(1)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if err := k.slow(timeout); err != nil {
		return err
	}
	_, err = k.from.Peek(1)
	return err
}

// slow is for an answer that is late, or whose head is not whole: from now on the end of the request's context
// cuts the connection, and the rest of the head has to come within timeout.
func (k *kept) slow(timeout time.Duration) error {
	if k.timed {
		return nil
	}
	k.guard()
	k.timed, k.until = true, time.Time{}
	return k.conn.SetReadDeadline(time.Now().Add(timeout))
}

// guard has the end of the request's context cut the connection.
func (k *kept) guard() {
	if k.ctx != nil && k.stop == nil {
		k.stop = context.AfterFunc(k.ctx, k.cut)
	}
}

// ask writes the request.
func (k *kept) ask(r *http.Request, trace *httptrace.ClientTrace) error {
	to := writers.Get().(*bufio.Writer)
	to.Reset(k)
	err := write(to, r, trace)
	if err == nil {
		err = to.Flush()
	}
	to.Reset(nil)
	writers.Put(to)
	if err != nil && !k.wrote {
		err = unanswered{err}
	}
	return err
}

// answer reads the head of the answer, and those before it (RFC 9110 15.2).
func (k *kept) answer(r *http.Request, trace *httptrace.ClientTrace, timeout time.Duration) (*http.Response, error) {
	for {
		if resp := sized(k.from, r); resp != nil {
			return resp, nil
		}
		if err := k.slow(timeout); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(k.from, r)
		if err != nil {
			return nil, err
		}
		status := resp.StatusCode
		if status < http.StatusContinue || status >= http.StatusOK || status == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(status, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// end ends the request under way. Where its answer ended well the connection may be
// used again, unless more has come than the answer, or the request was cut off.
func (k *kept) end(well bool) {
	uncut := k.stop == nil || k.stop()
	k.ctx, k.stop = nil, nil // they refer to everything of the request
	again := well && uncut && k.from.Buffered() == 0
	k.from.Reset(nil)
	readers.Put(k.from)
	k.from = nil
	if !again {
		k.counted.waiting.next(true) // TLS says goodbye, and that is not the request
		k.conn.Close()
		return
	}
	k.used = true
	k.pool.put(k)
}

// A body is that of an answer. When all of it has been read, its connection is free
// for another request; one that is closed before is not read on.
type body struct {
	inner io.ReadCloser // whose Close may read on
	k     *kept         // until over
	ctx   context.Context
	again bool        // the connection may be used again
	over  atomic.Bool // read to its end, or closed
	err   error       // that it ended with
}

// Read reads of it.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.inner.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	b.err = err
	if b.over.CompareAndSwap(false, true) {
		b.k.end(err == io.EOF && b.again)
	}
	return n, err
}

// Close may be called while another goroutine reads, which then fails.
func (b *body) Close() error {
	if b.over.CompareAndSwap(false, true) {
		if b.k.stop != nil {
			b.k.stop()
		}
		b.k.conn.Close()
	}
	return nil
}
