package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

const (
	maxHeadBytes = 256 << 10 // maximum head of a response, in bytes, including 1xx
	maxFields    = 512       // maximum lines in the head of a response; each takes about 100 bytes of memory, however short it is
	bufferSize   = 4 << 10   // size of a connection's read buffer and of its write buffer, in bytes; larger buffers up to 32 KiB were not faster
)

// quickResponse is how long a request may be in flight before the end of its context
// closes the connection. A request with a faster response avoids that cost, and the cost
// of a deadline of its own: see docs/performance.md.
const quickResponse = 200 * time.Millisecond

// A persistConn is an HTTP/1.1 connection. It sends one request after the other, each on
// its caller's goroutine. Between them it is in an idlePool.
type persistConn struct {
	conn     net.Conn     // TLS, if the origin speaks it
	tracked  *trackedConn // below TLS
	socket   *socket.Conn // below all
	endpoint endpoint
	keep     func(*persistConn) // returns the connection to its pool
	cut      func()             // closes the socket

	idle idleState

	used  bool            // a response has arrived over the connection
	wrote bool            // at least one byte of the request was written
	head  int             // number of bytes that the head of the response may still have; -1: the head is complete
	lines int             // number of lines read of the head, and possibly of what follows
	until time.Time       // the read deadline that was set for a quick response; zero: another one, or none
	timed bool            // the read deadline is the one of a slow response
	from  *bufio.Reader   // reads the response; nil: no request is in flight
	ctx   context.Context // of the request
	stop  func() bool     // keeps the end of ctx from closing the connection; nil: ctx does not close it
	peek  [1]byte
}

// An idleState is the state of a connection in an idlePool.
type idleState struct {
	watch        *idleWatch   // nil: none; guarded by the pool's mutex
	round        uint64       // the pool's round when the connection became idle
	older, newer *persistConn // neighbours in the order in which connections became idle
}

// newPersistConn returns nil for a connection that cannot be peeked at.
func newPersistConn(conn net.Conn, at endpoint, keep func(*persistConn)) *persistConn {
	t := tracked(conn)
	s := socketUnder(t.Conn)
	if s == nil || !socket.Direct {
		return nil
	}
	t.pooled = true
	p := &persistConn{conn: conn, tracked: t, socket: s, endpoint: at, keep: keep, cut: func() { t.Close() }}
	s.OnBlocked = p.closeWithContext
	return p
}

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

	errUnsolicited = errors.New("the origin sent data without a request")
	errHeadSize    = fmt.Errorf("the response header exceeds %d bytes", maxHeadBytes)
	errFieldCount  = fmt.Errorf("the response header exceeds %d fields", maxFields)
)

// A noResponseError says why a connection ended before the first byte of a response.
type noResponseError struct{ error }

func (e noResponseError) Unwrap() error { return e.error }

// A headTimeoutError is the error of a response whose head has not arrived in time.
type headTimeoutError struct{ limit time.Duration }

func (e headTimeoutError) Error() string {
	return fmt.Sprintf("no response from the origin within %g s", e.limit.Seconds())
}
func (headTimeoutError) Timeout() bool        { return true }
func (headTimeoutError) Temporary() bool      { return true }
func (headTimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// checkIdle returns an error if a connection without a request has data to read, or has
// ended.
func (p *persistConn) checkIdle() error {
	p.tracked.peek = p.socket
	n, err := p.conn.Read(p.peek[:])
	p.tracked.peek = nil
	switch {
	case n > 0 || p.tracked.records != nil && !p.tracked.records.atBoundary():
		return errUnsolicited
	case err == socket.ErrWouldBlock:
		return nil
	}
	return err
}

// Write writes to the connection.
func (p *persistConn) Write(b []byte) (int, error) {
	n, err := p.conn.Write(b)
	p.wrote = p.wrote || n > 0
	return n, err
}

// Read reads a response. It limits the size and the time of the head.
func (p *persistConn) Read(b []byte) (int, error) {
	switch {
	case p.head == 0:
		return 0, errHeadSize
	case p.head > 0 && p.lines > maxFields: // everything so far is part of the head
		return 0, errFieldCount
	}
	if p.head > 0 {
		b = b[:min(len(b), p.head)]
	} else if p.timed {
		p.timed = false
		if err := p.conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
	n, err := p.conn.Read(b)
	if p.head > 0 {
		p.head -= n
		p.lines += bytes.Count(b[:n], []byte("\n"))
	}
	return n, err
}

// roundTrip sends r. The head of the response must arrive within timeout. After an error
// the connection is closed.
func (p *persistConn) roundTrip(ctx context.Context, r *http.Request, s *sending, timeout time.Duration) (*http.Response, error) {
	if err := s.connected(p.conn, p.used); err != nil {
		p.conn.Close()
		return nil, err
	}
	p.from, p.ctx, p.stop, p.wrote = readers.Get().(*bufio.Reader), ctx, nil, false
	p.from.Reset(p)
	resp, err := p.exchange(r, s, timeout)
	if err != nil {
		p.finish(false)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	reusable := !r.Close && !resp.Close && resp.StatusCode >= http.StatusOK
	if resp.Body == http.NoBody {
		p.finish(reusable)
	} else {
		resp.Body = &body{inner: resp.Body, conn: p, ctx: ctx, reusable: reusable}
	}
	return resp, nil
}

func (p *persistConn) exchange(r *http.Request, s *sending, timeout time.Duration) (*http.Response, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.checkIdle(); err != nil {
		return nil, noResponseError{err}
	}
	if err := p.writeRequest(r, s); err != nil {
		return nil, err
	}
	err := p.awaitResponse(timeout)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, headTimeoutError{timeout}
	}
	if err != nil {
		return nil, noResponseError{fmt.Errorf("no response from the origin: %w", err)}
	}
	resp, err := p.readResponse(r, s, timeout)
	if err != nil && p.lines > maxFields {
		err = errFieldCount // not the error of the line that was cut
	}
	p.head = -1
	if err == nil && resp.Body != http.NoBody && (resp.ContentLength < 0 || resp.ContentLength > int64(p.from.Buffered())) {
		p.closeWithContext()
		p.timed, p.until = true, time.Time{} // the first read of the body ends the deadline
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, headTimeoutError{timeout}
	case err != nil:
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return resp, nil
}

// writeRequest writes the request.
func (p *persistConn) writeRequest(r *http.Request, s *sending) error {
	to := writers.Get().(*bufio.Writer)
	to.Reset(p)
	err := writeRequest(to, r)
	if err == nil {
		s.wroteHead()
		err = to.Flush()
	}
	to.Reset(nil)
	writers.Put(to)
	if err != nil && !p.wrote {
		err = noResponseError{err}
	}
	return err
}

// awaitResponse waits for the first byte of the response.
func (p *persistConn) awaitResponse(timeout time.Duration) error {
	p.head, p.lines, p.timed = maxHeadBytes, 0, false
	limit := min(quickResponse, timeout)
	if now := time.Now(); p.until.Sub(now) < limit/2 { // otherwise the deadline of an earlier request is good enough
		p.until = now.Add(limit)
		if err := p.conn.SetReadDeadline(p.until); err != nil {
			return err
		}
	}
	_, err := p.from.Peek(1)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if err := p.awaitSlow(timeout); err != nil {
		return err
	}
	_, err = p.from.Peek(1)
	return err
}

// awaitSlow prepares for a response that is late or whose head is incomplete. From now on
// the end of the request's context closes the connection, and the rest of the head must
// arrive within timeout.
func (p *persistConn) awaitSlow(timeout time.Duration) error {
	if p.timed {
		return nil
	}
	p.closeWithContext()
	p.timed, p.until = true, time.Time{}
	return p.conn.SetReadDeadline(time.Now().Add(timeout))
}

// closeWithContext makes the end of the request's context close the connection.
func (p *persistConn) closeWithContext() {
	if p.ctx != nil && p.stop == nil {
		p.stop = context.AfterFunc(p.ctx, p.cut)
	}
}

// readResponse reads the head of the response, and the 1xx responses before it (RFC 9110
// 15.2).
func (p *persistConn) readResponse(r *http.Request, s *sending, timeout time.Duration) (*http.Response, error) {
	for {
		if resp := readSimpleResponse(p.from, r); resp != nil {
			return resp, nil
		}
		if err := p.awaitSlow(timeout); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(p.from, r)
		if err != nil {
			return nil, err
		}
		status := resp.StatusCode
		if status < http.StatusContinue || status >= http.StatusOK || status == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if err := s.informational(status, textproto.MIMEHeader(resp.Header)); err != nil {
			return nil, err
		}
	}
}

// finish ends the request. If its response ended well, the connection returns to the pool,
// unless more data than the response has arrived or the end of the context has closed it.
func (p *persistConn) finish(well bool) {
	uncut := p.stop == nil || p.stop()
	p.ctx, p.stop = nil, nil // they keep the whole request in memory
	reusable := well && uncut && p.from.Buffered() == 0
	p.from.Reset(nil)
	readers.Put(p.from)
	p.from = nil
	if !reusable {
		p.tracked.writes.set(nil) // TLS sends a close alert, which is not part of the request
		p.conn.Close()
		return
	}
	p.used = true
	p.keep(p)
}

// A body is the body of a response. When all of it was read, its connection is free for
// another request. If it is closed earlier, it is not read further.
type body struct {
	inner    io.ReadCloser // its Close may read on
	conn     *persistConn  // until done
	ctx      context.Context
	reusable bool        // the connection may be reused
	done     atomic.Bool // read to its end, or closed
	err      error       // the error with which it ended
}

// Read reads from the body.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.done.Load() {
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
	if b.done.CompareAndSwap(false, true) {
		b.conn.finish(err == io.EOF && b.reusable)
	}
	return n, err
}

// Close may be called while another goroutine reads. That Read then fails.
func (b *body) Close() error {
	if b.done.CompareAndSwap(false, true) {
		if b.conn.stop != nil {
			b.conn.stop()
		}
		b.conn.conn.Close()
	}
	return nil
}

// excludedFields are fields that another function writes, or that a request without a
// body does not have.
var excludedFields = map[string]bool{"Host": true, "User-Agent": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true}

// writeRequest writes a simple request with the same bytes as http.Request.Write. It
// leaves other requests to http.Request.Write.
func writeRequest(to *bufio.Writer, r *http.Request) error {
	host, target := cmp.Or(r.Host, r.URL.Host), robots.PathQueryOf(r.URL)
	agent, named := r.Header["User-Agent"] // if it is missing, http.Request.Write sends that of Go
	if !named || r.Close || !httpguts.ValidHostHeader(host) || strings.Contains(host, "%") || strings.ContainsFunc(target, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return r.Write(to)
	}
	add := func(parts ...string) {
		for _, s := range parts {
			to.WriteString(s) // the last write returns the error
		}
	}
	add(cmp.Or(r.Method, http.MethodGet), " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n")
	if len(agent) > 0 && agent[0] != "" {
		add("User-Agent: ", textproto.TrimString(agent[0]), "\r\n")
	}
	r.Header.WriteSubset(to, excludedFields)
	_, err := to.WriteString("\r\n")
	return err
}

// readSimpleResponse reads the head of r's response from the buffer, as http.ReadResponse
// does. The head must be complete and final, and must give the length of a body after
// which the connection stays open. Otherwise it returns nil and reads nothing.
func readSimpleResponse(from *bufio.Reader, r *http.Request) *http.Response {
	buffered, _ := from.Peek(from.Buffered()) // cannot fail
	start, fields, size := h1.ParseHead(buffered)
	status, ok := strings.CutPrefix(start, "HTTP/1.1 ")
	lengths := fields["Content-Length"]
	if !ok || len(lengths) != 1 || r.Method == http.MethodHead || httpguts.HeaderValuesContainsToken(fields["Connection"], "close") {
		return nil
	}
	for _, name := range [...]string{"Transfer-Encoding", "Trailer", "Pragma"} { // net/http treats them specially
		if fields[name] != nil {
			return nil
		}
	}
	word, _, _ := strings.Cut(status, " ")
	code, err := strconv.ParseUint(word, 10, 0)
	if len(word) != 3 || err != nil || code < 200 || code == http.StatusNoContent || code == http.StatusNotModified {
		return nil
	}
	length, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil {
		return nil
	}
	from.Discard(size) // cannot fail
	resp := &http.Response{
		Status: status, StatusCode: int(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: fields, ContentLength: int64(length), Body: http.NoBody, Request: r,
	}
	if length > 0 {
		resp.Body = &sizedBody{from, int64(length)}
	}
	return resp
}

// A sizedBody is a body of known length (RFC 9112 6.3).
type sizedBody struct {
	from *bufio.Reader
	left int64
}

// Read reads from the body. io.ErrUnexpectedEOF means that the connection ended before the
// body did.
func (b *sizedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case err == nil && b.left == 0:
		err = io.EOF
	case err == io.EOF && b.left > 0:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close does nothing: the owner of the connection closes it.
func (*sizedBody) Close() error { return nil }
