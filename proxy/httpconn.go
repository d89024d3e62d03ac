package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/socket"
)

// An httpConn is a connection that carries HTTP/1, in the clear or over TLS. If net/http
// serves it, and not package h1, an httpConn corrects two things: how net/http looks for the
// preface of HTTP/2 (see prefaceCheck), and its responses to unreadable requests, which do not
// identify the proxy, give no reason and have no record.
type httpConn struct {
	net.Conn
	h       *Handler
	preface prefaceCheck
	ahead   []byte // bytes that were read before net/http got the connection
	head    headMeter
	connect string      // the CONNECT that the client of a redirected connection has not sent; "": none
	serving atomic.Bool // a request has been read and not answered yet
	tlsErr  error       // error of the TLS handshake; net/http reads and writes on one goroutine before the first request
}

// An httpListener wraps each accepted connection in an httpConn.
type httpListener struct {
	*listener
	secure *tls.Config // nil: connections are in the clear
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
	return &httpConn{Conn: c, h: h, preface: prefaceCheck{pending: true}, head: headMeter{memory: connInfoOf(c).memory()}}
}

// Read reads from the connection. The prefaceCheck handles its beginning.
func (c *httpConn) Read(b []byte) (int, error) {
	if !c.preface.pending {
		return c.read(b)
	}
	n, err := c.preface.read(c.read, b)
	if secure, ok := c.Conn.(*tls.Conn); ok && err != nil && !secure.ConnectionState().HandshakeComplete {
		if c.tlsErr == nil {
			c.h.counts.faults.Add("", err)
		}
		c.tlsErr = err
	}
	if n > 0 && c.isTLSInTheClear() {
		n = copy(b, "\n") // net/http would wait for the end of a line
	}
	return n, err
}

// isTLSInTheClear reports whether the client has begun a TLS handshake on the proxy's own port without TLS.
func (c *httpConn) isTLSInTheClear() bool {
	_, secure := c.Conn.(*tls.Conn)
	return c.preface.tls && !secure && connInfoOf(c).tunnel == nil
}

// read reads from the connection and passes the bytes to the headMeter.
func (c *httpConn) read(b []byte) (int, error) {
	metered := !c.serving.Load() && !c.preface.http2
	n, err := c.readConn(b)
	if metered {
		if fault := c.head.track(b[:n]); fault != nil {
			return 0, fault
		}
	}
	return n, err
}

// readConn returns the bytes in ahead, then reads from the connection.
func (c *httpConn) readConn(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// Direct returns the connection on which h1 serves simple requests (h1.Conn).
func (c *httpConn) Direct() net.Conn {
	c.preface.pending = false
	if c.connect != "" {
		return &impliedConnect{rawConn(c), c.connect}
	}
	return rawConn(c)
}

var _ h1.Conn = (*httpConn)(nil) // otherwise net/http would serve all requests

// HandOver prepares the connection for net/http (h1.Conn).
func (c *httpConn) HandOver(ahead []byte) {
	c.preface.pending, c.ahead = true, ahead
}

// Write sends a response. It replaces a response that net/http makes itself, which belongs
// to no request.
func (c *httpConn) Write(b []byte) (int, error) {
	if c.serving.Load() || c.preface.http2 || !bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}
	return len(b), c.h.answerUnreadable(unreadable{c.Conn, connInfoOf(c).clientName(), c.isTLSInTheClear(), c.tlsErr, c.head.err, b})
}

// CloseWrite closes the writing direction.
func (c *httpConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }

// A prefaceCheck reads the beginning of a connection in the clear. net/http looks there for
// HTTP/2's preface (RFC 9113 3.4). It would wait for as many bytes as the preface has,
// although the first bytes may already differ. If they differ, the prefaceCheck returns no
// bytes until bufio.Reader gives up. This ends the wait and loses nothing.
type prefaceCheck struct {
	pending    bool // net/http looks for the preface
	http2      bool // net/http has found it
	tls        bool // the first byte is that of a TLS handshake
	matched    int  // bytes that were read, all but the last of them as in the preface
	emptyReads int  // how many reads must still return no bytes
}

// tlsHandshake is the first byte of a TLS handshake (RFC 8446 5.1).
const tlsHandshake = 22

// maxEmptyReads is the number of reads without bytes after which a bufio.Reader gives up.
const maxEmptyReads = 100

// read reads the beginning of the connection with the function read.
func (p *prefaceCheck) read(read func([]byte) (int, error), b []byte) (int, error) {
	const preface = "PRI * HTTP/2.0" // net/http waits for this part first
	if p.emptyReads > 0 {
		p.emptyReads--
		p.pending = p.emptyReads > 0
		return 0, nil
	}
	n, err := read(b)
	p.tls = p.tls || p.matched == 0 && n > 0 && b[0] == tlsHandshake
	begun := string(b[:min(n, len(preface)-p.matched)])
	other := begun != preface[p.matched:p.matched+len(begun)]
	p.matched += len(begun)
	p.pending = p.matched < len(preface)
	p.http2 = !p.pending && !other
	if p.pending && other {
		p.emptyReads = maxEmptyReads
	}
	return n, err
}

// A connInfo is the client's connection on which a request arrived, with its layers.
type connInfo struct {
	http   *httpConn   // nil with HTTP/2 over TLS
	client *clientConn // on the proxy's own port; nil in a tunnel
	tunnel *tunnelConn // nil on the proxy's own port
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
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
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
		defer t.Close() // for the count
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
