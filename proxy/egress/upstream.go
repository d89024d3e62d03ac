package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"robotsproxy/robots"
)

// maxConnectHead is the maximum length of the head of the upstream proxy's response to
// CONNECT, in bytes.
const maxConnectHead = 16 << 10

// A parent is the upstream proxy that all requests go through. It resolves the names of
// origins. None of its errors and messages contains its password.
type parent struct {
	// The scheme, the host and the port, for messages.
	name string

	// The origin of the upstream proxy itself; its scheme is https if the connection to it uses TLS.
	origin robots.Origin

	// socks says that it speaks SOCKS5; otherwise HTTP.
	socks bool

	// The Proxy-Authorization field of a request to an HTTP proxy; "": none.
	login string

	// The message that logs in to a SOCKS5 proxy (RFC 1929 2); nil: there is no user.
	socksLogin []byte

	// The Via field of CONNECT.
	via string

	// connect connects to the upstream proxy itself; setParent sets it, with the timeout of a tunnel.
	connect func(ctx context.Context) (net.Conn, error)
	timeout time.Duration
}

// newParent creates a parent from its URL. No error contains the credentials.
func newParent(u *url.URL, pseudonym string) (*parent, error) {
	p := &parent{via: "1.1 " + pseudonym}
	scheme, hostport := u.Scheme, u.Host
	switch u.Scheme {
	case "http", "https":
	case "socks5", "socks5h":
		// With both schemes the proxy gets names, not addresses.
		p.socks, scheme = true, "http"
		if u.Port() == "" && u.Hostname() != "" {
			// RFC 1928 3.
			hostport = net.JoinHostPort(u.Hostname(), "1080")
		}
	default:
		return nil, errors.New("the scheme must be http, https or socks5")
	}
	var err error
	if p.origin, err = robots.ParseOrigin(scheme, hostport); err != nil {
		return nil, err
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL must end after the host and the port")
	}
	p.name = u.Scheme + "://" + p.origin.Addr()
	return p, p.setUser(u.User)
}

// setUser sets the credentials; nil: none.
func (p *parent) setUser(user *url.Userinfo) error {
	if user == nil {
		return nil
	}
	name := user.Username()
	password, _ := user.Password()
	switch {
	case name == "":
		return errors.New("the user name is empty")
	case p.socks && max(len(name), len(password)) > maxSocksField:
		return fmt.Errorf("the user name or password is longer than %d bytes, the limit of SOCKS5", maxSocksField)
	case !p.socks && strings.Contains(name, ":"):
		// RFC 7617 2.
		return errors.New("the user name contains a colon")
	}
	p.login = "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
	p.socksLogin = append([]byte{socksAuthForm, byte(len(name))}, name...)
	p.socksLogin = append(append(p.socksLogin, byte(len(password))), password...)
	return nil
}

// fault marks err as an error of the upstream proxy itself.
func (p *parent) fault(err error) error {
	return fmt.Errorf("%w: %s: %w", ErrParent, p.name, err)
}

// forwards reports whether requests with a scheme are sent to the upstream proxy in
// absolute form (RFC 9112 3.2.2): many upstream proxies permit tunnels only to port 443.
func (p *parent) forwards(scheme string) bool {
	return p != nil && !p.socks && scheme == "http"
}

// forwarding returns the target of a request in the form in which it is sent, and the line of the
// credentials: in absolute form and with them if p forwards it (RFC 9112 3.2.2). p may be nil.
func (p *parent) forwarding(r *http.Request) (target, login string) {
	target = robots.PathQueryOf(r.URL)
	if p == nil {
		return target, ""
	}
	if target == "*" {
		// It means the whole origin (RFC 9112 3.2.4).
		target = ""
	}
	if p.login != "" {
		login = "Proxy-Authorization: " + p.login + "\r\n"
	}
	return r.URL.Scheme + "://" + r.URL.Host + target, login
}

var errCredentials = errors.New("credentials missing or rejected (status 407)")

// forwardable checks the destination of a request that the upstream proxy forwards. A response by the upstream
// proxy itself cannot be told from the origin's, except 407, which is about the proxy's credentials (RFC 9110
// 15.5.8).
func forwardable(r *http.Request, d *dialer) error {
	// The request line must not name another host than the Host field.
	if r.Host != "" && r.Host != r.URL.Host {
		return errors.New("the request names another host than its destination")
	}
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return err
	}
	if err := d.check(o.Host, o.Port); err != nil {
		return fmt.Errorf("request to %s: %w", o.Addr(), err)
	}
	return nil
}

// dial connects to an origin by a tunnel through the upstream proxy, which resolves the
// name. d checks the destination.
func (p *parent) dial(ctx context.Context, host string, port uint16, d *dialer) (conn net.Conn, err error) {
	// Send only a name or an address, never "127.1" or a line end, and check it in the
	// form that is sent.
	var o robots.Origin
	if err = d.check(host, port); err == nil {
		if o, err = robots.ParseOrigin("https", hostPort(host, port)); err == nil {
			err = d.guard.check(o.Host, o.Port)
		}
	}
	if err == nil {
		conn, err = p.tunnel(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s through the upstream proxy: %w", hostPort(host, port), err)
	}
	return conn, nil
}

// tunnel makes a tunnel to o. Without TLS to the upstream proxy it returns the *socket.Conn itself.
func (p *parent) tunnel(ctx context.Context, o robots.Origin) (net.Conn, error) {
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, p.fault(err)
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	// The deadline ends reads and writes.
	stop := context.AfterFunc(limited, func() { conn.SetDeadline(longAgo) })
	if p.socks {
		err = p.connectSocks(conn, o)
	} else {
		err = p.connectHTTP(conn, o)
	}
	if !stop() && err == nil {
		err = os.ErrDeadlineExceeded
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// A byteReader reads one byte at a time, so that a reader with a buffer reads no byte that it does not need.
type byteReader struct{ io.Reader }

func (r byteReader) Read(b []byte) (int, error) { return r.Reader.Read(b[:min(len(b), 1)]) }

// connectHTTP turns conn into a tunnel to o by CONNECT (RFC 9110 9.3.6). It reads no byte beyond the response,
// because the origin's bytes follow.
func (p *parent) connectHTTP(conn net.Conn, o robots.Origin) error {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: o.Addr()}, Host: o.Addr(), Header: http.Header{
		"Via": {p.via},
		// There is no User-Agent: only the origin learns that of the client.
		"User-Agent": {""},
	}}
	if p.login != "" {
		r.Header["Proxy-Authorization"] = []string{p.login}
	}
	if err := r.Write(conn); err != nil {
		return p.fault(err)
	}
	from := bufio.NewReader(io.LimitReader(byteReader{conn}, maxConnectHead))
	resp, err := http.ReadResponse(from, r)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		// RFC 9110 15.2: the final response follows.
		resp, err = http.ReadResponse(from, r)
	}
	if err != nil {
		return p.noReply(err)
	}
	switch status := resp.StatusCode; status {
	case http.StatusProxyAuthRequired:
		return p.fault(errCredentials)
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return fmt.Errorf("%w: %s: status %d", ErrBeyondParent, p.name, status)
	case http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s: status %d: %w", ErrBeyondParent, p.name, status, os.ErrDeadlineExceeded)
	default:
		if status/100 != 2 {
			return p.fault(fmt.Errorf("unexpected status %d in response to CONNECT", status))
		}
	}
	return nil
}

// noReply distinguishes an upstream proxy that does not reply in time, probably because
// it waits for the origin, from one that closes the connection or does not speak the
// protocol.
func (p *parent) noReply(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no CONNECT response for %s: %w", p.name, err)
	}
	return p.fault(err)
}

// SOCKS5 is RFC 1928, with RFC 1929 for user and password. It is implemented here because
// golang.org/x/net/proxy returns a server's reply only as text, and the reply tells
// whether the origin or the upstream proxy has failed.
const (
	socksVersion   = 5
	socksNoAuth    = 0
	socksPassword  = 2
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksSucceeded = 0
	socksAuthForm  = 1   // the version number of RFC 1929
	maxSocksField  = 255 // the maximum length of a name, user or password, in bytes
)

// socksReplies are the replies of RFC 1928 6. Those from 3 to 6 say that the origin could not be reached, the others that the
// upstream proxy has failed.
var socksReplies = []string{
	1: "general failure",
	2: "not allowed by its rules",
	3: "network unreachable",
	4: "host unreachable",
	5: "connection refused",
	6: "TTL expired",
	7: "command not supported",
	8: "address type not supported",
}

// connectSocks turns conn into a tunnel to o. It reads no byte beyond the server's reply,
// because the origin's bytes follow.
func (p *parent) connectSocks(conn net.Conn, o robots.Origin) error {
	if err := p.authenticateSocks(conn); err != nil {
		return p.fault(err)
	}
	if _, err := conn.Write(append([]byte{socksVersion, socksConnect, 0}, socksAddress(o)...)); err != nil {
		return p.fault(err)
	}
	// The version, the reply, 0, the type of the address, and its first byte.
	var head [5]byte
	if _, err := io.ReadFull(conn, head[:2]); err != nil {
		return p.noReply(err)
	}
	switch reply := int(head[1]); {
	case head[0] != socksVersion:
		return p.fault(errNotSocks)
	case reply == socksSucceeded:
	case 3 <= reply && reply <= 6:
		return fmt.Errorf("%w: %s: %s", ErrBeyondParent, p.name, socksReplies[reply])
	case reply < len(socksReplies):
		return p.fault(errors.New(socksReplies[reply]))
	default:
		return p.fault(fmt.Errorf("reply %d", reply))
	}
	if _, err := io.ReadFull(conn, head[2:]); err != nil {
		return p.fault(err)
	}
	rest := map[byte]int{socksIPv4: 4, socksIPv6: 16, socksName: 1 + int(head[4])}[head[3]]
	if rest == 0 {
		return p.fault(errNotSocks)
	}
	// The port follows the address.
	if _, err := io.CopyN(io.Discard, conn, int64(rest-1+2)); err != nil {
		return p.fault(err)
	}
	return nil
}

var errNotSocks = errors.New("not a SOCKS5 server")

// authenticateSocks sends the user and password, if the server asks for them.
func (p *parent) authenticateSocks(conn net.Conn) error {
	hello := []byte{socksVersion, 1, socksNoAuth}
	if p.socksLogin != nil {
		hello = []byte{socksVersion, 2, socksNoAuth, socksPassword}
	}
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var reply [2]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	switch {
	case reply[0] != socksVersion:
		return errNotSocks
	case reply[1] == socksNoAuth:
		return nil
	case reply[1] != socksPassword || p.socksLogin == nil:
		return errors.New("no acceptable authentication method")
	}
	if _, err := conn.Write(p.socksLogin); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	if reply[1] != socksSucceeded {
		return errors.New("credentials rejected")
	}
	return nil
}

// socksAddress returns o in the form of a SOCKS5 request. A name stays a name; it has at most 253 bytes: see
// robots.ParseOrigin.
func socksAddress(o robots.Origin) []byte {
	kind, host := byte(socksName), append([]byte{byte(len(o.Host))}, o.Host...)
	if addr, err := netip.ParseAddr(o.Host); err == nil {
		kind, host = socksIPv6, addr.AsSlice()
		if addr.Is4() {
			kind = socksIPv4
		}
	}
	return binary.BigEndian.AppendUint16(append([]byte{kind}, host...), o.Port)
}
