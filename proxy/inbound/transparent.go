package inbound

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

const (
	// maxHello is the maximum number of bytes of a TLS ClientHello that are read; the estimate for a connection includes them.
	maxHello = longHead
	// maxMethod is the maximum length of an HTTP method, in bytes; longer ones are not recognised.
	maxMethod = 32
	// acceptRetry is the time until the next Accept after an error of the system.
	acceptRetry = 100 * time.Millisecond
)

// ErrConfined refuses a redirected connection that cannot be judged.
var (
	ErrConfined      = errors.New("redirected connection refused")
	errNotHTTP       = fmt.Errorf("%w: it carries neither HTTP nor TLS", ErrConfined)
	errNoBytes       = fmt.Errorf("%w: the client sent nothing", ErrConfined)
	errNotRedirected = fmt.Errorf("%w: it was not redirected: clients that use a proxy connect to the address in listen", ErrConfined)
)

// NameOf returns the name for an address, or "". The address keeps the name until release is called.
// If release is nil, it keeps it for good.
type NameOf func(netip.Addr) (name string, release func())

// ServeTransparent serves connections that a firewall redirects to l (redirect, dnat or tproxy of
// nftables), until Shutdown. The clients need not know of the proxy. A connection with TLS is
// served as if its client had sent a CONNECT to the server name of the TLS handshake. Requests
// without TLS name their origins in Host. If there is no name, the original destination is the
// origin. nameOf returns the name for an original destination; nil means that there are no names.
// Create l with [ListenTransparent]. [Server.Serve] must run at the same time. ServeTransparent may be
// called once.
//
// A connection that carries neither HTTP nor TLS, or goes to a port that is not allowed, is reset,
// and its Handler refuses it with ErrConfined.
func (s *Server) ServeTransparent(l net.Listener, nameOf NameOf) error {
	if nameOf == nil {
		nameOf = func(netip.Addr) (string, func()) { return "", nil }
	}
	limited := s.newListener(l)
	// Shutdown ends it.
	go func() {
		<-s.handoff.Closed()
		limited.Close()
	}()
	for {
		conn, err := limited.Accept()
		switch {
		case err == nil:
			c := conn.(*Conn)
			// No other code uses the connection yet.
			err := c.findDestination(limited.Addr(), nameOf)
			// It ends when it has removed c from s.hijacked.
			go s.serveRedirected(c, err)
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			select {
			case <-s.handoff.Closed():
			case <-time.After(acceptRetry):
			}
		}
	}
}

// findDestination determines the original destination of a redirected connection.
func (c *Conn) findDestination(listener net.Addr, nameOf NameOf) error {
	conn, ok := c.Conn.(*socket.Conn)
	if !ok {
		return errNotRedirected
	}
	addr, err := conn.OriginalDestination()
	if err != nil {
		return err
	}
	if addr == socket.AddrPort(c.LocalAddr()) && addr.Port() == socket.AddrPort(listener).Port() {
		return errNotRedirected
	}
	c.redirect = &redirect{addr: addr}
	c.redirect.name, c.redirect.release = nameOf(addr.Addr())
	return nil
}

// serveRedirected passes a redirected connection to the inner server, or resets it. err says why its
// destination is not known.
func (s *Server) serveRedirected(c *Conn, err error) {
	raw, ended := s.takeOver(c, nil, closeConn)
	if ended != nil {
		return
	}
	defer s.hijacked.Remove(raw)
	var conn *httpConn
	if err == nil {
		conn, err = s.identify(c)
	}
	if err == nil && s.handoff.Give(conn, nil) {
		return
	}
	if errors.Is(err, ErrConfined) || errors.Is(err, ErrLoop) || errors.Is(err, ErrMalformed) {
		refusal := Refusal{Silent: true, Err: err}
		if c.redirect != nil {
			refusal.Sent = c.redirect.String()
		}
		c.handler.Refuse(refusal)
	} else {
		s.counts.unused.Add(1)
	}
	reset(c)
}

// identify determines whether a redirected connection carries HTTP or TLS, and prepares it for the
// inner server.
func (s *Server) identify(c *Conn) (*httpConn, error) {
	rules := s.o.Rules()
	if err := rules.CheckPort(c.redirect.host(), c.redirect.addr.Port()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfined, err)
	}
	// Twice the time, because browsers connect before they need it.
	if err := c.SetReadDeadline(time.Now().Add(2 * s.o.HeadTimeout)); err != nil {
		return nil, err
	}
	secure, serverName, err := peekProtocol(c.Conn.(*socket.Conn))
	if err != nil {
		return nil, err
	}
	// The local address of a connection is known only after it is made.
	if rules.IsOwn(socket.AddrPort(c.RemoteAddr()), c.redirect.addr) {
		return nil, ErrLoop
	}
	inner := s.newHTTPConn(c)
	if secure {
		inner.connect, err = connectFor(c.redirect, serverName)
	}
	return inner, errors.Join(err, c.SetReadDeadline(time.Time{}))
}

// peekProtocol waits until the first bytes of a connection show what it carries, and does not
// consume them. It returns false for HTTP without TLS.
func peekProtocol(c *socket.Conn) (secure bool, serverName string, err error) {
	b := make([]byte, 512)
	for n := 0; ; {
		n, err = c.Peek(b, n)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && n == 0:
			return false, "", errNoBytes
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, "", errNotHTTP
		case err != nil:
			return false, "", err
		}
		if b[0] != tlsHandshake {
			if is, certain := isRequestLine(b[:n]); is {
				return false, "", nil
			} else if certain {
				return false, "", errNotHTTP
			}
			continue
		}
		if serverName, whole := parseClientHello(b[:n]); whole {
			return true, serverName, nil
		}
		if n == maxHello {
			return false, "", errNotHTTP
		}
		if n == len(b) {
			// All bytes are still in the socket.
			b, n = make([]byte, min(4*len(b), maxHello)), 0
		}
	}
}

// isRequestLine reports whether b begins with a method of HTTP and a request target (RFC 9112 3),
// or with the preface of HTTP/2. certain is false if b is too short to tell.
func isRequestLine(b []byte) (is, certain bool) {
	method, target, found := strings.Cut(string(b[:min(len(b), maxMethod+len(" http"))]), " ")
	if !httpguts.ValidHeaderFieldName(method) || len(method) > maxMethod {
		return false, true
	}
	if !found || target == "" {
		return false, false
	}
	const absolute = "http"
	begun := strings.ToLower(target[:min(len(target), len(absolute))])
	switch {
	case target[0] == '/', target[0] == '*', method == http.MethodConnect:
		return true, true
	case begun == absolute:
		return true, true
	}
	return false, !strings.HasPrefix(absolute, begun)
}

// parseClientHello returns the server name in the ClientHello at the beginning of b, or "". whole is false
// if b contains only part of it. An unreadable ClientHello has no name; its handshake fails later.
func parseClientHello(b []byte) (serverName string, whole bool) {
	known := errors.New("the ClientHello is known")
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		serverName = hello.ServerName
		return nil, known
	}}
	err := tls.Server(&helloConn{in: bytes.NewReader(b)}, config).Handshake()
	return serverName, !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// A helloConn is a connection of which only the beginning exists.
type helloConn struct {
	// Conn is nil: the handshake calls only Read and Write.
	net.Conn
	in *bytes.Reader
}

func (c *helloConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *helloConn) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// connectFor returns the CONNECT that the client of a redirected TLS connection would send to a proxy.
func connectFor(r *redirect, serverName string) (string, error) {
	o, err := robots.ParseOrigin("https", cmp.Or(r.name, serverName, r.String()))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	o.Port = r.addr.Port()
	return fmt.Sprintf("CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", o.Addr()), nil
}
