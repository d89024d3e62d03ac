package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"robotsproxy/robots"
)

// Reach makes sure that o can be connected to: with TCP, and for https with a
// TLS handshake and a verified certificate. The connection is kept for a short
// while and is the one that the next RoundTrip to o uses, so that o sees no
// other. Reach does nothing where a connection to o is open or was made within
// the last 30 seconds, or where a parent takes requests to o as they are, so
// that there is nothing to connect to. Callers at the same time share one try,
// which goes on when one of them leaves; what it met is a [RetryError], and the
// answer to all who ask within Options.Retry. A failure of the parent's own
// (ErrParent) is not remembered: o has no part in it.
//
// Two failures are none, because a client may still be served in its tunnel:
// a peer that does not speak TLS (the client may not either), and, where o's
// host is an IP address, a peer that has a certificate for another name or
// wants to be told one (the client may name it in its SNI).
func (d *Client) Reach(ctx context.Context, o robots.Origin) error {
	return d.reachAt(ctx, o, netip.Addr{})
}

func (d *Client) reachAt(ctx context.Context, o robots.Origin, at netip.Addr) error {
	if o.Scheme != "http" && o.Scheme != "https" {
		return fmt.Errorf("reach %s: the scheme is neither http nor https", o)
	}
	if err := d.guard.check(o.Host, o.Port); err != nil {
		return fmt.Errorf("reach %s: %w", o, err)
	}
	if d.parent.forwards(o.Scheme) || d.contacts.recent(o) {
		return nil
	}
	if err := d.contacts.failure(o); err != nil {
		return err
	}
	flight := o.String()
	if at.IsValid() {
		flight += "@" + at.String()
	}
	result := d.flights.DoChan(flight, func() (any, error) { return nil, d.reach(o, at) })
	select {
	case <-ctx.Done():
		return fmt.Errorf("reach %s: %w", o, context.Cause(ctx))
	case r := <-result:
		return r.Err // says what it was about
	}
}

// reach runs once for all who wait. It ends with the Client, not with a caller,
// and is bounded by the time limits of a dial and a handshake.
func (d *Client) reach(o robots.Origin, at netip.Addr) error {
	end, err := d.begin()
	if err != nil {
		return err
	}
	defer end()
	o.Host = strings.Clone(o.Host) // it may be a part of a whole URL, and is remembered
	if o.Scheme == "https" && d.contacts.plain(o) {
		o.Scheme = "http" // it did not speak TLS a while ago: leave it in peace
	}
	if d.parent.forwards(o.Scheme) || d.contacts.recent(o) { // the latter by a try that ended as this one began
		return nil
	}
	conn, err := d.connect(d.ctx, o, at, protocols{"h2", http11})
	switch {
	case err == nil:
		d.warm.put(d.spotOf(o, conn), conn)
	case LocalError(err): // first: a parent's TLS may have failed, its name be unknown
		return err
	case errors.Is(err, errNotTLS):
		d.contacts.note(o)
		d.contacts.notTLS(o)
	case d.wantsName(o, err):
		d.contacts.note(o)
	default:
		return d.blame(o, err)
	}
	return nil
}

// wantsName reports whether a handshake with an IP address failed for want of
// a name alone: the certificate verifies but for the name, or the peer sent an
// alert (many servers do where the ClientHello has no SNI).
func (d *Client) wantsName(o robots.Origin, err error) bool {
	if _, notIP := netip.ParseAddr(o.Host); notIP != nil {
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" { // as crypto/tls marks a received alert
		return true
	}
	var name x509.HostnameError
	var unverified *tls.CertificateVerificationError
	if !errors.As(err, &name) || !errors.As(err, &unverified) || len(unverified.UnverifiedCertificates) == 0 {
		return false
	}
	// x509 looks at the name before the chain, so the chain is yet to be judged.
	certs := unverified.UnverifiedCertificates
	chain := x509.VerifyOptions{Roots: d.tls.RootCAs, Intermediates: x509.NewCertPool()}
	for _, c := range certs[1:] {
		chain.Intermediates.AddCert(c)
	}
	_, err = certs[0].Verify(chain)
	return err == nil
}
