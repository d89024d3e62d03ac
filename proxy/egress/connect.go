package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"robotsproxy/robots"
)

// dialPlain and dialTLS give the Transport its connections: the one that Reach
// has made, if it still stands, else a new one.
func (d *Door) dialPlain(ctx context.Context, _, addr string) (net.Conn, error) {
	return d.next(ctx, "http", addr)
}

func (d *Door) dialTLS(ctx context.Context, _, addr string) (net.Conn, error) {
	return d.next(ctx, "https", addr)
}

func (d *Door) next(ctx context.Context, scheme, addr string) (net.Conn, error) {
	o, err := robots.ParseOrigin(scheme, addr) // the spelling that Reach is asked in
	if err != nil {
		return nil, err
	}
	if conn := d.warm.take(o); conn != nil {
		return conn, nil
	}
	return d.connect(ctx, o)
}

// connect makes a new connection to o, for https with its handshake done and
// its certificate verified.
func (d *Door) connect(ctx context.Context, o robots.Origin) (net.Conn, error) {
	raw, err := d.dialTCP(ctx, o.Host, o.Port)
	if err != nil {
		return nil, err
	}
	conn := &countedConn{TCPConn: raw}
	if o.Scheme == "http" {
		d.count(o, conn)
		return conn, nil
	}
	secure, err := d.handshake(ctx, o, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	d.count(o, conn)
	d.contacts.speaksTLS(o)
	return secure, nil
}

// count takes conn down as standing, now that all of it stands: until the
// certificate is verified, nobody may take o for reached.
func (d *Door) count(o robots.Origin, conn *countedConn) {
	conn.closed = func() { d.contacts.closed(o) }
	d.contacts.opened(o)
}

// errNotTLS marks a handshake that ended as one does with a peer that does not
// know TLS.
var errNotTLS = errors.New("the peer does not seem to speak TLS")

func (d *Door) handshake(ctx context.Context, o robots.Origin, conn net.Conn) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.tlsTimeout)
	defer cancel()
	config := d.tls.Clone()
	config.ServerName = o.Host
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

// notTLS reports whether the peer answered the ClientHello with something else
// or hung up on it. Silence is no answer: a timeout is not among these.
func notTLS(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// A countedConn tells once, if anybody wants to know, that it is closed. It keeps the methods of the
// *net.TCPConn (CloseWrite, ReadFrom) that io.Copy and net/http look for.
type countedConn struct {
	*net.TCPConn
	once   sync.Once
	closed func() // nil: not counted yet
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		if c.closed != nil {
			c.closed()
		}
	})
	return c.TCPConn.Close()
}
