package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"
)

// A Gate decides when Send may write a request, and learns when it has. Send may make more
// than one try, each on another connection: if an idle connection turns out to be dead, if an
// HTTP/2 peer refuses the request, or if the origin closes a new connection while Ready waits.
// The calls of one try are in this order:
//
//	Retry           on the caller's goroutine; not for the first try
//	Ready           on the caller's goroutine
//	Ready           on the goroutine that writes; HTTP/1.1 only
//	Sent            on the goroutine that writes, or the caller's
//	Informational   on the goroutine that reads; any number of times
//
// A directly sent request (see Client) is written and read on the caller's goroutine. All
// methods may wait. They may still be called after Send has returned because ctx ended.
type Gate interface {
	// Ready is called when the try has a connection. For HTTP/1.1 it is called again right
	// before the first byte is written, because the write may have been delayed. It returns
	// nil when the request may be written. The second call should return nil at once if the
	// permission of the first is still valid. ctx is that of Send. The time that Ready takes
	// does not count in any time limit. After an error nothing of this try is written, its
	// connection is closed (HTTP/2: only its stream), and Send returns that very error without
	// another try.
	Ready(ctx context.Context) error

	// Sent is called once in a try, when the head was sent. HTTP/1.1: right after the first
	// write to the socket. HTTP/2: after the write of the HEADERS frame. FTP: when the
	// transfer was requested, or the request ended without one. If a try ends and something
	// may have been sent, Sent is called before the next try, or before Send returns. Send
	// never returns a response without a call of Sent.
	Sent()

	// Retry is called when another try begins, before it gets a connection. It lets the Gate
	// take back an unused permission of Ready, which would otherwise delay other requests
	// while the next connection is made.
	Retry()

	// Informational is called for each 1xx response except 101 (RFC 9110 15.2). It may keep
	// the header. If it returns an error, the request ends and Send's error wraps it. It is
	// part of Gate because Send returns only the final response.
	Informational(status int, header textproto.MIMEHeader) error
}

const (
	// maxNewConns is the maximum number of new connections for one request. Without it,
	// net/http would send a request endlessly to a peer that refuses further requests on each
	// HTTP/2 connection (GOAWAY).
	maxNewConns = 3

	// maxAttempts is how often Send tries a request that has not reached the origin.
	maxAttempts = 3

	// minHeld is how long Ready must have delayed a new connection before Send assumes
	// that the origin closed the connection for that reason.
	minHeld = time.Millisecond

	// drainTime is how long a reader may take to read everything that has arrived.
	drainTime = time.Second
)

var errNewConns = errors.New("the origin accepts requests on none of its connections")

// A sending is one call of Send. Fields that are not atomic belong to the caller's
// goroutine.
type sending struct {
	gate    Gate            // nil: the request may be written at any time
	ctx     context.Context // of Send
	signer  Signer          // nil: the request is sent as it is
	request *http.Request   // that is sent; with a signer, its header belongs to the sending

	traceCtx context.Context          // context of the Transport's requests; nil: there were none
	cancel   context.CancelCauseFunc  // ends traceCtx
	onIdle   func(*trackedConn, bool) // called when a connection becomes idle in the Transport, or is no longer; nil: not called

	extra    string // what an originFormConn removes from the request
	tried    bool   // a try had a connection
	newConns int
	conn     *trackedConn

	held    atomic.Int64          // nanoseconds that Ready took in this try
	hooked  atomic.Bool           // the connection reports when the head is sent
	wrote   atomic.Bool           // the head of this try was written, at least to a buffer
	told    atomic.Bool           // Sent was called in this try
	left    atomic.Bool           // the head of any try was sent
	refused atomic.Pointer[error] // the error that keeps the request from being written
}

// begin begins a try.
func (s *sending) begin() {
	if s.tried {
		s.reset()
		if s.gate != nil {
			s.gate.Retry()
		}
	}
}

// reset ends the previous try.
func (s *sending) reset() {
	s.confirm()
	s.tried = false
	s.held.Store(0)
	s.wrote.Store(false)
	s.told.Store(false)
}

// connected calls Ready when the try has a connection, and returns when the request may
// be written. After an error the connection must be closed.
func (s *sending) connected(conn net.Conn, reused bool) error {
	if s.tried {
		s.reset() // net/http has chosen another HTTP/2 connection
	}
	s.tried = true
	s.conn = tracked(conn)
	if c, ok := conn.(*originFormConn); ok {
		c.extra = s.extra // the Transport has not given the request to the goroutine that writes yet
	}
	if s.conn != nil && s.onIdle != nil {
		s.onIdle(s.conn, false)
	}
	if !reused {
		if s.newConns++; s.newConns > maxNewConns {
			s.refuse(errNewConns)
			return errNewConns
		}
	} else {
		s.conn.drain()
	}
	if err := s.ready(); err != nil {
		return err
	}
	if err := s.sign(); err != nil {
		return err
	}
	hooked := s.conn != nil && !s.conn.http2 && s.gate != nil
	s.hooked.Store(hooked)
	if hooked {
		s.conn.writes.set(s)
	}
	return nil
}

// drain waits until everything that has arrived on a connection of a Transport was read.
// net/http may reuse a connection before it notices that the origin sent more than was
// requested, such as a body in response to HEAD. It would take that for the response to
// the next request, which may belong to another client. With some time, it notices and
// closes the connection. HTTP/2 and persistConns do not need this.
func (c *trackedConn) drain() {
	if c != nil && !c.http2 && !c.pooled && !c.reader.drained() {
		end := time.AfterFunc(drainTime, func() { c.Close() })
		c.reader.await()
		end.Stop()
	}
}

func (s *sending) ready() error {
	if s.gate == nil {
		return nil
	}
	began := time.Now()
	err := s.gate.Ready(s.ctx)
	s.held.Add(int64(time.Since(began)))
	if err != nil {
		s.refuse(err)
	}
	return err
}

// sign signs the request for this try.
func (s *sending) sign() error {
	if s.signer == nil {
		return nil
	}
	err := s.signer.Sign(s.request)
	if err != nil {
		s.refuse(err)
	}
	return err
}

// refuse ends the request and all its tries.
func (s *sending) refuse(err error) {
	s.refused.Store(&err)
	s.end(err)
}

// beforeWrite is called by an HTTP/1.1 connection right before the head is written.
func (s *sending) beforeWrite() error {
	if err := s.refused.Load(); err != nil {
		return *err
	}
	return s.ready()
}

// afterWrite is called by an HTTP/1.1 connection right after the head was written.
func (s *sending) afterWrite() {
	s.left.Store(true)
	s.tell()
}

// wroteHead is called when the head was written; with HTTP/1.1, to a buffer. It may be
// called although the connection was dropped.
func (s *sending) wroteHead() {
	if s.refused.Load() != nil {
		return
	}
	s.wrote.Store(true)
	if !s.hooked.Load() {
		s.afterWrite()
	}
}

// tell calls Sent, once in a try.
func (s *sending) tell() {
	if s.told.CompareAndSwap(false, true) && s.gate != nil {
		s.gate.Sent()
	}
}

// confirm calls Sent if the head may have been sent: its last write may not have returned
// yet.
func (s *sending) confirm() {
	if s.wrote.Load() && s.refused.Load() == nil {
		s.tell()
	}
}

// informational passes a 1xx response to the Gate.
func (s *sending) informational(status int, header textproto.MIMEHeader) error {
	if s.gate == nil {
		return nil
	}
	return s.gate.Informational(status, header)
}

// finish ends an attempt with an error, or with nil for a response. It returns the error of
// Send.
func (s *sending) finish(err error) error {
	if err == nil {
		s.tell() // the response may arrive before the write has returned
		return nil
	}
	if refused := s.refused.Load(); refused != nil {
		return *refused
	}
	s.confirm()
	return err
}

// end ends everything that a Transport still does for the request. err is the reason.
func (s *sending) end(err error) {
	if s.cancel != nil {
		s.cancel(err)
	}
}

// again reports whether Send may attempt r again: the origin has received nothing of r,
// and probably closed the connection because Ready delayed the request. The Transport
// itself tries again only if an idle connection was dead.
func (s *sending) again(r *http.Request) bool {
	return time.Duration(s.held.Load()) > minHeld && !s.left.Load() && s.refused.Load() == nil && s.ctx.Err() == nil &&
		!hasBody(r) && idempotent(r.Method)
}

// hasBody reports whether r has a body.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// idempotent reports whether a request with the method may be sent again, by the rules of
// net/http (RFC 9110 9.2.2).
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// traced returns a copy of r for a Transport that reports to s.
func (s *sending) traced(r *http.Request) *http.Request {
	if s.traceCtx == nil {
		s.traceCtx, s.cancel = context.WithCancelCause(s.ctx)
	}
	trace := &httptrace.ClientTrace{
		GetConn:        func(string) { s.begin() },
		GotConn:        s.gotConn,
		WroteHeaders:   s.wroteHead,
		Got1xxResponse: s.informational,
	}
	if s.onIdle != nil {
		trace.PutIdleConn = s.putIdleConn
	}
	return r.WithContext(httptrace.WithClientTrace(s.traceCtx, trace))
}

// gotConn prevents a refused request from being written. Before it writes, HTTP/2 checks
// the context, which refuse has ended. Its connection stays open for other requests.
func (s *sending) gotConn(got httptrace.GotConnInfo) {
	if s.connected(got.Conn, got.Reused) != nil && (s.conn == nil || !s.conn.http2) {
		got.Conn.Close()
	}
}

func (s *sending) putIdleConn(err error) {
	if err == nil && s.conn != nil {
		s.onIdle(s.conn, true)
	}
}
