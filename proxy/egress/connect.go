package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// A connector connects to origins and reuses its connections.
type connector struct {
	dialer
	tunnel     func(ctx context.Context, host string, port uint16) (net.Conn, error) // connects through the upstream proxy; nil: dialer connects
	tls        *tls.Config                                                           // without a ServerName; cloned for each handshake
	tlsTimeout time.Duration

	history *history
	counter *counter // nil: nothing is counted
	unused  *unusedPool
	idle    *idlePool
}

// dial connects without TLS. pinned is the address to dial. If it is zero, the dialer
// chooses the address.
func (c *connector) dial(ctx context.Context, host string, port uint16, pinned netip.Addr) (net.Conn, error) {
	if c.tunnel != nil {
		return c.tunnel(ctx, host, port)
	}
	return c.dialTCP(ctx, host, port, pinned)
}

// dialCounted is dial and counts the attempt.
func (c *connector) dialCounted(ctx context.Context, host string, port uint16, pinned netip.Addr) (net.Conn, error) {
	conn, err := c.dial(ctx, host, port, pinned)
	c.counter.dial(err)
	return conn, err
}

// A dialFailure is the error of a connection that was not made.
type dialFailure struct{ error }

func (e *dialFailure) Unwrap() error { return e.error }

// connect makes a new connection to an endpoint. For https it also completes the
// handshake and verifies the certificate.
func (c *connector) connect(ctx context.Context, to endpoint, offered protocols) (net.Conn, error) {
	o := to.Origin
	raw, err := c.dial(ctx, o.Host, o.Port, to.addr)
	if err != nil {
		c.counter.dial(err)
		return nil, &dialFailure{err}
	}
	conn := newTrackedConn(raw)
	if o.Scheme == "http" {
		c.counter.dial(nil)
		c.track(o, conn)
		return conn, nil
	}
	conn.records = new(recordTracker)
	secure, err := c.handshake(ctx, o, conn, offered)
	c.counter.handshake(err)
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.http2 = secure.ConnectionState().NegotiatedProtocol == http2
	c.track(o, conn)
	c.history.setPlaintext(o, false)
	if slices.Contains(offered, http2) {
		c.history.setHTTP2(o, conn.http2)
	}
	return secure, nil
}

// track counts a connection as open until it is closed. It is called after the
// certificate was verified, because o then counts as reached.
func (c *connector) track(o robots.Origin, conn *trackedConn) {
	conn.onClose = func() {
		c.idle.connClosed(conn)
		c.history.closed(o)
		c.counter.open.Add(-1)
	}
	c.history.opened(o)
	c.counter.open.Add(1)
}

// errNotTLS marks a handshake that failed in the way it does if the peer does not speak
// TLS.
var errNotTLS = errors.New("the server does not seem to speak TLS")

func (c *connector) handshake(ctx context.Context, o robots.Origin, conn net.Conn, offered protocols) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tlsTimeout)
	defer cancel()
	config := c.tls.Clone()
	config.ServerName, config.NextProtos = o.Host, offered
	secure := tls.Client(conn, config)
	err := secure.HandshakeContext(ctx)
	switch {
	case err == nil:
		return secure, nil
	case notTLS(err):
		return nil, fmt.Errorf("tls handshake with %s: %w: %w", o.Addr(), errNotTLS, err)
	}
	return nil, fmt.Errorf("tls handshake with %s: %w", o.Addr(), err)
}

// notTLS reports whether the peer answered the ClientHello with something else, or closed
// the connection. A timeout does not count.
func notTLS(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, socket.ECONNRESET) || errors.Is(err, socket.EPIPE)
}

// unusedConn returns a connection that no request has used yet.
func (c *connector) unusedConn(ctx context.Context, to endpoint, offered protocols) (net.Conn, error) {
	if conn := c.unused.take(to, offered); conn != nil {
		return conn, nil
	}
	if err := c.history.failure(to.Origin); err != nil {
		return nil, err
	}
	began := time.Now()
	conn, err := c.connect(ctx, to, offered)
	if _, ok := errors.AsType[*dialFailure](err); ok && ctx.Err() == nil { // otherwise there was no time left
		return nil, c.remember(to.Origin, began, err)
	}
	return conn, err
}

// remember stores why an attempt could not reach o, so that o is not tried again for a while.
// It does not store a forbidden destination, a local failure, a cancelled attempt, the
// failure of one address if o has another, or that of an attempt that began before o was reached.
func (c *connector) remember(o robots.Origin, began time.Time, err error) error {
	if LocalError(err) || errors.Is(err, ErrForbiddenAddr) || errors.Is(err, ErrElsewhere) || errors.Is(err, context.Canceled) || c.ctx.Err() != nil {
		return err
	}
	return c.history.fail(o, began, err)
}

// errNotDirect means that a Transport must send the request. Nothing of it was sent.
var errNotDirect = errors.New("the request is not sent directly")

// newPersistConn creates a persistConn that no request has used yet. It returns an error
// if the connection must be left to the Transport: because it speaks HTTP/2 or cannot be
// peeked at.
func (c *connector) newPersistConn(ctx context.Context, to endpoint) (*persistConn, error) {
	to = to.clone()
	conn, err := c.unusedConn(ctx, to, protocols{http2, http11})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if !tracked(conn).http2 {
		if p := newPersistConn(conn, to, c.idle.put); p != nil {
			return p, nil
		}
	}
	c.unused.put(to, conn)
	return nil, errNotDirect
}

// dialPlain and dialTLS return the dial functions of a Transport. reuse says whether they
// may return a connection of the idle pool, which may be dead. The Transport without reuse speaks
// HTTP/1.1 only; its connections are originFormConns.
func (c *connector) dialPlain(reuse bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		return c.transportConn(ctx, "http", addr, nil, reuse)
	}
}

func (c *connector) dialTLS(offered protocols, reuse bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		return c.transportConn(ctx, "https", addr, offered, reuse)
	}
}

// transportConn returns a connection for a Transport: an idle one, else an unused one.
func (c *connector) transportConn(ctx context.Context, scheme, addr string, offered protocols, reuse bool) (net.Conn, error) {
	addr, at, err := c.unpin(addr)
	if err != nil {
		return nil, err
	}
	o, err := robots.ParseOrigin(scheme, addr) // Reach uses the same spelling
	if err != nil {
		return nil, err
	}
	if reuse {
		if conn := c.idleConn(endpoint{o, at}); conn != nil {
			return conn, nil
		}
		return c.unusedConn(ctx, endpoint{o, at}, offered)
	}
	conn, err := c.unusedConn(ctx, endpoint{o, at}, offered)
	if err != nil {
		return nil, err
	}
	return &originFormConn{Conn: conn}, nil
}

// idleConn removes a connection from the idle pool and returns it. It returns nil if
// there is none.
func (c *connector) idleConn(at endpoint) net.Conn {
	for {
		p := c.idle.take(at)
		if p == nil {
			return nil
		}
		if p.checkIdle() == nil && p.conn.SetReadDeadline(time.Time{}) == nil {
			p.tracked.pooled = false
			return p.conn
		}
		p.conn.Close()
	}
}

// pin returns the host and port under which a Transport knows an endpoint with one address:
// host@address. The Transport then never uses a connection to another address. No host of a
// request contains an "@".
func pin(e endpoint) string { return hostPort(e.Host+"@"+e.addr.String(), e.Port) }

// unpin is the inverse of pin for a connector with bindings. It returns the zero Addr if
// the dialer chooses the address.
func (c *connector) unpin(addr string) (string, netip.Addr, error) {
	if c.bindings == nil {
		return addr, netip.Addr{}, nil
	}
	both, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", netip.Addr{}, err
	}
	host, text, _ := strings.Cut(both, "@")
	at, err := netip.ParseAddr(text)
	return net.JoinHostPort(host, port), at, err
}
