package inbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/socket"
)

var (
	// ErrTLSInTheClear is the error of a client that begins a TLS handshake on a port without TLS. Often the proxy's URL in
	// its settings begins with https:// in place of http://.
	ErrTLSInTheClear = errors.New(
		"the client speaks TLS to the proxy's own port, which expects plain HTTP (use an http:// URL for the proxy)")

	// ErrPlainHTTP is the error of a client that speaks plain HTTP to a port that requires TLS.
	ErrPlainHTTP = errors.New("tls handshake with the client")
)

// An httpConn is a connection that carries HTTP/1, in the clear or over TLS. If net/http serves it, and
// not package h1, an httpConn gives it heads that it passes to the handler (see requestReader). It replaces the
// responses that net/http makes itself, which do not identify the proxy, give no reason and have no
// record.
type httpConn struct {
	net.Conn
	server   *Server
	handler  Handler
	requests requestReader

	// connect is the CONNECT that the client of a redirected connection has not sent; "": none.
	connect string

	// unused says that no request has begun, and serving that a request has been read and not answered yet.
	unused, serving atomic.Bool

	// tlsErr is the error of the TLS handshake; net/http reads and writes on one goroutine before the first request.
	tlsErr error
}

// An httpListener wraps each accepted connection in an httpConn.
type httpListener struct {
	*listener

	// secure is the configuration of TLS; nil: connections are in the clear.
	secure *tls.Config
}

// Accept waits for a connection.
func (l httpListener) Accept() (net.Conn, error) {
	c, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.secure != nil {
		c = tls.Server(c, l.secure)
	}
	return l.s.newHTTPConn(c), nil
}

// newHTTPConn wraps a connection in an httpConn.
func (s *Server) newHTTPConn(c net.Conn) *httpConn {
	l := layersOf(c)
	conn := &httpConn{Conn: c, server: s, handler: l.handler}
	conn.requests.from, conn.requests.memory = conn.readConn, l.memory
	conn.requests.limit = func() error { return c.SetReadDeadline(time.Now().Add(s.o.HeadTimeout)) }
	return conn
}

// Read returns what net/http's server reads: see requestReader.
func (c *httpConn) Read(b []byte) (int, error) { return c.requests.Read(b) }

// readConn reads from the connection.
func (c *httpConn) readConn(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if secure, ok := c.Conn.(*tls.Conn); ok && err != nil && !secure.ConnectionState().HandshakeComplete {
		if c.tlsErr == nil {
			c.server.counts.faults.Add("", err)
		}
		c.tlsErr = err
	}
	return n, err
}

// Direct returns the connection on which h1 serves simple requests (h1.Conn).
func (c *httpConn) Direct() net.Conn {
	if c.connect != "" {
		raw := rawConn(c)
		return &impliedConnect{raw, io.MultiReader(strings.NewReader(c.connect), raw)}
	}
	return rawConn(c)
}

// Without it, net/http would serve all requests.
var _ h1.Conn = (*httpConn)(nil)

// HandOver prepares the connection for net/http (h1.Conn).
func (c *httpConn) HandOver(ahead []byte) { c.requests.ahead, c.requests.active = ahead, true }

// Write sends a response. It replaces a response that net/http makes itself, which belongs
// to no request.
func (c *httpConn) Write(b []byte) (int, error) {
	if c.serving.Load() || c.requests.protocol == wireHTTP2 || !bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}
	return len(b), c.refuse(b)
}

// refuse has the handler record what net/http answers itself, and sends the handler's response in place of net/http's.
func (c *httpConn) refuse(answer []byte) error {
	refusal, to := Refusal{Method: c.requests.sent.method, Sent: c.requests.sent.target}, c.Conn
	switch inTheClear, plain := errors.AsType[tls.RecordHeaderError](c.tlsErr); {
	case plain && inTheClear.Conn != nil:
		refusal.Err, to = fmt.Errorf("%w: %w", ErrPlainHTTP, c.tlsErr), inTheClear.Conn
	case c.tlsErr != nil:
		c.server.o.Log.Debug("TLS handshake with a client failed", "error", c.tlsErr)
		// There is no request, and no response is possible.
		return c.tlsErr
	case c.isTLSInTheClear():
		refusal.Err = ErrTLSInTheClear
	case errors.Is(c.requests.err, memory.ErrShort):
		refusal.Err = c.requests.err
	default:
		refusal.Err = faultOf(answer)
	}
	var response bytes.Buffer
	if err := c.handler.Refuse(refusal).Write(&response); err != nil {
		return err
	}
	_, err := to.Write(response.Bytes())
	if err == nil {
		h1.Discard(to, time.Now().Add(lastWait))
	}
	return err
}

// isTLSInTheClear reports whether the client has begun a TLS handshake on the proxy's own port without TLS.
func (c *httpConn) isTLSInTheClear() bool {
	_, secure := c.Conn.(*tls.Conn)
	return c.requests.protocol == wireTLS && !secure && layersOf(c).tunnel == nil
}

// faultOf returns the error that net/http has answered with a response. Its status line depends on the
// kind of error only.
func faultOf(response []byte) *MalformedError {
	line, _, _ := strings.Cut(string(response), "\r\n")
	_, text, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(text, " ")
	// net/http says what was wrong in some cases.
	_, cause, known := strings.Cut(text, ": ")
	switch status, _ := strconv.Atoi(number); {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		return errLongHead
	case status == http.StatusNotImplemented:
		return &MalformedError{status, "its transfer coding is not supported", "Send the body with Content-Length, or chunked."}
	case status == http.StatusExpectationFailed:
		return &MalformedError{status, "its expectation is not supported", "Omit Expect, or send 100-continue."}
	case status == http.StatusHTTPVersionNotSupported:
		return &MalformedError{status, "its HTTP version is not supported", "Use HTTP/1.1 or HTTP/2."}
	case status == http.StatusBadRequest && known:
		return malformed(cause)
	}
	return malformed("its header is incomplete, has a line that is not NAME: VALUE, or a wrong Content-Length")
}

// CloseWrite closes the writing direction.
func (c *httpConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }

// An impliedConnect is a redirected TLS connection in the form that its server reads: it begins
// with the CONNECT that the client has not sent. The client could not understand a response other
// than 200 (see acceptHTTP1). Instead of sending one, the connection is reset.
type impliedConnect struct {
	net.Conn

	// in returns the CONNECT, then what the connection receives.
	in io.Reader
}

// Read returns the CONNECT, then reads from the connection.
func (c *impliedConnect) Read(b []byte) (int, error) { return c.in.Read(b) }

// Write resets the connection.
func (c *impliedConnect) Write(b []byte) (int, error) {
	reset(c.Conn)
	return len(b), nil
}

// layers are the connections under the one on which a request arrived.
type layers struct {
	// http is nil with HTTP/2 over TLS.
	http *httpConn

	// conn is the connection to the proxy's own port, which may carry the tunnel.
	conn *Conn

	// tunnel is nil on the proxy's own port.
	tunnel *Tunnel

	// handler gets the requests of the tunnel or the connection, and memory is its entry in the memory budget.
	handler Handler
	memory  *memory.Work
}

// layersOf returns the layers of a connection of a server.
func layersOf(c net.Conn) (l layers) {
	l.http, _ = c.(*httpConn)
	switch c := underlying(c).(type) {
	case *Conn:
		l.conn, l.handler, l.memory = c, c.handler, &c.memory
	case *Tunnel:
		l.conn, l.tunnel, l.handler, l.memory = c.carrier, c, c.handler, &c.memory
	}
	return l
}

type layersKey struct{}

// withLayers puts the layers of a connection into the context of its requests (http.Server.ConnContext).
func withLayers(ctx context.Context, c net.Conn) context.Context {
	l := layersOf(c)
	return context.WithValue(ctx, layersKey{}, &l)
}

// underlying returns the connection under HTTP and TLS.
func underlying(c net.Conn) net.Conn {
	if h, ok := c.(*httpConn); ok {
		c = h.Conn
	}
	// A *tls.Conn has it.
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	return c
}

// rawConn returns the connection that the kernel can copy from and to, or the TLS
// connection. The wrappers do nothing after the first bytes and before Close.
func rawConn(c net.Conn) net.Conn {
	if h, ok := c.(*httpConn); ok {
		c = h.Conn
	}
	if cc, ok := c.(*Conn); ok {
		c = cc.Conn
	}
	return c
}

// closeWriteOrClose closes the sending half of c, or all of c if that is not possible.
func closeWriteOrClose(c net.Conn) error {
	if err := socket.CloseWrite(c); err != errors.ErrUnsupported {
		return err
	}
	return c.Close()
}

// closeConn closes all of c.
func closeConn(c net.Conn) { c.Close() }

// closeReadOrClose ends the receiving half of c, or all of c if that is not possible. With Linux, what
// has arrived can still be read.
func closeReadOrClose(c net.Conn) {
	if r, ok := rawConn(underlying(c)).(interface{ CloseRead() error }); ok {
		// CloseRead fails if the peer has reset the connection. What the peer sent before can be read then.
		r.CloseRead()
		return
	}
	c.Close()
}

// reset resets a client's connection, so that the client cannot take the end for a
// complete response.
func reset(c net.Conn) {
	under := underlying(c)
	if t, ok := under.(*Tunnel); ok {
		// Its Close also ends what is counted of the tunnel.
		defer t.Close()
		under = underlying(t.Conn)
	}
	switch c := rawConn(under).(type) {
	case *socket.Conn:
		c.SetLinger(0)
	case *streamConn:
		c.broken.Store(true)
	}
	under.Close()
}
