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

// An httpConn is a connection on which HTTP/1 is spoken, as if it were in the
// clear: TLS, where there is some, is under it. Where net/http serves it, and not
// package h1, two things of net/http's own are set right here: how it looks
// for HTTP/2 (opening), and the answers that it gives to what is no HTTP, which
// say neither whose they are nor why, and would leave no record.
type httpConn struct {
	net.Conn
	h       *Handler
	preface prefaceCheck
	ahead   []byte // was read before net/http had the connection, and comes first
	head    headMeter
	serving atomic.Bool // a request has been read, and its answer is not out yet
	tlsErr  error       // of TLS; net/http reads and writes on one goroutine before there is a request
}

// An httpListener makes an httpConn of each connection that a listener accepts.
type httpListener struct {
	*listener
	secure *tls.Config // nil: the connections are in the clear
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

func (h *Handler) newHTTPConn(c net.Conn) *httpConn {
	return &httpConn{Conn: c, h: h, preface: prefaceCheck{pending: true}, head: headMeter{memory: connInfoOf(c).memory()}}
}

// Read reads from the connection; its beginning as an opening does.
func (c *httpConn) Read(b []byte) (int, error) {
	if !c.preface.pending {
		return c.read(b)
	}
	n, err := c.preface.read(c.read, b)
	if secure, ok := c.Conn.(*tls.Conn); ok && err != nil && !secure.ConnectionState().HandshakeComplete {
		if c.tlsErr == nil {
			c.h.counts.faults.Add(err)
		}
		c.tlsErr = err
	}
	return n, err
}

// read reads what is ahead, then the connection, and follows the head of the next request.
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

func (c *httpConn) readConn(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// Direct returns the connection that h1 serves simple requests on (h1.Conn).
func (c *httpConn) Direct() net.Conn {
	c.preface.pending = false
	return rawConn(c)
}

var _ h1.Conn = (*httpConn)(nil) // else net/http would serve all requests

// HandOver prepares the connection for net/http (h1.Conn).
func (c *httpConn) HandOver(ahead []byte) {
	c.preface.pending, c.ahead = true, ahead
}

// Write sends an answer. One to no request is net/http's own, and replaced.
func (c *httpConn) Write(b []byte) (int, error) {
	if c.serving.Load() || c.preface.http2 || !bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}
	return len(b), c.h.answerUnreadable(unreadable{c.Conn, connInfoOf(c).clientName(), c.tlsErr, c.head.err, b})
}

// CloseWrite ends what we send and leaves the other direction open.
func (c *httpConn) CloseWrite() error { return closeWriteOrClose(c.Conn) }

// A prefaceCheck is the beginning of a connection in the clear. net/http looks in
// it for HTTP/2's preface (RFC 9113 3.4), and would wait for as many octets as
// that has, although the first ones tell. So where another beginning has come,
// and a shorter one, it is read as a reader without progress, which ends the
// look (bufio.Reader gives up for then) and leaves all else as it is.
type prefaceCheck struct {
	pending    bool // net/http looks for the preface
	http2      bool // and has found it
	matched    int  // octets, all but the last ones as in the preface
	emptyReads int  // reads that are to give nothing
}

// maxEmptyReads is how many reads without an octet make a bufio.Reader give up.
const maxEmptyReads = 100

func (o *prefaceCheck) read(read func([]byte) (int, error), b []byte) (int, error) {
	const preface = "PRI * HTTP/2.0" // what net/http waits for first
	if o.emptyReads > 0 {
		o.emptyReads--
		o.pending = o.emptyReads > 0
		return 0, nil
	}
	n, err := read(b)
	begun := string(b[:min(n, len(preface)-o.matched)])
	other := begun != preface[o.matched:o.matched+len(begun)]
	o.matched += len(begun)
	o.pending = o.matched < len(preface)
	o.http2 = !o.pending && !other
	if o.pending && other {
		o.emptyReads = maxEmptyReads
	}
	return n, err
}

// A connInfo is the connection that requests come by.
type connInfo struct {
	http   *httpConn   // nil where HTTP/2 was agreed on
	client *clientConn // to the proxy's own port; nil in a tunnel
	tunnel *tunnelConn // nil on the proxy's own port
}

// clientName is the client, as far as it is known without a request.
func (a connInfo) clientName() string {
	if a.tunnel != nil {
		return a.tunnel.admitted.Load().client
	}
	return *a.client.client.Load()
}

// connInfoOf takes apart what a server of ours was given.
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

// underlying is the connection under HTTP and TLS.
func underlying(c net.Conn) net.Conn {
	if h, ok := c.(*httpConn); ok {
		c = h.Conn
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = t.NetConn()
	}
	return c
}

// rawConn is the connection that the kernel can copy from and to, or the one of
// TLS: what it is wrapped in does nothing between its beginning and its end.
func rawConn(c net.Conn) net.Conn {
	if h, ok := c.(*httpConn); ok {
		c = h.Conn
	}
	if cc, ok := c.(*clientConn); ok {
		c = cc.Conn
	}
	return c
}

// reset closes a client's connection with nothing that could be taken for an
// end in good order.
func reset(c net.Conn) {
	under := underlying(c)
	if t, ok := under.(*tunnelConn); ok {
		defer t.Close() // it is counted
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

// withConnInfo lets requests know the connection that they came by
// (http.Server.ConnContext).
func withConnInfo(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connInfoKey{}, connInfoOf(c))
}

// connInfoFrom is the connection that a request came by.
func connInfoFrom(r *http.Request) connInfo {
	a, _ := r.Context().Value(connInfoKey{}).(connInfo)
	return a
}

// tunnelOf is the tunnel that a request came out of; nil for one on the
// proxy's own port.
func tunnelOf(r *http.Request) *tunnelConn { return connInfoFrom(r).tunnel }

// memory gives what the connection counts as in the memory budget.
func (a connInfo) memory() *memory.Work {
	switch {
	case a.client != nil:
		return &a.client.memory
	case a.tunnel != nil:
		return &a.tunnel.memory
	}
	return new(memory.Work)
}
