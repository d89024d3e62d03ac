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
	// Ready is called when the try has a connection, and for HTTP/1.1 again when the first
	// byte is about to leave, because the write may have been held up in between. It returns
	// nil when the request may be written. Then the second call should return nil at once,
	// if the permission of the first still holds. ctx is that of Send. The time that Ready
	// takes is no part of a time limit. After an error nothing of this try is written, its
	// connection is closed (HTTP/2: only its stream), and Send returns that very error without
	// another try.
	Ready(ctx context.Context) error

	// Sent is called once in a try, when the head has left: HTTP/1.1: right after the first
	// write to the socket; HTTP/2: after the write of the HEADERS frame; FTP: when the
	// transfer was requested, or the request ended without one. If a try ends and it is not
	// certain that nothing has left, Sent is called before the next try, or before Send
	// returns. A response is never returned without a call of Sent.
	Sent()

	// Retry is called when another try begins, before it gets a connection. Without it, a
	// permission that Ready gave, and that was not used, would hold up others while the next
	// connection is being made.
	Retry()

	// Informational is called for each 1xx response, but 101 (RFC 9110 15.2). It may keep the
	// header. An error ends the request, and Send's error wraps it. It is a part of Gate
	// because Send returns the final response alone.
	Informational(status int, header textproto.MIMEHeader) error
}

const (
	// maxNewConns is how many new connections one request gets. net/http sends a request
	// again, without end, to a peer that says of each HTTP/2 connection that it takes no more
	// requests (GOAWAY).
	maxNewConns = 3

	// maxAttempts is how often Send tries a request that no origin has seen.
	maxAttempts = 3

	// minHeld is how long a new connection has to be held up by Ready before Send assumes
	// that the origin has closed it for that reason.
	minHeld = time.Millisecond

	// drainTime is how long a reader may take to use up what has arrived.
	drainTime = time.Second
)

var errNewConns = errors.New("the origin accepts requests on none of its connections")

// A sending is one call of Send. The fields that are not atomic belong to the caller's
// goroutine.
type sending struct {
	gate Gate            // nil: the request may be written at any time
	ctx  context.Context // of Send

	traceCtx context.Context          // of the Transport's requests; nil: there was none
	cancel   context.CancelCauseFunc  // ends traceCtx
	onIdle   func(*trackedConn, bool) // is told whether a connection is idle in the Transport; nil: nobody is

	tried    bool // a try had a connection
	newConns int
	conn     *trackedConn

	held    atomic.Int64          // nanoseconds that Ready took in this try
	hooked  atomic.Bool           // the connection tells when the head leaves
	wrote   atomic.Bool           // the head of this try was written, to a buffer at least
	told    atomic.Bool           // Sent was called in this try
	left    atomic.Bool           // the head of any try has left
	refused atomic.Pointer[error] // why the request may not be written
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

// reset ends the try before.
func (s *sending) reset() {
	s.confirm()
	s.tried = false
	s.held.Store(0)
	s.wrote.Store(false)
	s.told.Store(false)
}

// connected holds the request up, now that the try has a connection, until it may be
// written. With an error the connection has to be closed.
func (s *sending) connected(conn net.Conn, reused bool) error {
	if s.tried {
		s.reset() // net/http has chosen another HTTP/2 connection
	}
	s.tried = true
	s.conn = tracked(conn)
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
	hooked := s.conn != nil && !s.conn.http2 && s.gate != nil
	s.hooked.Store(hooked)
	if hooked {
		s.conn.writes.set(s)
	}
	return nil
}

// drain waits, on a connection of a Transport, until everything that has arrived on it is
// used up. net/http reuses a connection before it has noticed that the origin sent more
// than was requested (the body of a response to HEAD, say), and would take that for the
// response to the next request, which may be another client's. Given the time, it notices,
// and closes the connection. HTTP/2 numbers its responses, and a persistConn is checked.
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

// refuse ends the request for good.
func (s *sending) refuse(err error) {
	s.refused.Store(&err)
	s.end(err)
}

// beforeWrite is called by an HTTP/1.1 connection that the head is about to leave.
func (s *sending) beforeWrite() error {
	if err := s.refused.Load(); err != nil {
		return *err
	}
	return s.ready()
}

// afterWrite is called by an HTTP/1.1 connection that the head has left.
func (s *sending) afterWrite() {
	s.left.Store(true)
	s.tell()
}

// wroteHead is called when the head has been written, to a buffer with HTTP/1.1. It may be
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

// confirm calls Sent if the head may have left: its last write may not have returned yet.
func (s *sending) confirm() {
	if s.wrote.Load() && s.refused.Load() == nil {
		s.tell()
	}
}

// informational passes a 1xx response on.
func (s *sending) informational(status int, header textproto.MIMEHeader) error {
	if s.gate == nil {
		return nil
	}
	return s.gate.Informational(status, header)
}

// finish ends an attempt with an error, or nil for a response, and returns the error of Send.
func (s *sending) finish(err error) error {
	if err == nil {
		s.tell() // the response may be here before the write has returned
		return nil
	}
	if refused := s.refused.Load(); refused != nil {
		return *refused
	}
	s.confirm()
	return err
}

// end ends what a Transport still does for the request. err is why.
func (s *sending) end(err error) {
	if s.cancel != nil {
		s.cancel(err)
	}
}

// again reports whether Send may attempt r again: the origin has seen nothing of r, and
// closed the connection probably because Ready held it up. The Transport itself tries
// again only if an idle connection turns out to be dead.
func (s *sending) again(r *http.Request) bool {
	return time.Duration(s.held.Load()) > minHeld && !s.left.Load() && s.refused.Load() == nil && s.ctx.Err() == nil &&
		!hasBody(r) && idempotent(r.Method)
}

// hasBody reports whether r has a body.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// idempotent reports whether a request with a method may be sent again, as net/http sees it
// (RFC 9110 9.2.2).
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// traced returns a copy of r for a Transport, which reports to s.
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

// gotConn keeps a refused request from being written. HTTP/2 looks at the context, which
// refuse has ended, before it writes, and has other requests on the connection.
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
