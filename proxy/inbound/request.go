package inbound

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"robotsproxy/proxy/h1"
)

// serveHTTP hands a request to its Handler, from the proxy's own port or from an intercepted tunnel.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		growStack()
	}
	l := r.Context().Value(layersKey{}).(*layers)
	if l.http != nil {
		l.http.serving.Store(true)
	}
	if r.ContentLength == 0 {
		// HTTP/1.1 does the same. A request with another body could not be sent again on a new connection.
		r.Body = http.NoBody
	}
	sent := sentHeadOf(r)
	req := &Request{HTTP: r, Method: sent.method, Sent: sent.target, Conn: l.conn, Tunnel: l.tunnel, Writer: w, counted: true}
	if l.http != nil {
		req.under = l.http.Conn
	}
	switch {
	case sent.fault != nil:
		req.Fault, req.TargetErr = sent.fault, sent.fault
	case r.Method == http.MethodConnect:
		req.Target.Origin, req.TargetErr = connectTarget(r, l.tunnel, sent.target)
	default:
		req.Target, req.TargetErr = target(r, l.conn, l.tunnel, sent.target)
	}
	req.Conn.place.begin()
	defer req.Leave()
	l.handler.ServeRequest(req)
}

// growStack grows the goroutine's stack in one step to the size that a request needs. HTTP/2
// has a new goroutine for each request. Its stack would otherwise grow in steps, with a copy
// at each.
//
//go:noinline
func growStack() {
	// Together with the existing frames it has under 16 KiB, because larger stacks are not cached.
	var frame [11 << 10]byte
	runtime.KeepAlive(&frame)
}

// Leave ends the count of the request as one in progress on its connection, which may then be closed as idle. It may be
// called again.
func (r *Request) Leave() {
	if r.counted {
		r.counted = false
		r.Conn.place.end()
	}
}

// EndConnection makes the response the last of its connection while the Server drains; with
// HTTP/2 net/http then sends GOAWAY. It also does so for an HTTP/1 connection on which the next
// bytes could be misread as a request: if the client's body was not read to its end (uploaded); after a
// chunked body, because net/http does not tell whether there was a Content-Length as well (RFC
// 9112 6.1); and with HTTP/1.0, whose Transfer-Encoding net/http ignores (RFC 9112 9.3). Call it before the head of the
// response is written.
func (r *Request) EndConnection(uploaded bool) {
	if r.Conn != nil && r.Conn.server.draining.Load() {
		r.Writer.Header().Set("Connection", "close")
	}
	if r.HTTP.ProtoMajor != 1 || uploaded && r.HTTP.ProtoAtLeast(1, 1) && len(r.HTTP.TransferEncoding) == 0 {
		return
	}
	r.Writer.Header().Set("Connection", "close")
	if !uploaded {
		http.NewResponseController(r.Writer).EnableFullDuplex()
	}
}

// Abort breaks off the response so that the client notices: net/http closes the connection or
// resets the stream. If closing the connection would look like the end of the body, because its length was not
// announced, Abort resets it. It does not return.
func (r *Request) Abort(announced bool) {
	if !announced && !r.HTTP.ProtoAtLeast(1, 1) {
		if conn, _, err := http.NewResponseController(r.Writer).Hijack(); err == nil {
			reset(conn)
		}
	}
	panic(http.ErrAbortHandler)
}

// DiscardBody reads the rest of the client's body after the response, for at most lastWait.
// net/http would read it without a time limit. After a refusal it reads on if the body is broken.
func (r *Request) DiscardBody(refused bool) {
	if r.HTTP.ProtoMajor != 1 {
		return
	}
	client := http.NewResponseController(r.Writer)
	// The response does not wait for the body.
	client.Flush()
	until := time.Now().Add(lastWait)
	if r.Fault != nil && r.under != nil {
		// All that follows on the connection is the body of such a request.
		h1.Discard(r.under, until)
		return
	}
	client.SetReadDeadline(until)
	// The read also waits for the sending of the request, which may still read the body.
	_, err := io.CopyN(io.Discard, r.HTTP.Body, h1.MaxDiscarded)
	if refused && err != nil && err != io.EOF && r.under != nil {
		h1.Discard(r.under, until)
	}
}

// Close closes the connection, and ends its count.
func (r *Raw) Close() error {
	defer r.server.hijacked.Remove(r)
	return r.whole.Close()
}

// Hijack takes over the connection of an HTTP/1 request. The error is http.ErrServerClosed if Shutdown was called.
func (r *Request) Hijack() (*Raw, error) {
	conn, ahead, err := r.hijack()
	if err != nil {
		return nil, err
	}
	return r.Conn.server.takeOver(conn, ahead, closeConn)
}

// takeOver returns the Raw of a connection, which a shutdown ends with end.
func (s *Server) takeOver(conn net.Conn, ahead *bufio.Reader, end func(net.Conn)) (*Raw, error) {
	r := &Raw{Conn: rawConn(conn), Ahead: ahead, whole: conn, server: s, end: end}
	if !s.hijacked.Add(r) {
		conn.Close()
		return nil, http.ErrServerClosed
	}
	return r, nil
}

// hijack takes over the client's connection from the server, with a reader for the bytes that
// the server has read ahead.
func (r *Request) hijack() (net.Conn, *bufio.Reader, error) {
	conn, rw, err := http.NewResponseController(r.Writer).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	if c, ok := conn.(*httpConn); ok {
		return conn, c.requests.withAhead(rw.Reader), nil
	}
	return conn, rw.Reader, nil
}
