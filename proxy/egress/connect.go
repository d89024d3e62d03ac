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
	"strings"
	"sync"
	"time"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// A connector connects to origins and reuses its connections.
type connector struct {
	dialer

	// tunnel connects through the upstream proxy; nil: dialer connects.
	tunnel func(ctx context.Context, host string, port uint16) (net.Conn, error)

	// tls has no ServerName. It is cloned for each handshake.
	tls        *tls.Config
	tlsTimeout time.Duration

	history *history

	// counter counts the connections and the attempts to connect; nil: they are not counted.
	counter *counter

	// The pool of the connections; nil in a zero Client.
	pool  *pool
	http2 *http.Transport

	// forwarder is the upstream proxy that forwards the requests of the connections; nil: they lead to origins.
	forwarder *parent

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

// connect makes a new connection to an endpoint. For https it also completes the handshake, in which it offers
// HTTP/2 unless http1 is set, and verifies the certificate.
func (c *connector) connect(ctx context.Context, to endpoint, http1 bool) (net.Conn, error) {
	o, raw, legacy := to.Origin, c.takeUnused(to), c.history.has(needsLegacyTLS, to.Origin)
	kept := raw != nil
	for {
		if raw == nil {
			var err error
			if raw, err = c.dial(ctx, o.Host, o.Port, to.addr); err != nil {
				c.counter.dial(err)
				return nil, err
			}
		}
		if o.Scheme == "http" {
			conn := &trackedConn{Conn: raw}
			c.counter.dial(nil)
			c.track(o, conn)
			return conn, nil
		}
		secure, err := c.secure(ctx, o, raw, http1, legacy)
		switch raw = nil; {
		case kept && notTLS(err):
			// The connection may have died while it was kept.
			kept = false
		case !legacy && isRefusal(err):
			// Legacy suites are offered only to origins that accept no other.
			legacy = true
		case err != nil:
			c.counter.handshake(err)
			return nil, err
		default:
			// ReachTCP has counted a connection that was kept.
			if !kept {
				c.counter.handshake(nil)
			}
			if legacy {
				c.history.note(needsLegacyTLS, o)
			}
			return secure, nil
		}
	}
}

// takeUnused returns a kept connection on which nothing was sent, for a TLS handshake, or nil. ReachTCP made it.
func (c *connector) takeUnused(to endpoint) net.Conn {
	if to.Scheme != "https" {
		return nil
	}
	to.Scheme = "http"
	p := c.pool.take(key{endpoint: to}, true)
	if p == nil {
		return nil
	}
	p.onBlocked(nil)
	return p.tracked.detach()
}

// track counts a connection as open until it is closed. It is called after the
// certificate was verified, because o then counts as reached.
func (c *connector) track(o robots.Origin, conn *trackedConn) {
	conn.onClose = sync.OnceFunc(func() {
		c.history.closed(o)
		c.counter.open.Add(-1)
	})
	c.history.reach(o, 1)
	c.counter.open.Add(1)
}

// errNotTLS marks a handshake that failed in the way it does if the peer does not speak
// TLS.
var errNotTLS = errors.New("the server does not seem to speak TLS")

// legacySuites are the cipher suites that are offered to an origin that accepts none of the usual ones:
// also those with an exchange of RSA keys, and CBC with SHA-256. RC4 and 3DES are left out, as browsers do.
var legacySuites = func() (all []uint16) {
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !strings.Contains(s.Name, "RC4") && !strings.Contains(s.Name, "3DES") {
			all = append(all, s.ID)
		}
	}
	return all
}()

// isRefusal reports whether the peer has refused the versions and cipher suites of a handshake.
func isRefusal(err error) bool {
	alert := receivedAlert(err)
	return alert != nil && (alert.Error() == "tls: handshake failure" || alert.Error() == "tls: insufficient security level")
}

// receivedAlert returns the alert with which the peer ended a handshake, or nil. crypto/tls marks an alert only by the
// operation of its error, and does not export the alerts.
func receivedAlert(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// secure makes a TLS handshake over raw, and verifies the certificate. It closes raw if that fails.
func (c *connector) secure(ctx context.Context, o robots.Origin, raw net.Conn, http1, legacy bool) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tlsTimeout)
	defer cancel()
	config := c.tls.Clone()
	config.ServerName, config.NextProtos = o.Host, []string{"h2", "http/1.1"}
	if http1 {
		config.NextProtos = config.NextProtos[1:]
	}
	if legacy {
		config.CipherSuites = legacySuites
	}
	conn := &trackedConn{Conn: raw, records: new(recordTracker)}
	secure := tls.Client(conn, config)
	err := secure.HandshakeContext(ctx)
	if err == nil {
		c.track(o, conn)
		return secure, nil
	}
	conn.Close()
	if unverified, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return nil, &CertificateError{o.Addr(), unverified}
	}
	switch {
	case notTLS(err):
		err = fmt.Errorf("%w: %w", errNotTLS, err)
	case isOldTLS(err):
		err = fmt.Errorf("%w: %w", ErrOldTLS, err)
	}
	return nil, fmt.Errorf("tls handshake with %s: %w", o.Addr(), err)
}

// isOldTLS reports whether the peer speaks no version of TLS that the proxy does. crypto/tls exports no error for that.
func isOldTLS(err error) bool {
	alert := receivedAlert(err)
	return alert != nil && alert.Error() == "tls: protocol version not supported" ||
		strings.Contains(err.Error(), "tls: server selected unsupported protocol version")
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
	// A name is not forbidden as such: its addresses may change.
	forbidden := errors.Is(err, ErrForbiddenAddr) && !errors.Is(err, ErrForbiddenName)
	if LocalError(err) || forbidden || errors.Is(err, ErrElsewhere) || errors.Is(err, context.Canceled) || c.ctx.Err() != nil {
		return err
	}
	return c.history.fail(o, began, err)
}

// requirements say which connection a request needs.
type requirements struct {
	owner *Owner

	// login says that the request logs its connection in.
	login bool

	// http1 says that the request cannot be sent over HTTP/2.
	http1 bool

	// fresh says that no request may have used the connection.
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
	case ctx.Err() != nil:
		// The origin did not fail: the caller had no time left.
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
	h, err := newHTTP2Conn(ctx, c.http2, secure, to, c.pool)
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
