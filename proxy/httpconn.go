package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/socket"
)

// An httpConn is a connection that carries HTTP/1, in the clear or over TLS. If net/http serves it, and
// not package h1, an httpConn gives it heads that it passes to the handler (see requestReader). It replaces the
// responses that net/http makes itself, which do not identify the proxy, give no reason and have no
// record.
type httpConn struct {
	net.Conn
	h        *Handler
	requests requestReader

	// The CONNECT that the client of a redirected connection has not sent; "": none.
	connect string

	// A request has been read and not answered yet.
	serving atomic.Bool

	// error of the TLS handshake; net/http reads and writes on one goroutine before the first request.
	tlsErr error
}

// An httpListener wraps each accepted connection in an httpConn.
type httpListener struct {
	*listener

	// nil: connections are in the clear.
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
	return l.h.newHTTPConn(c), nil
}

// newHTTPConn wraps a connection in an httpConn.
func (h *Handler) newHTTPConn(c net.Conn) *httpConn {
	conn := &httpConn{Conn: c, h: h}
	conn.requests.from, conn.requests.memory = conn.readConn, connInfoOf(c).memory()
	conn.requests.limit = func() error { return c.SetReadDeadline(time.Now().Add(h.o.HeadTimeout)) }
	return conn
}

// Read returns what net/http's server reads: see requestReader.
func (c *httpConn) Read(b []byte) (int, error) { return c.requests.Read(b) }

// readConn reads from the connection.
func (c *httpConn) readConn(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if secure, ok := c.Conn.(*tls.Conn); ok && err != nil && !secure.ConnectionState().HandshakeComplete {
		if c.tlsErr == nil {
			c.h.counts.faults.Add("", err)
		}
		c.tlsErr = err
	}
	return n, err
}

// isTLSInTheClear reports whether the client has begun a TLS handshake on the proxy's own port without TLS.
func (c *httpConn) isTLSInTheClear() bool {
	_, secure := c.Conn.(*tls.Conn)
	return c.requests.protocol == wireTLS && !secure && connInfoOf(c).tunnel == nil
}

// Direct returns the connection on which h1 serves simple requests (h1.Conn).
func (c *httpConn) Direct() net.Conn {
	if c.connect != "" {
		return &impliedConnect{rawConn(c), c.connect}
	}
	return rawConn(c)
}

// Otherwise net/http would serve all requests.
var _ h1.Conn = (*httpConn)(nil)

// HandOver prepares the connection for net/http (h1.Conn).
func (c *httpConn) HandOver(ahead []byte) { c.requests.ahead, c.requests.active = ahead, true }

// Write sends a response. It replaces a response that net/http makes itself, which belongs
// to no request.
func (c *httpConn) Write(b []byte) (int, error) {
	if c.serving.Load() || c.requests.protocol == wireHTTP2 || !bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}
	return len(b), c.h.answerUnreadable(unreadable{
		conn: c.Conn, client: connInfoOf(c).clientName(), head: c.requests.sent,
		tls: c.isTLSInTheClear(), tlsFault: c.tlsErr, headErr: c.requests.err, answer: b,
	})
}

// CloseWrite closes the writing direction.
func (c *httpConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }

// A connInfo is the client's connection on which a request arrived, with its layers.
type connInfo struct {
	// nil with HTTP/2 over TLS.
	http *httpConn

	// On the proxy's own port; nil in a tunnel.
	client *clientConn

	// nil on the proxy's own port.
	tunnel *tunnelConn
}

// clientName returns the client of the connection, as far as it is known before a request.
func (c connInfo) clientName() string {
	if c.tunnel != nil {
		return c.tunnel.admitted.Load().client
	}
	return *c.client.client.Load()
}

// connInfoOf returns the layers of a connection of a server.
func connInfoOf(c net.Conn) (a connInfo) {
	a.http, _ = c.(*httpConn)
	switch c := underlying(c).(type) {
	case *clientConn:
		a.client = c
	case *tunnelConn:
		a.tunnel = c
	}
	return a
}

// underlying returns the connection under HTTP and TLS.
func underlying(c net.Conn) net.Conn {
	if h, ok := c.(*httpConn); ok {
		c = h.Conn
	}
	// *tls.Conn.
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
	if cc, ok := c.(*clientConn); ok {
		c = cc.Conn
	}
	return c
}

// reset resets a client's connection, so that the client cannot take the end for a
// complete response.
func reset(c net.Conn) {
	under := underlying(c)
	if t, ok := under.(*tunnelConn); ok {
		// For the count.
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

type connInfoKey struct{}

// withConnInfo puts the connInfo of a connection into the context of its requests
// (http.Server.ConnContext).
func withConnInfo(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connInfoKey{}, connInfoOf(c))
}

// connInfoFrom returns the connInfo of a request, or the zero value if it has none.
func connInfoFrom(r *http.Request) connInfo {
	a, _ := r.Context().Value(connInfoKey{}).(connInfo)
	return a
}

// tunnelOf returns the intercepted tunnel in which a request arrived, or nil if it
// arrived on the proxy's own port.
func tunnelOf(r *http.Request) *tunnelConn { return connInfoFrom(r).tunnel }

// redirect returns the original destination of the connection, or nil if the client
// connected to the proxy.
func (c connInfo) redirect() *redirect {
	switch {
	case c.client != nil:
		return c.client.redirect
	case c.tunnel != nil:
		return c.tunnel.redirect
	}
	return nil
}

// clientConn returns the connection to the proxy's own port, which may carry the tunnel in which a request arrived. It is nil in
// tests.
func (c connInfo) clientConn() *clientConn {
	if c.tunnel != nil {
		return c.tunnel.outer
	}
	return c.client
}

// memory returns the entry of the connection in the memory budget.
func (c connInfo) memory() *memory.Work {
	switch {
	case c.client != nil:
		return &c.client.memory
	case c.tunnel != nil:
		return &c.tunnel.memory
	}
	return new(memory.Work)
}

// logins returns the owner of the connections to origins that carry the client's login.
func (c connInfo) logins() *egress.Owner {
	switch {
	case c.client != nil:
		return &c.client.logins
	case c.tunnel != nil:
		return &c.tunnel.logins
	}
	return nil
}
