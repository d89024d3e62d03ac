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
	"sync"
	"syscall"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// dialPlain and dialTLS give a Transport its connections: one at rest in the pool, else
// the one that Reach has made, if it still stands, else a new one.
func (d *Client) dialPlain(lend bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		return d.next(ctx, "http", addr, nil, lend)
	}
}

func (d *Client) dialTLS(offered protocols, lend bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		return d.next(ctx, "https", addr, offered, lend)
	}
}

// next is a connection for a Transport. Where it may be lent one, one that a request was
// sent over, and that is at rest, is as good as a new one.
func (d *Client) next(ctx context.Context, scheme, addr string, offered protocols, lend bool) (net.Conn, error) {
	addr, at, err := d.unpin(addr)
	if err != nil {
		return nil, err
	}
	o, err := robots.ParseOrigin(scheme, addr) // the spelling that Reach is asked in
	if err != nil {
		return nil, err
	}
	if lend {
		if conn := d.lend(spot{o, at}); conn != nil {
			return conn, nil
		}
	}
	return d.unused(ctx, spot{o, at}, offered)
}

// unused is a connection that no request was sent over yet.
func (d *Client) unused(ctx context.Context, s spot, offered protocols) (net.Conn, error) {
	if conn := d.warm.take(s, offered); conn != nil {
		return conn, nil
	}
	if err := d.contacts.failure(s.Origin); err != nil {
		return nil, err
	}
	conn, err := d.connect(ctx, s.Origin, s.at, offered)
	if _, ok := errors.AsType[*undialled](err); ok && ctx.Err() == nil { // else there was no time left for it
		return nil, d.blame(s.Origin, err)
	}
	return conn, err
}

// blame holds against o that it could not be reached, so that it is left alone
// for a while; not what was forbidden, failed here, or ended on this side, nor
// where o may be reached at another address.
func (d *Client) blame(o robots.Origin, err error) error {
	if LocalError(err) || errors.Is(err, ErrForbiddenAddr) || errors.Is(err, ErrElsewhere) || errors.Is(err, context.Canceled) || d.ctx.Err() != nil {
		return err
	}
	return d.contacts.failed(o, err)
}

// undialled is the error of a connection that never stood.
type undialled struct{ error }

func (e *undialled) Unwrap() error { return e.error }

// connect makes a new connection to o, for https with its handshake done and
// its certificate verified; at is where to, zero: where the Client itself goes.
func (d *Client) connect(ctx context.Context, o robots.Origin, at netip.Addr, offered protocols) (net.Conn, error) {
	raw, err := d.dial(ctx, o.Host, o.Port, at)
	if err != nil {
		d.tally.note(err)
		return nil, &undialled{err}
	}
	conn := newCountedConn(raw)
	if o.Scheme == "http" {
		d.tally.note(nil)
		d.count(o, conn)
		return conn, nil
	}
	conn.records = new(records)
	secure, err := d.handshake(ctx, o, conn, offered)
	d.tally.noteTLS(err)
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.http2 = secure.ConnectionState().NegotiatedProtocol == "h2"
	d.count(o, conn)
	d.contacts.speaksTLS(o)
	if slices.Contains(offered, "h2") {
		d.contacts.chose(o, conn.http2)
	}
	return secure, nil
}

// count takes conn down as standing, now that all of it stands: until the
// certificate is verified, nobody may take o for reached.
func (d *Client) count(o robots.Origin, conn *countedConn) {
	conn.closed = func() {
		d.pool.gone(conn)
		d.contacts.closed(o)
		d.tally.open.Add(-1)
	}
	d.contacts.opened(o)
	d.tally.open.Add(1)
}

// errNotTLS marks a handshake that ended as one does with a peer that does not
// know TLS.
var errNotTLS = errors.New("the peer does not seem to speak TLS")

func (d *Client) handshake(ctx context.Context, o robots.Origin, conn net.Conn, offered protocols) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.tlsTimeout)
	defer cancel()
	config := d.tls.Clone()
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

// notTLS reports whether the peer answered the ClientHello with something else
// or hung up on it. Silence is no answer: a timeout is not among these.
func notTLS(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// A countedConn tells once, if anybody wants to know, that it is closed, and
// knows whether all that came on it is used up.
type countedConn struct {
	net.Conn
	once    sync.Once
	closed  func() // nil: not counted yet
	ahead   []byte // was read while the connection waited, and comes first
	reader  reader
	waiting waiting // for a write; see NextWrite
	http2   bool    // was agreed on

	kept    bool         // it is the pool's, not the Transport's; who has it to himself sets it
	glance  *socket.Conn // what Read looks at, so that it never waits; nil: as always
	records *records     // that have come; nil: no TLS
	rest    rest         // with the Transport
}

// counted is the one under a connection that a Transport was given, or nil.
func counted(conn net.Conn) *countedConn {
	for secure, ok := conn.(*tls.Conn); ok; secure, ok = conn.(*tls.Conn) {
		conn = secure.NetConn()
	}
	c, _ := conn.(*countedConn)
	return c
}

func newCountedConn(raw net.Conn) *countedConn {
	c := &countedConn{Conn: raw}
	c.reader.change.L = &c.reader.mu
	return c
}

// Read reads what was read ahead, then the connection. Only HTTP/2's
// connections are read ahead of, by crypto/tls, which calls nothing but Read.
func (c *countedConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	if c.records != nil {
		b = b[:min(len(b), c.records.most())]
	}
	n, err := c.read(b)
	if c.records != nil {
		c.records.pass(b[:n])
	}
	return n, err
}

func (c *countedConn) read(b []byte) (int, error) {
	switch {
	case c.glance != nil:
		return c.glance.Glance(b)
	case c.kept || c.http2:
		return c.Conn.Read(b)
	}
	c.reader.note(true)
	n, err := c.Conn.Read(b)
	c.reader.note(false)
	return n, err
}

// Write writes to the connection, when whoever waits for that has let it.
func (c *countedConn) Write(b []byte) (int, error) {
	to := c.waiting.next(false)
	if to == nil || c.glance != nil { // at a glance TLS itself may have something to say
		return c.Conn.Write(b)
	}
	if err := to.Writing(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if n > 0 {
		if to = c.waiting.next(true); to != nil {
			to.Written()
		}
	}
	return n, err
}

// CloseWrite ends what we send and leaves the other direction open.
func (c *countedConn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *countedConn) Close() error {
	c.once.Do(func() {
		if c.closed != nil {
			c.closed()
		}
	})
	c.reader.close()
	return c.Conn.Close()
}
