// Package mitm is the authority that intercepted TLS connections rest on: it
// loads or makes the proxy's CA, mints a leaf certificate for each name a
// client asks for, and does the server's side of the handshake.
//
// It is not a policy: whether a connection may be opened at all, and whether
// the name in a client's SNI is the one it sent CONNECT for, is the caller's
// to judge (the name is in the ConnectionState of what [Authority.Handshake]
// returns). It never speaks to an origin and never looks at a request.
//
// How it fails: a CA that is missing a half, cannot be read, is not a CA, has
// expired or has a key that others may read is an error of one line that names
// the file and what to do; nothing is made anew over it. A leaf is never valid
// for longer than the CA is, so a CA that expires while the proxy runs ends in
// failed handshakes. A client that does not finish its handshake is ended by
// the context it was given, or the deadline of its connection.
//
// An [Authority] may be shared by any number of goroutines. It starts none.
package mitm

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
)

// maxNames bounds the leaf certificates held at once: about 1 KiB each.
const maxNames = 10_000

// An Authority signs leaf certificates with a CA. Its zero value has no CA and
// refuses every handshake; [Load] and [LoadOrCreate] make one.
type Authority struct {
	ca      *x509.Certificate // the issuer
	chain   [][]byte          // DER, the issuer first
	pem     []byte            // the same, as PEM
	signer  crypto.Signer     // the issuer's key
	leafKey *ecdsa.PrivateKey // shared by all leaves; fresh in each Authority
	leaves  *leafCache
	faults  Faults

	config *tls.Config // offers h2 and http/1.1
	noALPN *tls.Config // for clients whose ALPN list has neither
	protos []string
}

// hostKey carries the CONNECT host of [Authority.Handshake] to GetCertificate,
// which hears nothing but the ClientHello and the handshake's context.
type hostKey struct{}

var errNoName = errors.New("no name to mint a certificate for")

func newAuthority(p pair) (*Authority, error) {
	// From crypto/rand at each start and never written down: nobody can
	// predict it, and a copied CA alone reads no recorded traffic.
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make leaf key: %w", err)
	}
	a := &Authority{
		ca:      p.certs[0],
		pem:     p.pem,
		signer:  p.key,
		leafKey: leafKey,
		leaves:  newLeafCache(maxNames),
		protos:  []string{"h2", "http/1.1"},
	}
	for _, c := range p.certs {
		a.chain = append(a.chain, c.Raw)
	}
	a.noALPN = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: a.certificate,
	}
	// One Config for all connections: its ticket keys, which crypto/tls makes
	// and rotates, let sessions resume across connections; connections that
	// GetConfigForClient sends to noALPN use the same keys.
	a.config = a.noALPN.Clone()
	a.config.NextProtos = a.protos
	a.config.GetConfigForClient = a.configFor
	return a, nil
}

// CertPEM returns the CA's certificate as PEM, for trust stores. Where the
// file held further certificates, the issuers of the CA, they follow.
func (a *Authority) CertPEM() []byte { return slices.Clone(a.pem) }

// Certificate returns the CA's certificate. It must not be changed.
func (a *Authority) Certificate() *x509.Certificate { return a.ca }

// Handshake does the server's side of a TLS handshake on conn, with a leaf
// certificate for the name in the client's SNI or, without one, for host: a
// DNS name or an IP address without brackets, without port. Its time limit is
// ctx's, or conn's deadline. After an error conn is still the caller's to close.
func (a *Authority) Handshake(ctx context.Context, conn net.Conn, host string) (*tls.Conn, error) {
	if a == nil || a.config == nil {
		return nil, errors.New("tls handshake with client: no CA")
	}
	tc := tls.Server(conn, a.config)
	if err := tc.HandshakeContext(context.WithValue(ctx, hostKey{}, host)); err != nil {
		a.faults.Add(err)
		return nil, fmt.Errorf("tls handshake with client: %w", err)
	}
	return tc, nil
}

// configFor sends a client that offers ALPN, but neither protocol we speak, to
// the Config without ALPN. `curl -0` offers http/1.0 alone; crypto/tls would
// end the handshake with no_application_protocol (RFC 7301 3.2).
func (a *Authority) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	ours := func(proto string) bool { return slices.Contains(a.protos, proto) }
	if len(hello.SupportedProtos) > 0 && !slices.ContainsFunc(hello.SupportedProtos, ours) {
		return a.noALPN, nil
	}
	return nil, nil // go on with config
}

func (a *Authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hello.ServerName
	if name == "" {
		name, _ = hello.Context().Value(hostKey{}).(string)
	}
	if name == "" {
		return nil, &noCertificate{errNoName}
	}
	leaf, err := a.leaf(name)
	if err != nil {
		return nil, &noCertificate{err}
	}
	return leaf, nil
}
