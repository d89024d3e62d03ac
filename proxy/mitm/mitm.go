// Package mitm is the certificate authority for intercepted TLS connections: it loads or makes the
// proxy's CA, signs a leaf certificate for each name that a client asks for, and performs the
// server's side of the handshake.
//
// It makes no policy decisions. Whether a connection may be intercepted at all, and whether the
// name in a client's SNI equals the host of its CONNECT, is for the caller to check (the name is in
// the ConnectionState of the connection that [Authority.Handshake] returns). The package never
// connects to an origin and never looks at a request.
//
// How it fails: a CA that lacks one of its files, cannot be read, is not a CA, has expired or has a
// key that others may read is a one-line error that names the file and what to do; nothing is
// overwritten. A leaf is never valid for longer than the CA, so once the CA expires, handshakes
// fail. A handshake that the client does not finish ends with the caller's context or the deadline
// of the connection.
//
// Any number of goroutines may share an [Authority]. It starts none.
package mitm

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxNames bounds the cached leaf certificates, of about 1 KiB each.
const maxNames = 10_000

// An Authority signs leaf certificates with a CA. Its zero value has no CA and refuses every
// handshake; [Load] and [LoadOrCreate] make one.
type Authority struct {
	// ca is the issuer, and signer has its key.
	ca     *x509.Certificate
	signer crypto.Signer

	// chain is the issuer and its own issuers as DER, and pem the same as PEM.
	chain [][]byte
	pem   []byte

	// leafKey is shared by all leaves, and new in each Authority.
	leafKey *ecdsa.PrivateKey
	leaves  *leafCache
	faults  *Faults

	// config offers protos. All connections share it and so its ticket keys, which crypto/tls makes and rotates:
	// sessions resume across connections.
	config *tls.Config
}

// protos are the protocols that the proxy speaks after a handshake.
var protos = []string{"h2", "http/1.1"}

// hostKey is the context key of the CONNECT host: GetCertificate gets nothing but the ClientHello
// and the handshake's context.
type hostKey struct{}

var errNoName = errors.New("no host name for a certificate")

// Load reads a CA from a PEM certificate and its private key (RSA, ECDSA or Ed25519; PKCS #8, PKCS #1
// or SEC 1). The key's mode must be 0600, or 0640 if the key belongs to root and the process does not
// run as root. Certificates after the first, the CA's own issuers, are sent to clients with it.
func Load(certFile, keyFile string) (*Authority, error) {
	p, err := caFiles{cert: certFile, key: keyFile, remedy: "correct the file, or name another certificate and key"}.load()
	if err != nil {
		return nil, err
	}
	return newAuthority(p)
}

// LoadOrCreate loads the CA in dir, the files ca.pem and ca.key. If there are none it makes them, and
// dir with mode 0700: an ECDSA P-256 key and a certificate of ten years with this host's name in its
// subject. Processes that start at the same time get the same pair. Half a pair is an error: one file
// alone is more likely a mistake than a first run.
func LoadOrCreate(dir string) (*Authority, error) {
	p, err := stateFiles(dir).loadOrCreate()
	if err != nil {
		return nil, err
	}
	return newAuthority(p)
}

func newAuthority(p keyPair) (*Authority, error) {
	// The key is new at each start and never stored: a copied CA alone decrypts no recorded traffic.
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate leaf key: %w", err)
	}
	a := &Authority{
		ca:      p.certs[0],
		pem:     EncodeCertificates(p.certs),
		signer:  p.key,
		leafKey: leafKey,
		leaves:  newLeafCache(maxNames),
		faults:  new(Faults),
	}
	for _, c := range p.certs {
		a.chain = append(a.chain, c.Raw)
	}
	a.config = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         protos,
		GetCertificate:     a.certificate,
		GetConfigForClient: a.configFor,
	}
	return a, nil
}

// CertPEM returns the CA's certificate as PEM, for trust stores. The CA's issuers follow if the
// file had them.
func (a *Authority) CertPEM() []byte { return slices.Clone(a.pem) }

// Certificate returns the CA's certificate. The caller must not change it.
func (a *Authority) Certificate() *x509.Certificate { return a.ca }

// Handshake performs the server's side of a TLS handshake on conn, with a leaf certificate for the
// name in the client's SNI or, if there is none or it has a port, for host: a DNS name or an IP address without
// brackets. FaultHosts names a port other than 443 too. The handshake ends with ctx or at conn's
// deadline. If it fails the caller still has to close conn.
func (a *Authority) Handshake(ctx context.Context, conn net.Conn, host string, port uint16) (*tls.Conn, error) {
	if a == nil || a.config == nil {
		return nil, errors.New("tls handshake with client: no CA")
	}
	tc := tls.Server(conn, a.config)
	if err := tc.HandshakeContext(context.WithValue(ctx, hostKey{}, host)); err != nil {
		a.faults.Add(tunnelName(host, port), err)
		// The text of err is that of an alert, which says something else for OpenSSL.
		if FaultOf(err) == FaultUntrusted {
			return nil, fmt.Errorf("tls handshake with client: the client does not trust the certificate: %w", err)
		}
		return nil, fmt.Errorf("tls handshake with client: %w", err)
	}
	return tc, nil
}

// tunnelName names the destination of a tunnel for people; "": it has no host.
func tunnelName(host string, port uint16) string {
	if host == "" || port == 443 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// AddUnused notes that a client closed a tunnel to host after its handshake, without a request.
func (a *Authority) AddUnused(host string, port uint16) {
	a.faults.addHost(tunnelName(host, port), FaultUnused)
}

// FaultHosts returns the hosts in whose tunnels a handshake failed with this Fault, as [Faults.Hosts].
func (a *Authority) FaultHosts(fault Fault) []string { return a.faults.Hosts(fault) }

// configFor returns a Config without ALPN for a client whose ALPN list has none of our protocols. crypto/tls gives it the
// ticket keys of config.
// `curl -0` offers http/1.0 alone; crypto/tls would end the handshake with no_application_protocol
// (RFC 7301 3.2).
func (a *Authority) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	ours := func(proto string) bool { return slices.Contains(protos, proto) }
	if len(hello.SupportedProtos) > 0 && !slices.ContainsFunc(hello.SupportedProtos, ours) {
		withoutALPN := a.config.Clone()
		withoutALPN.NextProtos = nil
		return withoutALPN, nil
	}
	// The handshake goes on with config.
	return nil, nil
}

// certificate is the Config's GetCertificate.
func (a *Authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host, _ := hello.Context().Value(hostKey{}).(string)
	name := hello.ServerName
	// HTTrack sends host:port.
	if before, _, _ := strings.Cut(name, ":"); name == "" || strings.EqualFold(before, host) {
		name = host
	}
	if name == "" {
		return nil, &noCertificateError{errNoName}
	}
	leaf, err := a.leaf(name)
	if err != nil {
		return nil, &noCertificateError{err}
	}
	return leaf, nil
}

// leaf returns the leaf certificate for name, from the cache or newly signed.
func (a *Authority) leaf(name string) (*tls.Certificate, error) {
	name, err := hostName(name)
	if err != nil {
		return nil, err
	}
	cert, err := a.leaves.get(name, time.Now(), a.sign)
	if err != nil {
		return nil, fmt.Errorf("make certificate for %s: %w", name, err)
	}
	return cert, nil
}

// sign makes a leaf for name, which is in the form that hostName returns.
func (a *Authority) sign(name string, now time.Time) (*tls.Certificate, error) {
	if now.After(a.ca.NotAfter) {
		return nil, fmt.Errorf("the CA expired on %s", a.ca.NotAfter.Format(time.DateOnly))
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(),
		Subject:      pkix.Name{Organization: []string{organization}},
		NotBefore:    slices.MaxFunc([]time.Time{now.Add(-backdate), a.ca.NotBefore}, time.Time.Compare),
		NotAfter:     slices.MinFunc([]time.Time{now.Add(leafLife), a.ca.NotAfter}, time.Time.Compare),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// This is encoded as CA:FALSE.
		BasicConstraintsValid: true,
	}
	// The CN is for people: clients compare the SAN (RFC 9110 4.3.4). A name that is too long is
	// omitted, not cut: the rest could be the name of another host.
	if len(name) <= maxCN {
		template.Subject.CommonName = name
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, a.leafKey.Public(), a.signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{
		Certificate: append([][]byte{der}, a.chain...),
		PrivateKey:  a.leafKey,
		Leaf:        leaf,
	}, nil
}

// Follow makes a, which replaces before, count together with it: Stats and FaultHosts of a begin with what
// before has counted, and contain what before goes on to count. It must be called before a is used.
func (a *Authority) Follow(before *Authority) {
	a.faults, a.leaves.signed = before.faults, before.leaves.signed
}

// Stats is the state of an Authority.
type Stats struct {
	// NotAfter is when the CA's certificate expires.
	NotAfter time.Time

	// Leaves is the number of cached certificates.
	Leaves int

	// Minted is the number of certificates signed so far.
	Minted uint64

	// Failed counts the handshakes that failed so far. It has every Fault as a key.
	Failed map[Fault]uint64
}

// Stats returns the current state. It must not be called on the zero Authority.
func (a *Authority) Stats() Stats {
	return Stats{NotAfter: a.ca.NotAfter, Leaves: a.leaves.len(), Minted: a.leaves.signed.Load(), Failed: a.faults.Counts()}
}
