package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/proxy/h1"
	"robotsproxy/robots"
)

// A Conn is a connection that one request has for itself: a connection of HTTP/1.1 or of FTP, or a stream of
// HTTP/2. Its methods are called on one goroutine, in this order:
//
//	Release, if the request is not sent
//	Send
//	Receive, until the response is not a 1xx or there is an error
//
// The end of the response's body, or its Close, frees the connection. The context of the request must
// end when the response is no longer needed.
type Conn interface {
	// Send sends the head of a request, and begins to send its body. The caller may change
	// neither r nor its header until the response has ended. sent reports whether a part of r may have been
	// sent, also if there is an error. After an error the Conn has ended; [Repeat] says whether another one
	// may be tried. The error is the cause of r's context if that has ended.
	Send(r *http.Request) (sent bool, err error)

	// Receive waits for a response to r. Those with a status of 1xx come before the final one (RFC
	// 9110 15.2); 101 is final (RFC 9110 7.8), and its Body then is an io.ReadWriteCloser. Errors are as for Send.
	Receive() (*http.Response, error)

	// Release gives back a Conn that has sent nothing.
	Release()

	// Peer describes the other end.
	Peer() Peer

	// Dropped returns how many fields of the response were left out, because they cannot be passed on.
	Dropped() int
}

// A Peer is the other end of a Conn.
type Peer struct {
	Addr netip.Addr // of the origin or of the upstream proxy; zero: unknown
	TLS  uint16     // version of TLS, as in crypto/tls; 0: none

	// Legacy says that the version of TLS is older than 1.2, or that the cipher suite is one that crypto/tls
	// does not use by default.
	Legacy bool
}

func peerOf(conn net.Conn) (p Peer) {
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		p.TLS, p.Legacy = state.Version, isLegacy(state)
	}
	p.Addr = addrOf(conn)
	return p
}

const (
	// MaxTries is how often a request may be tried, each time on another connection.
	MaxTries = 3

	// minHeld is how long a new connection must have waited for its request before another one is
	// tried because it has ended.
	minHeld = time.Millisecond

	// maxInterim is the maximum number of 1xx responses to one request.
	maxInterim = 100
)

var errInterim = fmt.Errorf("the origin sent more than %d interim responses", maxInterim)

// IsInterim reports whether another response to the same request follows (RFC 9110 15.2).
func IsInterim(resp *http.Response) bool {
	return resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols
}

// The errors after which a request may be sent again.
type (
	unsentError      struct{ error } // nothing of the request was sent, and its body was not read
	unprocessedError struct{ error } // the origin has not processed the request
	lostError        struct{ error } // a connection that had worked ended before the response
)

func (e *unsentError) Unwrap() error      { return e.error }
func (e *unprocessedError) Unwrap() error { return e.error }
func (e *lostError) Unwrap() error        { return e.error }

// Repeat reports whether r may be sent again, after an error of a Conn, and makes its body ready for that.
func Repeat(r *http.Request, err error) bool {
	var unsent *unsentError
	var unprocessed *unprocessedError
	var lost *lostError
	switch {
	case errors.As(err, &unsent):
		return true
	case errors.As(err, &unprocessed): // RFC 9113 8.7 and 6.8, and for HTTP_1_1_REQUIRED 7
		return rewind(r)
	case errors.As(err, &lost): // RFC 9112 9.3.1, RFC 9113 8.7
		return idempotent(r.Method) && !h1.HasBody(r)
	}
	return false
}

// rewind makes the body of r ready to be sent again. It returns false if it cannot.
func rewind(r *http.Request) bool {
	if !h1.HasBody(r) {
		return true
	}
	if r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	r.Body = body
	return err == nil
}

// idempotent reports whether a request with the method may be sent again although it may have been
// processed (RFC 9110 9.2.2). Clients repeat PUT and DELETE themselves.
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// A Pinned is a [Client] that connects only to one address of a host, also with idle
// connections, whatever the name of the host resolves to now. Client.At creates one.
type Pinned struct {
	client *Client
	addr   netip.Addr
}

// At returns the Client pinned to an address that [Client.Address] has returned for the
// host of the requests. With the zero Addr it returns the Client itself.
func (c *Client) At(addr netip.Addr) Pinned { return Pinned{client: c, addr: addr} }

// Acquire returns a connection for a request: a kept one that is alive, otherwise a new one. by is the
// owner of the connections that carry its client's login; nil: they are closed after the request. Acquire
// sends nothing. It fails with the errors that the package comment names, or with the cause of ctx. For
// an ftp URL that FTP cannot request, it fails with ftp.ErrPath or ftp.ErrMethod.
func (p Pinned) Acquire(ctx context.Context, r *http.Request, by *Owner) (Conn, error) {
	conn, err := p.acquire(ctx, r, by)
	if !p.addr.IsValid() && errors.Is(err, ErrElsewhere) {
		conn, err = p.acquire(ctx, r, by) // the caller did not choose the address that failed
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

func (p Pinned) acquire(ctx context.Context, r *http.Request, by *Owner) (Conn, error) {
	c := p.client
	upgrade := len(r.Header["Upgrade"]) > 0
	// A change of protocols is requested only once, so it needs a new connection: an idle one may be dead.
	want := wanted{owner: by, login: hasLogin(r.Header["Authorization"]), fresh: upgrade}
	want.http1 = upgrade || want.login // RFC 9113 8.6; RFC 4559 6
	switch {
	case c.pool == nil:
		return nil, errClosed
	case r.URL.Scheme == "ftp":
		return c.acquireFTP(ctx, r, p.addr)
	case c.parent.forwards(r.URL.Scheme) && !upgrade: // a change of protocols needs a tunnel, even with http (RFC 6455 4.1)
		if err := forwardable(r, &c.dialer); err != nil {
			return nil, err
		}
		want.http1 = true
		conn, err := c.toParent.connector.acquire(ctx, endpoint{Origin: c.parent.origin}, want)
		if err != nil {
			return nil, c.parent.fault(err)
		}
		return conn, nil
	}
	to, err := c.destination(ctx, r, p.addr)
	if err != nil {
		return nil, err
	}
	return c.connector.acquire(ctx, to, want)
}

// wanted says which connection a request needs.
type wanted struct {
	owner *Owner
	login bool // the request logs its connection in
	http1 bool // not HTTP/2
	fresh bool // no request has used the connection
}

// acquire returns a kept or a new connection.
func (c *connector) acquire(ctx context.Context, to endpoint, want wanted) (Conn, error) {
	var kept *persistConn
	if want.owner.owns(c.pool) {
		kept = c.pool.take(key{to, want.owner}, want.fresh)
	}
	want.http1 = want.http1 || to.Scheme == "http" || c.history.knows(&c.history.http1, to.Origin)
	if kept == nil && !want.http1 {
		if s := c.pool.stream(to); s != nil {
			return &streamConn{http2Conn: s, history: c.history}, nil
		}
	}
	if kept == nil {
		kept = c.pool.take(key{endpoint: to}, want.fresh)
	}
	if kept != nil {
		kept.claim(want)
		return kept, nil
	}
	conn, err := c.open(ctx, to.clone(), want.http1)
	if p, ok := conn.(*persistConn); ok {
		p.claim(want)
	}
	return conn, err
}

// open makes a new connection.
func (c *connector) open(ctx context.Context, to endpoint, http1 bool) (Conn, error) {
	if err := c.history.failure(to.Origin); err != nil {
		return nil, err
	}
	offered := protocols{http2, http11}
	if http1 {
		offered = protocols{http11}
	}
	began := time.Now()
	conn, err := c.connect(ctx, to, offered)
	switch {
	case err == nil:
		return c.adopt(ctx, conn, to)
	case ctx.Err() != nil: // there was no time left
		return nil, err
	}
	return nil, c.remember(to.Origin, began, err)
}

// adopt makes a Conn of a new connection. A connection of HTTP/2 is shared from now on; if there is
// another one that takes requests, the new one is closed.
func (c *connector) adopt(ctx context.Context, conn net.Conn, to endpoint) (Conn, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok || secure.ConnectionState().NegotiatedProtocol != http2 {
		p := newPersistConn(conn, to, c.pool, c.headerTimeout)
		p.parent = c.forwarder
		return p, nil
	}
	h, err := c.newHTTP2Conn(ctx, secure, to)
	if err != nil {
		return nil, err
	}
	if other := c.pool.stream(to); other != nil {
		h.client.Close()
		h = other
	} else {
		c.pool.share(h)
	}
	return &streamConn{http2Conn: h, history: c.history}, nil
}

// destination returns the endpoint that r is sent to. If each host has one address, that is
// addr, otherwise the address that the host is bound to, otherwise the address of the first
// connection.
func (c *Client) destination(ctx context.Context, r *http.Request, addr netip.Addr) (endpoint, error) {
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil || c.bindings == nil {
		return endpoint{Origin: o}, err
	}
	addr = c.addrFor(o.Host, addr)
	if !addr.IsValid() {
		if err := c.Reach(ctx, o); err != nil {
			return endpoint{}, err
		}
		if addr, err = c.Address(ctx, o); err != nil { // the host is bound now, unless Reach had nothing to do
			return endpoint{}, err
		}
	}
	return endpoint{o, addr}, nil
}

// An ftpConn is a [Conn] for one request to an FTP server.
type ftpConn struct {
	net.Conn
	options ftp.Options
	pending
}

// acquireFTP connects to an FTP server.
func (c *Client) acquireFTP(ctx context.Context, r *http.Request, addr netip.Addr) (Conn, error) {
	if err := ftp.Check(r); err != nil {
		return nil, err
	}
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	dial := func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		return c.dialCounted(ctx, host, port, addr)
	}
	control, err := dial(ctx, o.Host, o.Port)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	return &ftpConn{Conn: control, options: ftp.Options{Control: control, Dial: dial, ByName: c.parent != nil, Timeout: c.headerTimeout}}, nil
}

// Send implements [Conn].
func (f *ftpConn) Send(r *http.Request) (sent bool, err error) {
	return f.send(r, func(written func()) (*http.Response, error) {
		f.options.Sent = written
		return ftp.RoundTrip(r, f.options)
	})
}

// Release implements [Conn].
func (f *ftpConn) Release() { f.Close() }

// Peer implements [Conn].
func (f *ftpConn) Peer() Peer { return peerOf(f.Conn) }

// Dropped implements [Conn].
func (f *ftpConn) Dropped() int { return 0 }

// Reach makes sure that o can be connected to: with TCP, and for https with a TLS
// handshake and a verified certificate. The connection is kept for a short time for the
// next request to o, so that o gets only one connection. Reach does nothing if a
// connection to o is open or was made within the last 30 seconds, or if an upstream proxy
// forwards requests to o. Concurrent callers share one attempt, which continues if one of
// them leaves. A failure is a [RetryError] and is returned to all callers within
// Options.Retry. A failure of the upstream proxy itself (ErrParent) is not remembered,
// because it says nothing about o.
//
// Reach does not return two failures, because a client's tunnel may still work: a peer
// that does not speak TLS (the client may not either), and, if o's host is an IP address,
// a peer whose certificate has another name or that needs a name in the SNI (the client
// may send one).
func (c *Client) Reach(ctx context.Context, o robots.Origin) error {
	return c.reach(ctx, endpoint{Origin: o}, false)
}

// Reach is [Client.Reach].
func (p Pinned) Reach(ctx context.Context, o robots.Origin) error {
	return p.client.reach(ctx, endpoint{o, p.addr}, false)
}

// ReachTCP is Reach without TLS, for a client that has not said whether it will speak TLS. Nothing is sent to
// o. With an upstream proxy it makes a tunnel.
func (p Pinned) ReachTCP(ctx context.Context, o robots.Origin) error {
	o.Scheme = "http"
	return p.client.reach(ctx, endpoint{o, p.addr}, true)
}

// Dial connects to host (a name, or an IP address without brackets) and port for a tunnel
// that is passed through. The connection is a *socket.Conn, so that copying between two
// of them needs no buffer. The exceptions are an upstream proxy with TLS, and one that
// has sent bytes behind its response.
func (c *Client) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return c.dialCounted(ctx, host, port, netip.Addr{})
}

// Dial is [Client.Dial].
func (p Pinned) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return p.client.dialCounted(ctx, host, port, p.addr)
}

// RoundTrip sends a request to any address of its host. It makes a Client an http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.At(netip.Addr{}).RoundTrip(r)
}

// RoundTrip acquires a connection for r, sends r, and returns the final response. It repeats this if
// [Repeat] permits. It makes a Pinned an http.RoundTripper.
func (p Pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	own := *r // Repeat may change its body
	for try := 1; ; try++ {
		resp, err := p.try(&own)
		switch {
		case err == nil:
			resp.Request = r
			return resp, nil
		case try == MaxTries || !Repeat(&own, err):
			if own.Body != nil {
				own.Body.Close()
			}
			return nil, err
		}
	}
}

func (p Pinned) try(r *http.Request) (resp *http.Response, err error) {
	conn, err := p.Acquire(r.Context(), r, nil)
	if err == nil {
		_, err = conn.Send(r)
	}
	for err == nil {
		if resp, err = conn.Receive(); err == nil && !IsInterim(resp) {
			return resp, nil
		}
	}
	return nil, err
}

// hasLogin reports whether one of the values, of Authorization or WWW-Authenticate, has a scheme that
// logs a connection in, not a request (RFC 4559 6).
func hasLogin(values []string) bool {
	for _, list := range values {
		for part := range strings.SplitSeq(list, ",") {
			scheme, _, _ := strings.Cut(strings.TrimLeft(part, " \t"), " ")
			if strings.EqualFold(scheme, "NTLM") || strings.EqualFold(scheme, "Negotiate") {
				return true
			}
		}
	}
	return false
}
