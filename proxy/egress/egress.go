// Package egress is the only door out: what fetches pages and what fetches
// robots.txt leaves the house through one [Door].
//
// The address that is dialled is the address that is judged: names are
// resolved once, addresses that do not belong to the public Internet are left
// out, and a second guard looks at the very IP as the socket connects. Names
// cannot be rebound between a check and its use, because nothing that was
// checked earlier is trusted. The list is in guard.go.
//
// It is not a policy (robots.txt, pace and who may ask are decided elsewhere)
// and it changes no request: no proxy from the environment, no decompression,
// no redirects, HTTP/1.1 only. Certificates are always verified.
//
// How it fails: ErrForbiddenAddr and ErrForbiddenPort for what may never be
// dialled; else the errors of net, crypto/tls and crypto/x509, which errors.As
// finds. A name that resolves to allowed and forbidden addresses is reached at
// the allowed ones. DNS that does not answer is a *net.DNSError. Every step
// has a time limit. NAT64 with a prefix of a network's own cannot be told from
// other global addresses: such a gateway has to refuse private addresses itself.
//
// A [Door] may be shared by any number of goroutines. It starts some, to watch
// connections that wait for their first request; Close ends them.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Ceilings that are nobody's to configure.
const (
	maxIdle         = 1024 // kept connections to all origins together
	maxIdlePerHost  = 256
	maxHeadBytes    = 256 << 10 // of a response's head, 1xx included
	maxTLSSessions  = 1024      // origins whose TLS session is kept for resumption
	bufferBytes     = 4 << 10   // a connection's read and write buffer each; up to 32 KiB gained nothing beyond the noise
	continueTimeout = time.Second
)

// Options configure a Door. The zero Options go to the public Internet alone,
// to the default ports, as the system resolves and trusts.
type Options struct {
	AllowPrivate []netip.Prefix // reachable although they are not public; zero: none
	Ports        []PortRange    // that may be dialled; zero: DefaultPorts
	Resolver     string         // host:port of a DNS server, not subject to the guard; "": the system's
	Roots        *x509.CertPool // that origins are verified against; nil: the system's

	DialTimeout   time.Duration // for resolution and TCP connection together; zero: 10 s
	TLSTimeout    time.Duration // for a TLS handshake; zero: 10 s
	HeaderTimeout time.Duration // from a request sent to its response's head; zero: 60 s
	IdleTimeout   time.Duration // a kept connection is closed after; zero: 90 s
	Retry         time.Duration // Reach leaves an origin that it could not reach alone for; zero: 30 s
}

// A PortRange is the ports from First to Last, both included. Its zero value
// is not valid.
type PortRange struct{ First, Last uint16 }

// DefaultPorts returns what a Door dials where Options name no ports: HTTP,
// HTTPS, FTP and all that is not privileged.
func DefaultPorts() []PortRange {
	return []PortRange{{80, 80}, {443, 443}, {1024, 65535}, {21, 21}}
}

// A Door dials, keeps connections and sends requests. The zero Door refuses
// every address and port; New makes a useful one.
type Door struct {
	guard       guard
	resolver    *net.Resolver
	dialTimeout time.Duration
	tlsTimeout  time.Duration
	tls         *tls.Config // without a ServerName: cloned for each handshake
	transport   *http.Transport

	contacts *contacts
	warm     *warmPool
	flights  singleflight.Group // of Reach, by origin

	ctx    context.Context // ends with Close, and with it what Reach has begun
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // what Reach has begun; Add under mu
}

// New checks o and makes a Door of it.
func New(o Options) (*Door, error) {
	g, err := newGuard(o)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	resolver, err := newResolver(o.Resolver)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if min(o.DialTimeout, o.TLSTimeout, o.HeaderTimeout, o.IdleTimeout, o.Retry) < 0 {
		return nil, errors.New("egress: a time limit is negative")
	}
	d := &Door{
		guard:       g,
		resolver:    resolver,
		dialTimeout: cmp.Or(o.DialTimeout, 10*time.Second),
		tlsTimeout:  cmp.Or(o.TLSTimeout, 10*time.Second),
		tls: &tls.Config{
			RootCAs:            o.Roots,
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			ClientSessionCache: tls.NewLRUClientSessionCache(maxTLSSessions),
		},
		contacts: newContacts(cmp.Or(o.Retry, 30*time.Second)),
		warm:     newWarmPool(),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.transport = d.newTransport(cmp.Or(o.HeaderTimeout, time.Minute), cmp.Or(o.IdleTimeout, 90*time.Second))
	return d, nil
}

func (d *Door) newTransport(header, idle time.Duration) *http.Transport {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil, // HTTP_PROXY and its kin are the clients', not ours
		DialContext:            d.dialPlain,
		DialTLSContext:         d.dialTLS,
		Protocols:              &http1,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:     true, // bodies pass as they are, octet by octet
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idle,
		ResponseHeaderTimeout:  header,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxHeadBytes,
		ReadBufferSize:         bufferBytes,
		WriteBufferSize:        bufferBytes,
	}
}

// RoundTrip sends one request to its origin; it is an http.RoundTripper.
func (d *Door) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.transport == nil {
		return nil, errClosed
	}
	return d.transport.RoundTrip(r)
}

// errClosed is what a Door says once it is closed.
var errClosed = fmt.Errorf("egress: %w", net.ErrClosed)

// Close ends what Reach has begun and closes the connections that no request
// uses. Requests under way go on; new ones that need a connection fail.
func (d *Door) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	if d.transport == nil {
		return
	}
	d.cancel()
	d.running.Wait()
	d.warm.close()
	d.transport.CloseIdleConnections()
}

// begin counts work of the Door's own, which Close waits for.
func (d *Door) begin() (end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	d.running.Add(1)
	return d.running.Done, nil
}

func (d *Door) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
