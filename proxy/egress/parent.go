package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"robotsproxy/robots"
)

// ErrParent marks what the parent proxy itself failed at, or refused us: no
// origin is to blame for it, and nothing is learnt of one by it.
var ErrParent = errors.New("the parent proxy does not serve")

// ErrBeyondParent marks an origin that the parent proxy says it cannot reach.
var ErrBeyondParent = errors.New("the parent proxy cannot reach the origin")

// maxConnectHead bounds, in octets, the head of a parent's answer to CONNECT.
const maxConnectHead = 16 << 10

// A parent is the proxy that all goes out through. What names mean is its
// business. Its password stays in here: nothing that it says of itself has it.
type parent struct {
	name   string        // for messages: scheme, host and port
	at     robots.Origin // where it is; https where the connection to it is TLS
	socks  bool          // SOCKS5; else HTTP
	user   *url.Userinfo // nil: none
	via    string        // what CONNECT says of who asks
	client *Client       // to the parent and nowhere else
}

// everywhere: whoever runs the proxy chose the parent, so it may be at any address.
var everywhere = prefixes("0.0.0.0/0", "::/0")

// newParent makes what leads to o.Parent. No error of it has the credentials.
func newParent(o Options, pseudonym string) (*parent, error) {
	u := o.Parent
	p := &parent{user: u.User, via: "1.1 " + pseudonym}
	scheme, hostport := u.Scheme, u.Host
	switch u.Scheme {
	case "http", "https":
	case "socks5", "socks5h": // with either it is handed names
		p.socks, scheme = true, "http"
		if u.Port() == "" && u.Hostname() != "" {
			hostport = net.JoinHostPort(u.Hostname(), "1080") // RFC 1928 3
		}
	default:
		return nil, errors.New("its scheme is none of http, https and socks5")
	}
	var err error
	if p.at, err = robots.ParseOrigin(scheme, hostport); err != nil {
		return nil, err
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("more stands behind its host than a port")
	}
	if err := p.checkUser(); err != nil {
		return nil, err
	}
	p.name = u.Scheme + "://" + p.at.Addr()
	p.client, err = New(Options{
		AllowPrivate: everywhere, Ports: []PortRange{{p.at.Port, p.at.Port}}, Resolver: o.Resolver, Roots: o.Roots,
		DialTimeout: o.DialTimeout, TLSTimeout: o.TLSTimeout, HeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout,
	})
	if err != nil {
		return nil, err
	}
	p.forwardOnly()
	return p, nil
}

func (p *parent) checkUser() error {
	if p.user == nil {
		return nil
	}
	password, _ := p.user.Password()
	switch name := p.user.Username(); {
	case name == "":
		return errors.New("its user has no name")
	case p.socks && max(len(name), len(password)) > maxSocksField:
		return fmt.Errorf("its user or password is longer than the %d octets of SOCKS5", maxSocksField)
	case !p.socks && strings.Contains(name, ":"): // RFC 7617 2
		return errors.New("its user has a colon in the name")
	}
	return nil
}

// forwardOnly makes the client's Transport for HTTP/1.1 one that sends everything
// to the parent, in absolute form. It shares its connections among all origins.
func (p *parent) forwardOnly() {
	t := p.client.http1
	t.MaxIdleConnsPerHost = maxIdle
	t.Proxy = http.ProxyURL(&url.URL{Scheme: p.at.Scheme, Host: p.at.Addr(), User: p.user})
	plain, secure := t.DialContext, t.DialTLSContext
	blamed := func(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, p.fault(err)
			}
			return conn, nil
		}
	}
	t.DialContext, t.DialTLSContext = blamed(plain), blamed(secure)
}

// fault makes err one of the parent's own.
func (p *parent) fault(err error) error {
	return fmt.Errorf("%w: %s: %w", ErrParent, p.name, err)
}

// forwards says whether requests of a scheme go to the parent as they are, in
// absolute form (RFC 9112 3.2.2): many parents make tunnels to port 443 alone.
func (p *parent) forwards(scheme string) bool {
	return p != nil && !p.socks && scheme == "http"
}

// forward is RoundTrip for what the parent forwards. What the parent answers
// in the origin's place cannot be told from the origin's own answers, but for
// 407, which is about our credentials with the parent (RFC 9110 15.5.8).
func (d *Client) forward(r *http.Request) (*http.Response, error) {
	if err := d.forwardable(r); err != nil {
		if r.Body != nil {
			r.Body.Close() // as an http.RoundTripper must
		}
		return nil, err
	}
	resp, err := d.parent.client.http1.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired {
		resp.Body.Close()
		return nil, d.parent.fault(errCredentials)
	}
	return resp, err
}

var errCredentials = errors.New("it does not take our credentials, or wants some (407)")

// forwardable judges where a request goes that nobody here connects for.
func (d *Client) forwardable(r *http.Request) error {
	if d.isClosed() {
		return errClosed
	}
	// The Host field of a request becomes a part of its absolute form.
	if r.URL.Opaque != "" || r.Host != "" && r.Host != r.URL.Host {
		return errors.New("the request names another host than it is for")
	}
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return err
	}
	if err := d.guard.check(o.Host, o.Port); err != nil {
		return fmt.Errorf("request to %s: %w", o.Addr(), err)
	}
	return nil
}

// through connects to an origin by a tunnel of the parent's. The name is the
// parent's to resolve.
func (d *Client) through(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if err := d.guard.check(host, port); err != nil {
		return nil, err
	}
	if d.isClosed() {
		return nil, errClosed
	}
	// Nothing but a name or an address goes to the parent: no "127.1", no line
	// end; and it is judged as it goes.
	o, err := robots.ParseOrigin("https", hostPort(host, port))
	if err == nil {
		err = d.guard.check(o.Host, o.Port)
	}
	if err != nil {
		return nil, err
	}
	return d.parent.tunnel(ctx, o)
}

// tunnel gives a connection to o: to a parent without TLS the *socket.Conn
// itself, unless the parent sent octets right behind its answer.
func (p *parent) tunnel(ctx context.Context, o robots.Origin) (net.Conn, error) {
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, p.fault(err)
	}
	limited, cancel := context.WithTimeout(ctx, p.client.dialTimeout)
	defer cancel()
	stop := context.AfterFunc(limited, func() { conn.SetDeadline(longAgo) }) // what waits for it fails
	var ahead []byte
	if p.socks {
		err = p.askSocks(conn, o)
	} else {
		ahead, err = p.ask(conn, o)
	}
	if !stop() && err == nil {
		err = os.ErrDeadlineExceeded
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	switch {
	case err != nil:
		conn.Close()
		return nil, err
	case len(ahead) > 0:
		return &aheadConn{conn, ahead}, nil
	}
	return conn, nil
}

// connect makes a connection to the parent itself.
func (p *parent) connect(ctx context.Context) (net.Conn, error) {
	if p.at.Scheme == "https" {
		return p.client.connect(ctx, p.at, netip.Addr{}, protocols{http11})
	}
	return p.client.Dial(ctx, p.at.Host, p.at.Port)
}

// ask makes conn a tunnel to o by CONNECT (RFC 9110 9.3.6), and gives what the
// parent sent behind its answer.
func (p *parent) ask(conn net.Conn, o robots.Origin) (ahead []byte, err error) {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: o.Addr()}, Host: o.Addr(), Header: http.Header{
		"Via":        {p.via},
		"User-Agent": {""}, // none: who asks is the origin's business
	}}
	if p.user != nil {
		password, _ := p.user.Password()
		r.Header["Proxy-Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(p.user.Username()+":"+password))}
	}
	if err := r.Write(conn); err != nil {
		return nil, p.fault(err)
	}
	from := bufio.NewReader(io.LimitReader(conn, maxConnectHead))
	resp, err := http.ReadResponse(from, r)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(from, r) // RFC 9110 15.2: the answer is yet to come
	}
	if err != nil {
		return nil, p.unanswered(err)
	}
	switch status := resp.StatusCode; status {
	case http.StatusProxyAuthRequired:
		return nil, p.fault(errCredentials)
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%w: %s: status %d", ErrBeyondParent, p.name, status)
	case http.StatusGatewayTimeout:
		return nil, fmt.Errorf("%w: %s: status %d: %w", ErrBeyondParent, p.name, status, os.ErrDeadlineExceeded)
	default:
		if status < 200 || status > 299 {
			return nil, p.fault(fmt.Errorf("it answers CONNECT with status %d", status))
		}
	}
	return from.Peek(from.Buffered())
}

// unanswered tells a parent that is silent, because it waits for the origin
// itself as far as can be told, from one that breaks off or talks nonsense.
func (p *parent) unanswered(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s does not say whether it can reach it: %w", p.name, err)
	}
	return p.fault(err)
}

// An aheadConn is a connection of which some octets have been read already.
type aheadConn struct {
	net.Conn
	ahead []byte
}

func (c *aheadConn) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// CloseWrite ends what we send and leaves the other direction open.
func (c *aheadConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite is conn's CloseWrite; all connections to a parent have one.
func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Names that a parent would take for itself or for what stands beside it, and
// the address whose permission they need.
var (
	loopbackAddr = netip.MustParseAddr("127.0.0.1")
	metadataAddr = netip.MustParseAddr("169.254.169.254")
	meantByName  = map[string]netip.Addr{
		"localhost":                loopbackAddr, // RFC 6761 6.3
		"localhost.localdomain":    loopbackAddr, // in the hosts file of many systems, as are the next
		"ip6-localhost":            loopbackAddr,
		"ip6-loopback":             loopbackAddr,
		"metadata.google.internal": metadataAddr, // Google Cloud
		"metadata.goog":            metadataAddr, // the same
		"metadata":                 metadataAddr, // the same, by its search list
		"instance-data":            metadataAddr, // AWS
	}
)

// meantBy gives the address that everybody knows a name to mean; the zero Addr
// where only a resolver can tell.
func meantBy(host string) netip.Addr {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if strings.HasSuffix(host, ".localhost") { // RFC 6761 6.3
		return loopbackAddr
	}
	return meantByName[host]
}
