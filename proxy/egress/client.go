// Package egress is the HTTP client that all outgoing requests use, those of clients and
// those for robots.txt.
//
// It checks the address that it dials. Names are resolved once, addresses outside the
// public Internet are left out, and a second guard checks the IP address when the socket
// connects. Therefore a name cannot be rebound between a check and its use. The list of
// addresses is in guard.go.
//
// It is not a policy (package policy decides about robots.txt, pace and clients) and it
// does not change requests: it reads no environment, does not decompress
// and follows no redirects. It speaks HTTP/2 to origins that choose it in their TLS
// handshake, otherwise HTTP/1.1. It always verifies certificates. Package ftp answers requests
// for ftp URLs.
//
// It fails with ErrForbiddenAddr (or ErrOwnListener, which is one) and ErrForbiddenPort for
// forbidden destinations, and with ErrExhausted if this machine lacks a resource. Other
// errors are those of net, crypto/tls and crypto/x509, which errors.As finds. If a name
// resolves to allowed and forbidden addresses, only the allowed ones are dialled. A DNS
// failure is a *net.DNSError. Every step has a time limit. An address of NAT64 with a
// network-specific prefix cannot be told from other global addresses, so such a gateway
// must refuse private addresses itself.
//
// With an upstream proxy (Options.Parent), everything goes through that proxy. It also
// resolves the names and must check their addresses. Before anything is sent, this package
// still checks the port, the address if the host is one, and names that can only mean the
// upstream proxy's own host or the metadata service of its cloud. ErrParent marks a failure
// of the upstream proxy itself. Options.Environment names upstream proxies for some origins,
// and Options.Parents those that [Client.Through] chooses; there is a Client for each.
//
// Options.OneAddress is for a pace by address. Each host is then dialled at one of its
// addresses for some minutes, so that the address of a request is known before it is sent.
// If an address cannot be dialled, the requests that wait for it fail, and later requests
// use another address of the name.
//
// A request takes this way:
//
//	Pinned.Acquire   pool.take (idle HTTP/1.1), or pool.stream (HTTP/2), or
//	                 connector.connect: the dialer (resolve, guard, dial) or a tunnel through the parent, then TLS
//	                 connector.adopt: a persistConn or an http2Conn
//	Conn.Send        persistConn: h1.WriteHead, and an upload on its own goroutine
//	                 streamConn, ftpConn: a pending goroutine around net/http or package ftp
//	Conn.Receive     the end of the body: pool.put
//
// A [Client] may be shared by any number of goroutines. It starts goroutines for idle
// connections, request bodies, HTTP/2 and FTP. Close ends those of idle connections; the
// others end with their requests.
package egress

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// maxTLSSessions is the maximum number of origins whose TLS session is kept for resumption.
const maxTLSSessions = 1024

// Options configure a Client. The zero Options connect to the public Internet alone, to
// the default ports, and use the system's resolver and roots.
type Options struct {
	// AllowPrivate are the addresses that are allowed although they are not public.
	AllowPrivate []netip.Prefix

	// Own are the addresses on which the proxy itself listens. They are never dialled, not even with AllowPrivate.
	Own []netip.AddrPort

	// Ports are the allowed ports; empty: DefaultPorts.
	Ports []PortRange

	// Resolver is host:port of a DNS server, which the guard does not check; "": the system's servers.
	Resolver string

	// Roots verify the certificates of origins and of an https parent; nil: the system's roots.
	Roots *x509.CertPool

	// Parent is the upstream proxy that all requests go through: http, https or socks5, with or without user and password; nil: none.
	Parent *url.URL

	// Environment names upstream proxies for some requests. It is ignored with a Parent.
	Environment Environment

	// Parents are upstream proxies like Parent, by the names that [Client.Through] takes; nil: none, so that connections lead to
	// origins. A name is not empty and has no password.
	Parents map[string]*url.URL

	// TLSMin is the oldest version of TLS that the Client speaks with origins, as in crypto/tls; zero: TLS 1.2.
	TLSMin uint16

	// OneAddress says that each host is dialled at one address at a time, which Address returns. It is ignored with a
	// Parent.
	OneAddress bool

	// Previous is the Client that the new one replaces. The new one takes over its pseudonym and its counts; nil: none.
	Previous *Client

	// DialTimeout is the total time for name resolution and TCP connection; zero: 10 s.
	DialTimeout time.Duration

	// TLSTimeout is the time for a TLS handshake; zero: 10 s.
	TLSTimeout time.Duration

	// HeaderTimeout is the time from the request (FTP: from the connection) to the head of the response; zero: 60 s.
	HeaderTimeout time.Duration

	// IdleTimeout is how long an idle connection is kept; zero: 90 s.
	IdleTimeout time.Duration

	// Retry is how long a failure to reach an origin is returned again without an attempt; zero: 30 s.
	Retry time.Duration

	// Rebind is how long the address of a name is used with OneAddress; zero: 5 minutes.
	Rebind time.Duration
}

// A Client connects to origins, keeps connections and sends requests. The zero Client
// refuses every address and port; create a Client with New.
type Client struct {
	connector

	// The upstream proxy, and the Client that connects to it and to nothing else; nil: none.
	parent   *parent
	toParent *Client

	// The Clients that reach some origins through upstream proxies; nil: none.
	routes *routes

	// The Clients of Options.Parents, by name; one of them may be this Client itself.
	named     map[string]*Client
	pseudonym string
	counters  *counters

	// reaching joins concurrent attempts of Reach, by endpoint.
	reaching singleflight.Group

	// mu guards the end of the Client: it is held to call cancel, which ends connector.ctx, and running.Add. running
	// counts the attempts of Reach.
	mu      sync.Mutex
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Direct reports whether connections for o lead to o, not to an upstream proxy.
func (c *Client) Direct(o robots.Origin) bool { return c.via(o).parent == nil }

// New checks o and makes a Client of it.
func New(o Options) (*Client, error) {
	g, err := newGuard(o.AllowPrivate, o.Ports, o.Own, o.Parent != nil)
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
	o.HeaderTimeout, o.IdleTimeout = cmp.Or(o.HeaderTimeout, time.Minute), cmp.Or(o.IdleTimeout, 90*time.Second)
	c := &Client{
		connector: connector{
			dialer: dialer{
				guard: g, resolver: resolver, server: o.Resolver, made: new(socket.Set),
				timeout: cmp.Or(o.DialTimeout, 10*time.Second),
			},
			tls: &tls.Config{
				RootCAs:            o.Roots,
				MinVersion:         cmp.Or(o.TLSMin, tls.VersionTLS12),
				ClientSessionCache: tls.NewLRUClientSessionCache(maxTLSSessions),
			},
			tlsTimeout:    cmp.Or(o.TLSTimeout, 10*time.Second),
			headerTimeout: o.HeaderTimeout,
			history:       newHistory(cmp.Or(o.Retry, 30*time.Second)),
			pool:          newPool(o.IdleTimeout),
			http2:         newHTTP2Transport(o.HeaderTimeout),
		},
		pseudonym: newPseudonym(),
		counters:  new(counters),
	}
	if o.Previous != nil {
		c.pseudonym, c.counters, c.made = o.Previous.pseudonym, o.Previous.counters, o.Previous.made
	}
	c.counter = &c.counters.origins
	if o.Parent != nil {
		if err := c.setParent(o); err != nil {
			return nil, fmt.Errorf("egress: upstream proxy: %w", err)
		}
	} else if o.OneAddress {
		c.bindings = newBindings(cmp.Or(o.Rebind, 5*time.Minute))
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if o.Parent == nil && !o.Environment.IsZero() {
		if c.routes, err = newRoutes(o, c); err != nil {
			c.Close()
			return nil, fmt.Errorf("environment: %w", err)
		}
	}
	if err := c.setNamed(o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// setParent makes c connect through o.Parent. The operator has chosen it, so it may have
// any address.
func (c *Client) setParent(o Options) error {
	p, err := newParent(o.Parent, c.pseudonym)
	if err != nil {
		return err
	}
	c.toParent, err = New(Options{
		AllowPrivate: prefixes("0.0.0.0/0", "::/0"), Ports: []PortRange{{p.origin.Port, p.origin.Port}},
		Resolver: o.Resolver, Roots: o.Roots,
		DialTimeout: o.DialTimeout, TLSTimeout: o.TLSTimeout, HeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout,
	})
	if err != nil {
		return err
	}
	c.toParent.counter, c.toParent.made = &c.counters.parent, c.made
	c.toParent.forwarder, c.toParent.pool.perHost = p, maxIdle
	p.connect, p.timeout = c.connectParent, c.toParent.timeout
	c.parent = p
	c.tunnel = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		return p.dial(ctx, host, port, &c.dialer)
	}
	return nil
}

// connectParent connects to the upstream proxy itself.
func (c *Client) connectParent(ctx context.Context) (net.Conn, error) {
	at := c.parent.origin
	if at.Scheme == "https" {
		return c.toParent.connect(ctx, endpoint{Origin: at}, true)
	}
	return c.toParent.dialCounted(ctx, at.Host, at.Port, netip.Addr{})
}

// Pseudonym returns the proxy's name in a Via field (RFC 9110 7.6.3). The name is unique, so
// that the proxy recognises a request that returns to it.
func (c *Client) Pseudonym() string { return c.pseudonym }

func newPseudonym() string {
	var b [4]byte
	// Read never fails (crypto/rand since Go 1.24).
	rand.Read(b[:])
	return fmt.Sprintf("robotsproxy-%x", b)
}

// Made reports whether c, or a Client that c has replaced, made the open connection from local to remote, which a firewall
// may have redirected back to the proxy. The local address is not enough: a crawler's connection can have the same one, if
// it goes to another remote address or comes from another network namespace. Made ignores the zone of remote; local must
// have none.
func (c *Client) Made(local, remote netip.AddrPort) bool { return c.made.Has(local, remote) }

// Stats returns the counts, including those of Options.Previous. It does not wait for a
// connection. Both Dialed maps contain every outcome.
func (c *Client) Stats() Stats {
	return Stats{Origins: c.counters.origins.peers(), Parent: c.counters.parent.peers()}
}

// Check returns an error if a dial to host and port is certain to be refused:
// ErrForbiddenPort, or ErrForbiddenAddr if host is an IP address (IPv6 without brackets).
// It does not use the network. The addresses of a name are checked when it is dialled;
// with an upstream proxy, the upstream proxy checks them.
func (c *Client) Check(host string, port uint16) error {
	if err := c.viaTLS(host, port).guard.check(host, port); err != nil {
		return fmt.Errorf("check %s: %w", hostPort(host, port), err)
	}
	return nil
}

// KnownAddress returns the address at which host is dialled now, without resolving its
// name. It returns the zero Addr if the address is not known, or without
// Options.OneAddress.
func (c *Client) KnownAddress(host string) netip.Addr { return c.addrFor(host, netip.Addr{}) }

// Address returns the one address at which o's host is dialled for the next few minutes,
// for [Client.At]. If it is not known yet, Address resolves the name and checks the
// addresses as a dial does, with the same errors. It returns the zero Addr without
// Options.OneAddress, and with an upstream proxy, which resolves names itself.
func (c *Client) Address(ctx context.Context, o robots.Origin) (netip.Addr, error) {
	if c = c.via(o); c.bindings == nil {
		return netip.Addr{}, nil
	}
	if err := c.Check(o.Host, o.Port); err != nil {
		return netip.Addr{}, err
	}
	if addr := c.KnownAddress(o.Host); addr.IsValid() {
		return addr, nil
	}
	err := c.history.failure(o)
	if _, unresolved := errors.AsType[*net.DNSError](err); unresolved {
		return netip.Addr{}, err
	}
	// The host is kept, and may be part of a long URL.
	o.Host = strings.Clone(o.Host)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	began := time.Now()
	addrs, err := c.resolve(ctx, o.Host)
	if err != nil {
		// The failure counts in place of the dial that it prevents.
		c.counter.dial(err)
		return netip.Addr{}, c.remember(o, began, newDialError(o.Host, o.Port, err))
	}
	return c.bindings.bind(o.Host, addrs), nil
}

// begin counts an attempt that Close waits for.
func (c *Client) begin() (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	c.running.Add(1)
	return c.running.Done, nil
}

// CloseIdle closes the idle connections, and later those that become idle. Call it when another Client has
// replaced this one.
func (c *Client) CloseIdle() {
	if c.pool == nil {
		return
	}
	c.pool.closeIdle()
	for _, other := range c.others() {
		other.CloseIdle()
	}
}

// Close ends the attempts of Reach and closes the idle connections, as CloseIdle does. Requests in flight
// continue. A new request that needs a connection fails.
func (c *Client) Close() {
	if c.pool == nil {
		return
	}
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.running.Wait()
	c.pool.close()
	for _, other := range c.others() {
		other.Close()
	}
}

// others returns the Clients that end with c.
func (c *Client) others() (all []*Client) {
	if c.toParent != nil {
		all = append(all, c.toParent)
	}
	if c.routes != nil {
		all = append(all, c.routes.all...)
	}
	for _, named := range c.named {
		if named != c {
			all = append(all, named)
		}
	}
	return all
}

// A Pinned is a [Client] that connects only to one address of a host, also with idle
// connections, whatever the name of the host resolves to now. Client.At creates one.
type Pinned struct {
	client *Client
	addr   netip.Addr
}

// At returns the Client pinned to an address that [Client.Address] has returned for the
// host of the requests. With the zero Addr it returns the Client itself.
func (c *Client) At(addr netip.Addr) Pinned { return Pinned{client: c, addr: addr} }
