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
	opening opening
	ahead   []byte // was read before net/http had the connection, and comes first
	head    headMeter
	serving atomic.Bool // a request has been read, and its answer is not out yet
	fault   error       // of TLS; net/http reads and writes on one goroutine before there is a request
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
	return &httpConn{Conn: c, h: h, opening: opening{sought: true}, head: headMeter{held: arrivalOf(c).held()}}
}

// Read reads from the connection; its beginning as an opening does.
func (c *httpConn) Read(b []byte) (int, error) {
	if !c.opening.sought {
		return c.read(b)
	}
	n, err := c.opening.read(c.read, b)
	if secure, ok := c.Conn.(*tls.Conn); ok && err != nil && !secure.ConnectionState().HandshakeComplete {
		if c.fault == nil {
			c.h.counts.faults.Add(err)
		}
		c.fault = err
	}
	return n, err
}

// read reads what is ahead, then the connection, and follows the head of the next request.
func (c *httpConn) read(b []byte) (int, error) {
	metered := !c.serving.Load() && !c.opening.http2
	n, err := c.readOn(b)
	if metered {
		if fault := c.head.pass(b[:n]); fault != nil {
			return 0, fault
		}
	}
	return n, err
}

func (c *httpConn) readOn(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// Direct returns the connection that h1 serves simple requests on (h1.Conn).
func (c *httpConn) Direct() net.Conn {
	c.opening.sought = false
	return bare(c)
}

var _ h1.Conn = (*httpConn)(nil) // else net/http would serve all requests

// HandOver prepares the connection for net/http (h1.Conn).
func (c *httpConn) HandOver(ahead []byte) {
	c.opening.sought, c.ahead = true, ahead
}

// Write sends an answer. One to no request is net/http's own, and replaced.
func (c *httpConn) Write(b []byte) (int, error) {
	if c.serving.Load() || c.opening.http2 || !bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}
	return len(b), c.h.notHTTP(unreadable{c.Conn, arrivalOf(c).who(), c.fault, c.head.err, b})
}

// CloseWrite ends what we send and leaves the other direction open.
func (c *httpConn) CloseWrite() error { return endWriting(c.Conn) }

// An opening is the beginning of a connection in the clear. net/http looks in
// it for HTTP/2's preface (RFC 9113 3.4), and would wait for as many octets as
// that has, although the first ones tell. So where another beginning has come,
// and a shorter one, it is read as a reader without progress, which ends the
// look (bufio.Reader gives up for then) and leaves all else as it is.
type opening struct {
	sought bool // net/http looks for the preface
	http2  bool // and has found it
	came   int  // octets, all but the last ones as in the preface
	empty  int  // reads that are to give nothing
}

// noProgress is how many reads without an octet make a bufio.Reader give up.
const noProgress = 100

func (o *opening) read(read func([]byte) (int, error), b []byte) (int, error) {
	const preface = "PRI * HTTP/2.0" // what net/http waits for first
	if o.empty > 0 {
		o.empty--
		o.sought = o.empty > 0
		return 0, nil
	}
	n, err := read(b)
	begun := string(b[:min(n, len(preface)-o.came)])
	other := begun != preface[o.came:o.came+len(begun)]
	o.came += len(begun)
	o.sought = o.came < len(preface)
	o.http2 = !o.sought && !other
	if o.sought && other {
		o.empty = noProgress
	}
	return n, err
}

// An arrival is the connection that requests come by.
type arrival struct {
	http   *httpConn   // nil where HTTP/2 was agreed on
	client *clientConn // to the proxy's own port; nil in a tunnel
	tunnel *tunnelConn // nil on the proxy's own port
}

// who is the client, as far as it is known without a request.
func (a arrival) who() string {
	if a.tunnel != nil {
		return a.tunnel.let.Load().client
	}
	return *a.client.client.Load()
}

// arrivalOf takes apart what a server of ours was given.
func arrivalOf(c net.Conn) (a arrival) {
	a.http, _ = c.(*httpConn)
	switch c := underneath(c).(type) {
	case *clientConn:
		a.client = c
	case *tunnelConn:
		a.tunnel = c
	}
	return a
}

// underneath is the connection under HTTP and TLS.
func underneath(c net.Conn) net.Conn {
	if h, ok := c.(*httpConn); ok {
		c = h.Conn
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = t.NetConn()
	}
	return c
}

// bare is the connection that the kernel can copy from and to, or the one of
// TLS: what it is wrapped in does nothing between its beginning and its end.
func bare(c net.Conn) net.Conn {
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
	under := underneath(c)
	if t, ok := under.(*tunnelConn); ok {
		defer t.Close() // it is counted
		under = underneath(t.Conn)
	}
	switch c := bare(under).(type) {
	case *socket.Conn:
		c.SetLinger(0)
	case *streamConn:
		c.broken.Store(true)
	}
	under.Close()
}

type arrivalKey struct{}

// withArrival lets requests know the connection that they came by
// (http.Server.ConnContext).
func withArrival(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, arrivalKey{}, arrivalOf(c))
}

// arrivedBy is the connection that a request came by.
func arrivedBy(r *http.Request) arrival {
	a, _ := r.Context().Value(arrivalKey{}).(arrival)
	return a
}

// tunnelOf is the tunnel that a request came out of; nil for one on the
// proxy's own port.
func tunnelOf(r *http.Request) *tunnelConn { return arrivedBy(r).tunnel }

// held gives what the connection counts as in the memory budget.
func (a arrival) held() *memory.Work {
	switch {
	case a.client != nil:
		return &a.client.held
	case a.tunnel != nil:
		return &a.tunnel.held
	}
	return new(memory.Work)
}
