package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

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
func (p Pinned) Reach(ctx context.Context, o robots.Origin) error {
	return p.client.via(o).reach(ctx, endpoint{o, p.addr}, false)
}

// Dials reports whether Reach, or with tcp ReachTCP, would make a connection to o now.
func (c *Client) Dials(o robots.Origin, tcp bool) bool {
	if c = c.via(o); tcp {
		o.Scheme = "http"
	}
	return (tcp || !c.parent.forwards(o.Scheme)) && !c.history.wasReached(o) && c.history.failure(o) == nil
}

// ReachTCP is Reach without TLS, for a client that has not said whether it will speak TLS. Nothing is sent to
// o. With an upstream proxy it makes a tunnel.
func (p Pinned) ReachTCP(ctx context.Context, o robots.Origin) error {
	c := p.client.via(o)
	o.Scheme = "http"
	return c.reach(ctx, endpoint{o, p.addr}, true)
}

// reach is Reach for the endpoint at. If tunnel is set, it also makes a connection if the upstream proxy forwards
// requests to it.
func (c *Client) reach(ctx context.Context, at endpoint, tunnel bool) error {
	o := at.Origin
	if o.Scheme != "http" && o.Scheme != "https" {
		return fmt.Errorf("reach %s: the scheme must be http or https", o)
	}
	if err := c.guard.check(o.Host, o.Port); err != nil {
		return fmt.Errorf("reach %s: %w", o, err)
	}
	if !tunnel && c.parent.forwards(o.Scheme) || c.history.wasReached(o) {
		return nil
	}
	if err := c.history.failure(o); err != nil {
		return err
	}
	result := c.reaching.DoChan(fmt.Sprint(o, at.addr), func() (any, error) { return nil, c.tryReach(at) })
	select {
	case <-ctx.Done():
		return fmt.Errorf("reach %s: %w", o, context.Cause(ctx))
	case r := <-result:
		// The error names the origin itself.
		return r.Err
	}
}

// tryReach runs once for all concurrent callers of Reach. It ends when the Client is
// closed, not when a caller leaves. The time limits of a dial and a handshake apply.
func (c *Client) tryReach(at endpoint) error {
	end, err := c.begin()
	if err != nil {
		return err
	}
	defer end()
	at = at.clone()
	// Another attempt may have succeeded just before this one began.
	if c.history.wasReached(at.Origin) {
		return nil
	}
	began := time.Now()
	conn, err := c.connect(c.ctx, at, false)
	switch {
	case err == nil:
		at.addr = netip.Addr{}
		if c.bindings != nil {
			at.addr = socket.AddrPort(conn.RemoteAddr()).Addr()
		}
		kept, err := c.adopt(c.ctx, conn, at)
		if err != nil {
			return err
		}
		kept.Release()
	case LocalError(err):
		// This comes first: TLS with the upstream proxy may have failed, or its name may be unknown.
		return err
	case errors.Is(err, errNotTLS), needsName(at.Origin, err, c.tls.RootCAs):
		c.history.reach(at.Origin, 0)
	default:
		return c.remember(at.Origin, began, err)
	}
	return nil
}

// needsName reports whether a handshake with an IP address failed only because it had no
// name: the certificate verifies except for the name, or the peer sent an alert, as many
// servers do if the ClientHello has no SNI.
func needsName(o robots.Origin, err error, roots *x509.CertPool) bool {
	if _, notIP := netip.ParseAddr(o.Host); notIP != nil {
		return false
	}
	if receivedAlert(err) != nil {
		return true
	}
	var name x509.HostnameError
	var unverified *tls.CertificateVerificationError
	if !errors.As(err, &name) || !errors.As(err, &unverified) || len(unverified.UnverifiedCertificates) == 0 {
		return false
	}
	// x509 checks the name before the chain, so the chain is not verified yet.
	certs := unverified.UnverifiedCertificates
	chain := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range certs[1:] {
		chain.Intermediates.AddCert(c)
	}
	_, err = certs[0].Verify(chain)
	return err == nil
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
