package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

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
	return conn, causeOf(ctx, err)
}

func (p Pinned) acquire(ctx context.Context, r *http.Request, owner *Owner) (Conn, error) {
	c := p.client
	upgrade := len(r.Header["Upgrade"]) > 0
	// A change of protocols is requested only once, so it needs a new connection: an idle one may be dead.
	want := requirements{owner: owner, login: hasLogin(r.Header["Authorization"]), fresh: upgrade}
	// RFC 9113 8.6, RFC 4559 6.
	want.http1 = upgrade || want.login
	switch {
	case c.pool == nil:
		return nil, errClosed
	case r.URL.Scheme == "ftp":
		return c.acquireFTP(ctx, r, p.addr)
	case c.parent.forwards(r.URL.Scheme) && !upgrade:
		// A change of protocols needs a tunnel, even with http (RFC 6455 4.1).
		if err := forwardable(r, &c.dialer); err != nil {
			return nil, err
		}
		// Forwarded requests are sent over HTTP/1.1 only.
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

// Dial connects to host (a name, or an IP address without brackets) and port for a tunnel
// that is passed through. The connection is a *socket.Conn, so that copying between two
// of them needs no buffer, except through an upstream proxy with TLS.
func (p Pinned) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return p.client.viaTLS(host, port).dialCounted(ctx, host, port, p.addr)
}

// RoundTrip sends a request to any address of its host. It makes a Client an http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.At(netip.Addr{}).RoundTrip(r)
}

// RoundTrip acquires a connection for r, sends r, and returns the final response. It repeats this if
// [Repeat] permits. It makes a Pinned an http.RoundTripper.
func (p Pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	// Repeat may change the body of the copy.
	own := *r
	for try := 1; ; try++ {
		resp, err := p.try(&own)
		if err == nil {
			resp.Request = r
			return resp, nil
		}
		if try == MaxTries || !Repeat(&own, err) {
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
		_, err = conn.Send(r, nil)
	}
	for err == nil {
		if resp, err = conn.Receive(); err == nil && !IsInterim(resp) {
			return resp, nil
		}
	}
	return nil, err
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
	options := ftp.Options{Control: control, Dial: dial, ByName: c.parent != nil, Timeout: c.headerTimeout}
	return &ftpConn{Conn: control, options: options}, nil
}
