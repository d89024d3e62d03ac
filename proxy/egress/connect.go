package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

	history   *history
	counter   *counter // nil: nothing is counted
	pool      *pool    // nil: a zero Client
	http2     *http.Transport
	forwarder *parent // forwards the requests of the connections; nil: they lead to origins

	headerTimeout time.Duration
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
	conn := &trackedConn{Conn: raw}
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
	c.track(o, conn)
	c.history.setPlaintext(o, false)
	return secure, nil
}

// track counts a connection as open until it is closed. It is called after the
// certificate was verified, because o then counts as reached.
func (c *connector) track(o robots.Origin, conn *trackedConn) {
	conn.onClose = func() {
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

// remember stores why an attempt could not reach o, so that o is not tried again for a while.
// It does not store a forbidden destination, a local failure, a cancelled attempt, the
// failure of one address if o has another, or that of an attempt that began before o was reached.
func (c *connector) remember(o robots.Origin, began time.Time, err error) error {
	if LocalError(err) || errors.Is(err, ErrForbiddenAddr) || errors.Is(err, ErrElsewhere) || errors.Is(err, context.Canceled) || c.ctx.Err() != nil {
		return err
	}
	return c.history.fail(o, began, err)
}
