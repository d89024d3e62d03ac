package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/robots"
)

// A Conn is a connection that one request has for itself: a connection of HTTP/1.1 or of FTP, or a stream of
// HTTP/2. Its methods are called on one goroutine, in this order:
//
//	Release, if the request is not sent
//	Send
//	Receive, until the response is not a 1xx or there is an error
//
// A connection of HTTP/1.1 returns to the pool when the body was read to its end; an earlier Close closes it.
// Info may be called at any time. The caller must cancel the context of the request when it no longer needs the
// response: a goroutine may wait for that.
type Conn interface {
	// Send sends the head of a request, and begins to send its body. The caller may change
	// neither r nor its header until the response has ended. sent reports whether a part of r may have been
	// sent, also if there is an error. After an error the Conn has ended; [Repeat] says whether another one
	// may be tried. The error is the cause of r's context if that has ended. If there is none, the Conn
	// closes r's body; after an error the caller closes it, unless it sends r again.
	//
	// What the response holds in memory counts in work until its End; nil: it is not counted. If there is no memory, Receive
	// or a Read of the body fails with memory.ErrShort.
	Send(r *http.Request, work *memory.Work) (sent bool, err error)

	// Receive waits for a response to r. Those with a status of 1xx come before the final one (RFC
	// 9110 15.2); 101 is final (RFC 9110 7.8), and its Body then is an io.ReadWriteCloser. Errors are as for Send.
	Receive() (*http.Response, error)

	// Release gives back a Conn that has sent nothing.
	Release()

	// Info describes the connection.
	Info() Info
}

// An Info describes a Conn.
type Info struct {
	// Of the other end: the origin or the upstream proxy; zero: unknown.
	Addr netip.Addr

	// Version of TLS, as in crypto/tls; 0: none.
	TLS uint16

	// Legacy says that the version of TLS is older than 1.2, or that the cipher suite is one that crypto/tls
	// does not use by default.
	Legacy bool

	// Dropped is how many fields of the final response were left out, because they cannot be passed on. It is
	// known after Receive, and 0 for HTTP/2 and FTP.
	Dropped int
}

func infoOf(conn net.Conn) Info {
	i := Info{Addr: addrOf(conn)}
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		i.TLS, i.Legacy = state.Version, isLegacy(state)
	}
	return i
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

// A Pinned is a [Client] that connects only to one address of a host, also with idle
// connections, whatever the name of the host resolves to now. Client.At creates one.
type Pinned struct {
	client *Client
	addr   netip.Addr
}

// At returns the Client pinned to an address that [Client.Address] has returned for the
// host of the requests. With the zero Addr it returns the Client itself.
func (c *Client) At(addr netip.Addr) Pinned { return Pinned{client: c, addr: addr} }

// Acquire returns a connection for a request: a kept one, which Send checks, otherwise a new one. owner is the
// owner of the connections that carry its client's login; nil: they are closed after the request. Acquire
// sends nothing. It fails with the errors that the package comment names, or with the cause of ctx. For
// an ftp URL that FTP cannot request, it fails with ftp.ErrPath or ftp.ErrMethod.
func (p Pinned) Acquire(ctx context.Context, r *http.Request, owner *Owner) (Conn, error) {
	p.client = p.client.viaURL(r.URL)
	conn, err := p.acquire(ctx, r, owner)
	if !p.addr.IsValid() && errors.Is(err, ErrElsewhere) {
		// The caller did not choose the address that failed.
		conn, err = p.acquire(ctx, r, owner)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

func (p Pinned) acquire(ctx context.Context, r *http.Request, owner *Owner) (Conn, error) {
	c := p.client
	upgrade := len(r.Header["Upgrade"]) > 0
	// A change of protocols is requested only once, so it needs a new connection: an idle one may be dead.
	want := requirements{owner: owner, login: hasLogin(r.Header["Authorization"]), fresh: upgrade}
	// RFC 9113 8.6; RFC 4559 6.
	want.http1 = upgrade || want.login
	switch {
	case c.pool == nil:
		return nil, errClosed
	case r.URL.Scheme == "ftp":
		return c.acquireFTP(ctx, r, p.addr)
	// A change of protocols needs a tunnel, even with http (RFC 6455 4.1).
	case c.parent.forwards(r.URL.Scheme) && !upgrade:
		if err := forwardable(r, &c.dialer); err != nil {
			return nil, err
		}
		// The upstream proxy gets nothing else.
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

// requirements say which connection a request needs.
type requirements struct {
	owner *Owner

	// The request logs its connection in.
	login bool

	// Not HTTP/2.
	http1 bool

	// No request has used the connection.
	fresh bool
}

// acquire returns a kept or a new connection.
func (c *connector) acquire(ctx context.Context, to endpoint, want requirements) (Conn, error) {
	var kept *persistConn
	if want.owner.owns(c.pool) {
		kept = c.pool.take(key{to, want.owner}, want.fresh)
	}
	want.http1 = want.http1 || to.Scheme == "http" || c.history.has(needsHTTP1, to.Origin)
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
	began := time.Now()
	conn, err := c.connect(ctx, to, http1)
	switch {
	case err == nil:
		return c.adopt(ctx, conn, to)
	// There was no time left.
	case ctx.Err() != nil:
		return nil, err
	}
	return nil, c.remember(to.Origin, began, err)
}

// adopt makes a Conn of a new connection. A connection of HTTP/2 is shared from now on; if there is
// another one that takes requests, the new one is closed.
func (c *connector) adopt(ctx context.Context, conn net.Conn, to endpoint) (Conn, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
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
		if err := c.At(netip.Addr{}).Reach(ctx, o); err != nil {
			return endpoint{}, err
		}
		// The host is bound now, unless Reach had nothing to do.
		if addr, err = c.Address(ctx, o); err != nil {
			return endpoint{}, err
		}
	}
	return endpoint{o, addr}, nil
}

// Dial connects to host (a name, or an IP address without brackets) and port for a tunnel
// that is passed through. The connection is a *socket.Conn, so that copying between two
// of them needs no buffer, except through an upstream proxy with TLS.
func (p Pinned) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return p.client.viaTLS(host, port).dialCounted(ctx, host, port, p.addr)
}
