package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/socket"
)

// bufferSize is the size of a connection's read buffer and of its write buffer, in bytes. Larger
// buffers, up to 32 KiB, were not faster.
const bufferSize = 4 << 10

// quickResponse is how long a request may be in flight before the end of its context
// closes the connection. A request with a faster response avoids that cost, and the cost
// of a deadline of its own.
const quickResponse = 200 * time.Millisecond

// A persistConn is a [Conn] of HTTP/1.1. It sends one request after the other; a pool keeps it between
// them. It belongs to the goroutine of its request.
type persistConn struct {
	key

	// conn is the connection, a *tls.Conn if the origin speaks TLS. tracked is below TLS, and socket below all; nil: the
	// socket cannot be peeked at.
	conn    net.Conn
	tracked *trackedConn
	socket  *socket.Conn
	pool    *pool

	// timeout is the time for the head of a response.
	timeout time.Duration
	info    Info

	// parent is the upstream proxy at its end, which forwards the requests; nil: the origin is at its end.
	parent *parent
	made   time.Time

	// watch runs while the connection is idle, or while its request waits; nil: there is none. The pool's mutex guards
	// it and round, the pool's round when the connection became idle, while the connection is in the pool.
	watch *idleWatch
	round uint64

	// used says that a response has arrived over the connection.
	used bool

	// requester is the Owner of the request in flight.
	requester *Owner

	// peeked is what checkIdle reads into. It is a field so that the read does not allocate.
	peeked [1]byte

	// until is the read deadline that was set for a quick response; zero: another one, or none.
	until time.Time

	inFlight
}

// An inFlight is the request in flight of a persistConn. The zero value is that there is none.
type inFlight struct {
	request *http.Request

	// stop keeps the end of the request's context from closing the connection; nil: that end does not close it.
	stop func() bool

	// wrote says that at least one byte of the request was written.
	wrote bool

	// upload sends the body; nil: there is none, or it was sent with the head.
	upload *upload

	// from reads the response.
	from *bufio.Reader

	// interim is the number of 1xx responses.
	interim int

	// head is the number of bytes that the heads of the responses, 1xx included, may still have; -1: the
	// head is complete. fields is the number of their fields, as far as it is known, and memory counts both.
	head, fields int
	memory       reserve

	// slowHead says that the read deadline is that of a slow head.
	slowHead bool
}

// newPersistConn returns a connection that no request has used yet.
func newPersistConn(conn net.Conn, at endpoint, in *pool, timeout time.Duration) *persistConn {
	p := &persistConn{key: key{endpoint: at}, conn: conn, tracked: tracked(conn), pool: in, timeout: timeout}
	p.info, p.made = infoOf(conn), time.Now()
	if socket.Direct {
		p.socket, _ = p.tracked.Conn.(*socket.Conn)
	}
	p.onBlocked(p.closeWithContext)
	return p
}

// onBlocked sets what is called when a write has to wait.
func (p *persistConn) onBlocked(f func()) {
	if p.socket != nil {
		p.socket.OnBlocked = f
	}
}

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

	errUnsolicited = errors.New("the origin sent data without a request")
)

// A headTimeoutError is the error of a response whose head has not arrived in time.
type headTimeoutError struct{ limit time.Duration }

func (e headTimeoutError) Error() string {
	return fmt.Sprintf("no response from the origin within %g s", e.limit.Seconds())
}
func (headTimeoutError) Timeout() bool        { return true }
func (headTimeoutError) Temporary() bool      { return true }
func (headTimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// checkIdle returns an error if a connection without a request has data to read, or has
// ended. It returns nil if the connection cannot be peeked at.
func (p *persistConn) checkIdle() error {
	if p.socket == nil {
		return nil
	}
	p.tracked.peek = p.socket
	n, err := p.conn.Read(p.peeked[:])
	p.tracked.peek = nil
	switch {
	case n > 0 || p.tracked.records != nil && !p.tracked.records.atBoundary():
		return errUnsolicited
	case err == socket.ErrWouldBlock:
		return nil
	}
	return err
}

// claim makes a connection ready for a request with these requirements.
func (p *persistConn) claim(want requirements) {
	if p.requester = want.owner; want.login {
		p.bind()
	}
	if p.socket == nil {
		// Without a watch it could not be checked when the request is sent.
		p.watch = newIdleWatch(p.conn, time.Now().Add(p.pool.keep))
		// stopWatch ends it.
		go p.watch.run()
	}
}

// bind makes a connection belong to the Owner of its request, if it has none yet.
func (p *persistConn) bind() {
	if p.owner != nil {
		return
	}
	o := p.requester
	if p.owner = o; o == nil {
		p.owner = noOwner
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.pools, p.pool) {
		o.pools = append(o.pools, p.pool)
	}
}

// Info implements [Conn].
func (p *persistConn) Info() Info { return p.info }

// Release implements [Conn].
func (p *persistConn) Release() {
	if !p.stopWatch() {
		p.conn.Close()
		return
	}
	p.pool.put(p)
}

// stopWatch ends the watch of a connection that is not in the pool, and reports whether it can take a request.
func (p *persistConn) stopWatch() bool {
	w := p.watch
	p.watch = nil
	return w == nil || w.stop()
}

// Send implements [Conn].
func (p *persistConn) Send(r *http.Request, work *memory.Work) (sent bool, err error) {
	p.inFlight = inFlight{request: r, from: readers.Get().(*bufio.Reader), head: h1.MaxHead, memory: reserve{work: work}}
	p.from.Reset(p)
	if err = p.send(); err == nil {
		return true, nil
	}
	sent = p.wrote
	return sent, p.fail(err)
}

func (p *persistConn) send() error {
	r := p.request
	if err := r.Context().Err(); err != nil {
		return err
	}
	if err := p.checkIdle(); err != nil {
		p.pool.closeAll(p.key)
		return p.unsent(err)
	}
	if !p.stopWatch() {
		return p.unsent(net.ErrClosed)
	}
	if p.socket == nil || h1.HasBody(r) {
		p.closeWithContext()
	}
	to := writers.Get().(*bufio.Writer)
	defer writers.Put(to)
	defer to.Reset(nil)
	to.Reset(p)
	target, login := p.parent.forwarding(r)
	if err := h1.WriteHead(to, r, target, login); err != nil && to.Flush() == nil {
		// The error is one of the request: the connection has none.
		return err
	}
	expects := len(r.Header["Expect"]) > 0
	switch {
	case !h1.HasBody(r):
	case r.GetBody != nil && !expects && 0 < r.ContentLength && r.ContentLength <= int64(to.Available()):
		// The body is in memory, and is sent with the head.
		if err := h1.WriteBody(to, r); err != nil {
			return err
		}
		r.Body.Close()
	default:
		p.upload = &upload{done: make(chan struct{}), waiting: true}
		if expects {
			p.upload.wanted = make(chan bool, 1)
		}
	}
	switch err := to.Flush(); {
	case err != nil && !p.wrote:
		return p.unsent(err)
	case err != nil:
		return p.lost(err)
	case p.upload == nil:
		return nil
	}
	// The socket would call it on the upload's goroutine.
	p.onBlocked(nil)
	p.until = time.Time{}
	if err := p.conn.SetReadDeadline(p.until); err != nil {
		return err
	}
	go p.upload.run(p.conn, r, p.timeout)
	return nil
}

// unsent returns the error of a connection that ended before anything was sent.
func (p *persistConn) unsent(err error) error {
	if failedAtOnce(p.used, p.made) {
		return err
	}
	return &unsentError{err}
}

// lost returns the error of a connection that ended after something was sent and before the response
// began. If it is a new one, another would probably end in the same way.
func (p *persistConn) lost(err error) error {
	if !p.used {
		return err
	}
	return &lostError{err}
}

// Write writes to the connection.
func (p *persistConn) Write(b []byte) (int, error) {
	n, err := p.conn.Write(b)
	p.wrote = p.wrote || n > 0
	return n, err
}

// Read reads a response. It limits the size, the time and the memory of the head.
func (p *persistConn) Read(b []byte) (int, error) {
	switch {
	case p.head == 0:
		return 0, h1.ErrHeadSize
	case p.head > h1.MaxHead-bufferSize:
		b = b[:min(len(b), p.head-(h1.MaxHead-bufferSize))]
	case p.head > 0:
		b = b[:min(len(b), p.head)]
	}
	n, err := p.conn.Read(b)
	if p.head > 0 {
		p.head -= n
		if short := p.countHead(); short != nil {
			return 0, short
		}
	}
	return n, err
}

// countHead counts the memory of the heads.
func (p *persistConn) countHead() error { return p.memory.set(headMemory(h1.MaxHead-p.head, p.fields)) }

// Receive implements [Conn].
func (p *persistConn) Receive() (*http.Response, error) {
	resp, err := p.receive()
	switch {
	case err == nil && IsInterim(resp):
		return resp, nil
	case err == nil:
		p.deliver(resp)
		return resp, nil
	}
	if p.upload != nil {
		err = p.upload.cause(err)
	}
	return nil, p.fail(err)
}

func (p *persistConn) receive() (*http.Response, error) {
	var resp *http.Response
	err := p.await()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, memory.ErrShort) {
		return nil, p.lost(fmt.Errorf("no response from the origin: %w", err))
	}
	if err == nil {
		resp, p.info.Dropped, err = h1.ReadResponse(p.from, p.request, p.awaitRest)
	}
	if err == nil {
		p.fields = len(resp.Header)
		err = p.countHead()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, headTimeoutError{p.timeout}
	case err != nil:
		return nil, fmt.Errorf("read the response: %w", err)
	case p.parent != nil && resp.StatusCode == http.StatusProxyAuthRequired:
		return nil, p.parent.fault(errCredentials)
	case !IsInterim(resp):
		return resp, nil
	}
	if p.interim++; p.interim > maxInterim {
		return nil, errInterim
	}
	if resp.StatusCode == http.StatusContinue && p.upload != nil {
		p.upload.decide(true)
	}
	return resp, nil
}

// await waits for the first byte of the response.
func (p *persistConn) await() error {
	if p.upload == nil && !p.slowHead && p.from.Buffered() == 0 {
		limit := min(quickResponse, p.timeout)
		// The deadline of an earlier request may be good enough.
		if now := time.Now(); p.until.Sub(now) < limit/2 {
			p.until = now.Add(limit)
			if err := p.conn.SetReadDeadline(p.until); err != nil {
				return err
			}
		}
		_, err := p.from.Peek(1)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := p.awaitSlow(); err != nil {
			return err
		}
	}
	_, err := p.from.Peek(1)
	return err
}

// awaitSlow prepares for a response that is late or whose head is incomplete. From now on
// the end of the request's context closes the connection, and the rest of the head must
// arrive in time.
func (p *persistConn) awaitSlow() error {
	// An upload sets the deadline at its end.
	if p.slowHead || p.upload != nil {
		return nil
	}
	p.closeWithContext()
	p.slowHead, p.until = true, time.Time{}
	return p.conn.SetReadDeadline(time.Now().Add(p.timeout))
}

// awaitRest prepares for the rest of an incomplete head, which may have as many fields as are permitted.
func (p *persistConn) awaitRest() error {
	p.fields = h1.MaxFields
	if err := p.countHead(); err != nil {
		return err
	}
	return p.awaitSlow()
}

// closeWithContext makes the end of the request's context close the connection.
func (p *persistConn) closeWithContext() {
	if p.request != nil && p.stop == nil {
		// The Close of TLS could wait for a write.
		p.stop = context.AfterFunc(p.request.Context(), func() { p.tracked.Close() })
	}
}

// deliver prepares the final response for its reader.
func (p *persistConn) deliver(resp *http.Response) {
	// The head is complete.
	p.head = -1
	if resp.StatusCode == http.StatusUnauthorized && hasLogin(resp.Header["Www-Authenticate"]) {
		p.bind()
	}
	if p.upload != nil {
		p.upload.responseBegan()
	}
	switched := resp.StatusCode == http.StatusSwitchingProtocols
	if switched && len(p.request.Header["Upgrade"]) > 0 {
		p.endDeadline()
		resp.Body = &upgradedConn{p.conn, p.from}
		if p.stop != nil {
			p.stop()
		}
		return
	}
	reusable := !p.request.Close && !resp.Close && !switched
	if resp.Body == http.NoBody {
		p.finish(reusable)
		return
	}
	if resp.ContentLength < 0 || resp.ContentLength > int64(p.from.Buffered()) {
		p.closeWithContext()
		p.endDeadline()
	}
	resp.Body = &pooledBody{inner: resp.Body, conn: p, ctx: p.request.Context(), reusable: reusable}
}

// endDeadline removes the read deadline. If that fails, so does the next Read.
func (p *persistConn) endDeadline() {
	p.until = time.Time{}
	p.conn.SetReadDeadline(p.until)
}

// fail ends the request with an error, and returns the error for the caller.
func (p *persistConn) fail(err error) error {
	ctx := p.request.Context()
	p.finish(false)
	return causeOf(ctx, err)
}

// finish ends the request. If its response ended well, the connection returns to the pool,
// unless more data than the response has arrived, the request is not complete, or the end of the
// context has closed the connection.
func (p *persistConn) finish(well bool) {
	uncut := p.stop == nil || p.stop()
	reusable := well && uncut && p.from.Buffered() == 0 && (p.upload == nil || p.upload.waitSent())
	p.from.Reset(nil)
	readers.Put(p.from)
	p.inFlight = inFlight{}
	if !reusable {
		p.conn.Close()
		return
	}
	p.used = true
	// An upload has removed it.
	if p.socket != nil && p.socket.OnBlocked == nil {
		p.onBlocked(p.closeWithContext)
	}
	p.pool.put(p)
}

// A pooledBody is the body of a response. When all of it was read, its connection is free for
// another request. If it is closed earlier, it is not read further.
type pooledBody struct {
	inner io.Reader

	// conn belongs to the body until done is set, which says that the body was read to its end, or closed.
	conn *persistConn
	ctx  context.Context
	done atomic.Bool

	// reusable says that the connection may be reused.
	reusable bool

	// err is the error with which the body ended.
	err error
}

// Read reads from the body.
func (b *pooledBody) Read(p []byte) (int, error) {
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
	err = causeOf(b.ctx, err)
	b.err = err
	if b.done.CompareAndSwap(false, true) {
		b.conn.finish(err == io.EOF && b.reusable)
	}
	return n, err
}

// Buffered returns how many bytes can be read without waiting.
func (b *pooledBody) Buffered() int {
	if b.done.Load() {
		return 0
	}
	return b.conn.from.Buffered()
}

// Close may be called while another goroutine reads. That Read then fails. Close does not call finish, because
// that Read may be using the reader.
func (b *pooledBody) Close() error {
	if b.done.CompareAndSwap(false, true) {
		if b.conn.stop != nil {
			b.conn.stop()
		}
		b.conn.conn.Close()
	}
	return nil
}

// An upgradedConn is a connection that has changed its protocol (RFC 9110 7.8).
type upgradedConn struct {
	net.Conn
	from *bufio.Reader
}

// Read reads from the connection.
func (u *upgradedConn) Read(b []byte) (int, error) { return u.from.Read(b) }

// CloseWrite closes the sending half of the connection.
func (u *upgradedConn) CloseWrite() error { return socket.CloseWrite(u.Conn) }
