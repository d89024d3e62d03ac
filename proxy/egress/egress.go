// Package egress is the only client out: what fetches pages and what fetches
// robots.txt leaves the house through one [Client].
//
// The address that is dialled is the address that is judged: names are
// resolved once, addresses that do not belong to the public Internet are left
// out, and a second guard looks at the very IP as the socket connects. Names
// cannot be rebound between a check and its use, because nothing that was
// checked earlier is trusted. The list is in guard.go.
//
// It is not a policy (robots.txt, pace and who may ask are decided elsewhere)
// and it changes no request: no proxy from the environment, no decompression,
// no redirects. It speaks HTTP/2 to origins that choose it in their TLS
// handshake, else HTTP/1.1. Certificates are always verified. A request for
// an ftp URL becomes a visit to its server as anonymous, whose outcome is an
// HTTP response (ftp.go): a file, a page of a directory's entries, or the
// status that means what the server said.
//
// How it fails: ErrForbiddenAddr (ErrOwnListener is one) and ErrForbiddenPort
// for what may never be dialled; ErrExhausted where this machine has no room;
// else the errors of net, crypto/tls and crypto/x509, which errors.As finds. A
// name that resolves to allowed and forbidden addresses is reached at the
// allowed ones. DNS that does not answer is a *net.DNSError. Every step has a
// time limit. NAT64 with a prefix of a network's own cannot be told from other
// global addresses: such a gateway has to refuse private addresses itself.
//
// With a parent proxy everything goes out through it, and names are handed to
// it unresolved: what a name resolves to is then for the parent to judge. Here
// are judged still, before anything is sent, the port, the address where the
// host is one, and names that can only mean the parent's own host or its cloud's
// metadata. ErrParent marks a failure of the parent itself.
//
// Options.OneAddress is for who paces by address: each host is then reached at
// one of its addresses, for some minutes, so that it is known ahead where a
// request will go (bindings.go). An address that cannot be dialled costs the
// requests that wait for it; the next go to another that the name leads to.
//
// A [Client] may be shared by any number of goroutines. It starts some, to watch
// connections that wait for a request; Close ends them.
package egress

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Ceilings that are nobody's to configure.
const (
	maxIdle         = 1024 // kept connections to all origins together: of the pool, and of each Transport
	maxIdlePerHost  = 256
	maxHeadBytes    = 256 << 10 // of a response's head, 1xx included
	maxFields       = 512       // lines of a response's head: a field takes some 100 bytes, however short it is
	maxTLSSessions  = 1024      // origins whose TLS session is kept for resumption
	bufferBytes     = 4 << 10   // a connection's read and write buffer each; up to 32 KiB gained nothing beyond the noise
	continueTimeout = time.Second

	// HTTP/2: what an origin may send on a stream ahead of a client that reads
	// slowly, and after how long a silence its connection is tried. All streams of
	// a connection together have no such bound: the slow ones would use it up.
	streamAhead = 256 << 10
	pingAfter   = 30 * time.Second
)

// Options configure a Client. The zero Options go to the public Internet alone,
// to the default ports, as the system resolves and trusts.
type Options struct {
	AllowPrivate []netip.Prefix   // reachable although they are not public; zero: none
	Own          []netip.AddrPort // where the proxy itself listens: never dialled, whatever AllowPrivate says; zero: nowhere
	Ports        []PortRange      // that may be dialled; zero: DefaultPorts
	Resolver     string           // host:port of a DNS server, not subject to the guard; "": the system's
	Roots        *x509.CertPool   // that origins and an https parent are verified against; nil: the system's
	Parent       *url.URL         // proxy to go out through: http, https or socks5, maybe with user and password; nil: none
	OneAddress   bool             // each host is reached at one address at a time, which Address gives; not so with a Parent
	Previous     *Client          // whose place this one takes: it has the same pseudonym, and counts on; nil: none

	DialTimeout   time.Duration // for resolution and TCP connection together; zero: 10 s
	TLSTimeout    time.Duration // for a TLS handshake; zero: 10 s
	HeaderTimeout time.Duration // from a request sent (FTP: from the connection) to its response's head; zero: 60 s
	IdleTimeout   time.Duration // a kept connection is closed after; zero: 90 s
	Retry         time.Duration // Reach leaves an origin that it could not reach alone for; zero: 30 s
	Rebind        time.Duration // with OneAddress a name is resolved anew after; zero: 5 minutes
}

// A PortRange is the ports from First to Last, both included. Its zero value
// is not valid.
type PortRange struct{ First, Last uint16 }

// DefaultPorts returns what a Client dials where Options name no ports: HTTP,
// HTTPS, FTP and all that is not privileged.
func DefaultPorts() []PortRange {
	return []PortRange{{80, 80}, {443, 443}, {1024, 65535}, {21, 21}}
}

// A Client dials, keeps connections and sends requests. The zero Client refuses
// every address and port; New makes a useful one.
//
// A GET, HEAD, OPTIONS or TRACE without a body goes to an origin that speaks
// HTTP/1.1 on its caller's goroutine, which is cheap (direct.go); everything else goes by
// an http.Transport. The two have their connections in common, but for those that a
// change of protocols was asked on: one that rests with either is used before another
// is made.
type Client struct {
	guard       guard
	resolver    *net.Resolver
	dialTimeout time.Duration
	tlsTimeout  time.Duration
	tls         *tls.Config // without a ServerName: cloned for each handshake
	transport   *http.Transport
	http1       *http.Transport // speaks nothing else
	parent      *parent         // nil: we go ourselves
	pseudonym   string

	headerTimeout time.Duration

	contacts *contacts
	counts   *counts
	tally    *tally    // that of counts for where this Client leads; nil: a zero Client
	bindings *bindings // nil: any address of a host will do
	warm     *warmPool
	pool     *pool
	flights  singleflight.Group // of Reach, by origin

	ctx    context.Context // ends with Close, and with it what Reach has begun
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // what Reach has begun; Add under mu
}

// New checks o and makes a Client of it.
func New(o Options) (*Client, error) {
	g, err := newGuard(o)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	resolver, err := newResolver(o.Resolver)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if min(o.DialTimeout, o.TLSTimeout, o.HeaderTimeout, o.IdleTimeout, o.Retry, o.Rebind) < 0 {
		return nil, errors.New("egress: a time limit is negative")
	}
	d := &Client{
		guard:       g,
		resolver:    resolver,
		dialTimeout: cmp.Or(o.DialTimeout, 10*time.Second),
		tlsTimeout:  cmp.Or(o.TLSTimeout, 10*time.Second),
		tls: &tls.Config{
			RootCAs:            o.Roots,
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(maxTLSSessions),
		},
		contacts:  newContacts(cmp.Or(o.Retry, 30*time.Second)),
		warm:      newWarmPool(),
		pseudonym: newPseudonym(),
		counts:    new(counts),
	}
	if o.Previous != nil {
		d.pseudonym, d.counts = o.Previous.pseudonym, o.Previous.counts
	}
	d.tally = &d.counts.origins
	if o.Parent != nil {
		if d.parent, err = newParent(o, d.pseudonym); err != nil {
			return nil, fmt.Errorf("egress: parent: %w", err)
		}
		d.parent.client.tally = &d.counts.parent
	} else if o.OneAddress {
		d.bindings = newBindings(cmp.Or(o.Rebind, 5*time.Minute))
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	o.HeaderTimeout, o.IdleTimeout = cmp.Or(o.HeaderTimeout, time.Minute), cmp.Or(o.IdleTimeout, 90*time.Second)
	d.headerTimeout, d.pool = o.HeaderTimeout, newPool(o.IdleTimeout)
	d.transport, d.http1 = d.newTransport(o, protocols{"h2", http11}), d.newTransport(o, protocols{http11})
	return d, nil
}

// protocols are what a TLS handshake offers (RFC 7301), the preferred first.
type protocols []string

const http11 = "http/1.1"

func (d *Client) newTransport(o Options, offered protocols) *http.Transport {
	var spoken http.Protocols
	spoken.SetHTTP1(true)
	both := offered[0] == "h2"
	spoken.SetHTTP2(both)
	return &http.Transport{
		Proxy:                  nil,               // HTTP_PROXY and its kin are the clients', not ours
		DialContext:            d.dialPlain(both), // a change of protocols is asked for once, and not where the connection may be stale
		DialTLSContext:         d.dialTLS(offered, both),
		Protocols:              &spoken,
		DisableCompression:     true, // bodies pass as they are, octet by octet
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        o.IdleTimeout,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxHeadBytes,
		ReadBufferSize:         bufferBytes,
		WriteBufferSize:        bufferBytes,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamAhead,
			SendPingTimeout:           pingAfter,
		},
	}
}

// RoundTrip sends one request to its origin; it is an http.RoundTripper. The
// caller's httptrace has to ask a [Tries] of its own about each connection. A
// request for an ftp URL is ErrFTPPath or ErrFTPMethod where FTP knows no such
// thing.
func (d *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	return d.At(netip.Addr{}).RoundTrip(r)
}

func (d *Client) send(r *http.Request, at netip.Addr) (*http.Response, error) {
	change := len(r.Header["Upgrade"]) > 0
	switch {
	case d.transport == nil:
		return nil, errClosed
	case r.URL.Scheme == "ftp":
		return d.roundTripFTP(r, at)
	case d.parent.forwards(r.URL.Scheme) && !change: // to change protocols takes a tunnel, also from http (RFC 6455 4.1)
		return d.forward(r)
	}
	to, err := d.destination(r, at)
	switch {
	case err != nil:
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	case change: // RFC 9113 8.6: HTTP/2 knows no such thing
		return d.sendOver(d.http1, r, to)
	}
	resp, err := d.direct(r, to)
	if err == errIndirect {
		return d.sendOver(d.transport, r, to)
	}
	return resp, err
}

// checkFields gives the error for a head that has too many fields, or a field that closeUp cannot correct.
func checkFields(h http.Header) error {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	if n > maxFields {
		return errFields
	}
	return closeUp(h)
}

// closeUp takes away the white space before the colon that RFC 9112 5.1 wants
// gone from an answer; net/http leaves it in the name. It is an error where the
// name then is one of framing: net/http has not seen it.
func closeUp(h http.Header) error {
	for name, values := range h {
		if strings.IndexByte(name, ' ') < 0 {
			continue
		}
		delete(h, name)
		switch name = http.CanonicalHeaderKey(strings.TrimRight(name, " ")); {
		case name == "Content-Length" || name == "Transfer-Encoding":
			return fmt.Errorf("the origin's answer has white space behind %s", name)
		case strings.IndexByte(name, ' ') < 0: // else it is still no name
			h[name] = append(h[name], values...)
		}
	}
	return nil
}

// Pseudonym is what this proxy is called in a Via field (RFC 9110 7.6.3),
// unlike any other: by it a request that comes back is known.
func (d *Client) Pseudonym() string { return d.pseudonym }

func newPseudonym() string {
	var b [4]byte
	rand.Read(b[:]) // never fails (crypto/rand since Go 1.24)
	return "robotsproxy-" + hex.EncodeToString(b[:])
}

// errClosed is what a Client says once it is closed.
var errClosed = fmt.Errorf("egress: %w", net.ErrClosed)

// CloseIdle closes the connections that no request uses. Another Client has taken
// this one's place, and what still goes out here are the last requests.
func (d *Client) CloseIdle() {
	if d.transport == nil {
		return
	}
	d.warm.drop()
	d.pool.drop()
	d.transport.CloseIdleConnections()
	d.http1.CloseIdleConnections()
	if d.parent != nil {
		d.parent.client.CloseIdle()
	}
}

// Close ends what Reach has begun and closes the connections that no request
// uses. Requests under way go on; new ones that need a connection fail.
func (d *Client) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	if d.transport == nil {
		return
	}
	d.cancel()
	d.running.Wait()
	d.warm.close()
	d.pool.close()
	d.transport.CloseIdleConnections()
	d.http1.CloseIdleConnections()
	if d.parent != nil {
		d.parent.client.Close()
	}
}

// begin counts work of the Client's own, which Close waits for.
func (d *Client) begin() (end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	d.running.Add(1)
	return d.running.Done, nil
}

func (d *Client) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
