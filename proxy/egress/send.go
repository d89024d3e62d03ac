package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

// A Pinned is a [Client] that connects only to one address of a host, also with idle
// connections, whatever the name of the host resolves to now. Client.At creates one.
type Pinned struct {
	client *Client
	addr   netip.Addr
	signer Signer // nil: requests are sent as they are
}

// At returns the Client pinned to an address that [Client.Address] has returned for the
// host of the requests. With the zero Addr it returns the Client itself.
func (c *Client) At(addr netip.Addr) Pinned { return Pinned{client: c, addr: addr} }

// A Signer signs requests.
type Signer interface {
	// Sign adds a signature to the header of r, in place of the one that it has added before. After an
	// error r is not sent.
	Sign(r *http.Request) error
}

// Signed returns p with a Signer of the requests that it sends. Each try of a request is signed anew,
// right before it is written. The header of the caller's request does not change.
func (p Pinned) Signed(by Signer) Pinned {
	p.signer = by
	return p
}

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
func (c *Client) Reach(ctx context.Context, o robots.Origin) error {
	return c.reach(ctx, endpoint{Origin: o})
}

// Reach is [Client.Reach].
func (p Pinned) Reach(ctx context.Context, o robots.Origin) error {
	return p.client.reach(ctx, endpoint{o, p.addr})
}

// Dial connects to host (a name, or an IP address without brackets) and port for a tunnel
// that is passed through. The connection is a *socket.Conn, so that copying between two
// of them needs no buffer. The exceptions are an upstream proxy with TLS, and one that
// has sent bytes behind its response.
func (c *Client) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return c.dialCounted(ctx, host, port, netip.Addr{})
}

// Dial is [Client.Dial].
func (p Pinned) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return p.client.dialCounted(ctx, host, port, p.addr)
}

// RoundTrip is [Client.Send] without a Gate; it makes a Client an http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.Send(r.Context(), r, nil)
}

// Send is [Pinned.Send] to any address of the host.
func (c *Client) Send(ctx context.Context, r *http.Request, g Gate) (*http.Response, error) {
	return c.At(netip.Addr{}).Send(ctx, r, g)
}

// Send sends one request to its origin when g permits it. A nil g always permits it. ctx
// replaces the context of r and must end when the response is no longer needed. Of the
// httptrace of ctx, only GetConn and GotConn are certain to be called. The Request of the
// response is r as it was sent, with the signature. Send fails with the error of g or of the
// Signer, with the errors that the package comment names, or with the cause of ctx. For an
// ftp URL that FTP cannot request, it fails with ftp.ErrPath or ftp.ErrMethod.
func (p Pinned) Send(ctx context.Context, r *http.Request, g Gate) (*http.Response, error) {
	s := &sending{gate: g, ctx: ctx, signer: p.signer, request: r}
	if p.signer != nil {
		own := *r
		own.Header = maps.Clone(r.Header)
		s.request = &own
	}
	for attempt := 1; ; attempt++ {
		resp, err := p.client.send(s.request, p.addr, s)
		if !p.addr.IsValid() && !hasBody(r) && errors.Is(err, ErrElsewhere) {
			resp, err = p.client.send(s.request, p.addr, s) // nothing was sent, and the caller did not choose the address that failed
		}
		err = s.finish(err)
		switch {
		case err == nil:
			resp.Request = s.request
			return checked(resp)
		case attempt == maxAttempts || !s.again(r):
			s.end(err)
			return nil, err
		}
	}
}

func (c *Client) send(r *http.Request, addr netip.Addr, s *sending) (*http.Response, error) {
	change := len(r.Header["Upgrade"]) > 0
	switch {
	case c.transport == nil:
		return nil, errClosed
	case r.URL.Scheme == "ftp":
		return c.sendFTP(r, addr, s)
	case c.parent.forwards(r.URL.Scheme) && !change: // a change of protocols needs a tunnel, even with http (RFC 6455 4.1)
		return c.parent.forward(s.traced(r), &c.dialer)
	}
	to, err := c.destination(s.ctx, r, addr)
	switch {
	case err != nil:
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	case change: // RFC 9113 8.6: HTTP/2 has no Upgrade
		return c.sendByTransport(c.http1, r, to, s)
	}
	resp, err := c.sendDirect(r, to, s)
	if err == errNotDirect {
		return c.sendByTransport(c.transport, r, to, s)
	}
	return resp, err
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
		if err := c.Reach(ctx, o); err != nil {
			return endpoint{}, err
		}
		if addr, err = c.Address(ctx, o); err != nil { // the host is bound now, unless Reach had nothing to do
			return endpoint{}, err
		}
	}
	return endpoint{o, addr}, nil
}

// sendFTP sends a request for an ftp URL.
func (c *Client) sendFTP(r *http.Request, addr netip.Addr, s *sending) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(s.ctx)
	var control net.Conn
	return ftp.RoundTrip(r.WithContext(s.ctx), ftp.Options{
		ByName: c.parent != nil, Timeout: c.headerTimeout, Sent: s.afterWrite,
		Dial: func(ctx context.Context, host string, port uint16) (net.Conn, error) {
			if control == nil {
				getConn(trace, hostPort(host, port))
			}
			conn, err := c.dialCounted(ctx, host, port, addr)
			if control == nil {
				control = conn
			}
			return conn, err
		},
		Ready: func(context.Context) error {
			gotConn(trace, httptrace.GotConnInfo{Conn: control})
			return s.connected(control, false)
		},
	})
}

// getConn calls GetConn of a caller's httptrace, which may be nil.
func getConn(trace *httptrace.ClientTrace, addr string) {
	if trace != nil && trace.GetConn != nil {
		trace.GetConn(addr)
	}
}

// gotConn calls GotConn of a caller's httptrace, which may be nil.
func gotConn(trace *httptrace.ClientTrace, got httptrace.GotConnInfo) {
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(got)
	}
}

// sendDirect sends r over HTTP/1.1 on this goroutine. A Transport needs two more for each
// connection. errNotDirect means that nothing was sent: r is not simple, or the origin speaks
// HTTP/2, or the Transport has an idle connection to it.
func (c *Client) sendDirect(r *http.Request, to endpoint, s *sending) (*http.Response, error) {
	if !simple(r) || c.parent != nil && c.parent.origin.Scheme == "https" { // TLS inside TLS cannot be peeked at
		return nil, errNotDirect
	}
	ctx := s.ctx
	trace := httptrace.ContextClientTrace(ctx)
	for first := true; ; first = false {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var conn *persistConn
		if first {
			conn = c.idle.take(to)
		}
		if conn == nil && (c.idle.transportHasIdle(to) || to.Scheme == "https" && c.history.isHTTP2(to.Origin)) {
			return nil, errNotDirect
		}
		s.begin()
		getConn(trace, r.URL.Host)
		if conn == nil {
			var err error
			if conn, err = c.newPersistConn(ctx, to); err != nil {
				return nil, err
			}
		}
		gotConn(trace, httptrace.GotConnInfo{Conn: conn.conn, Reused: conn.used})
		used := conn.used
		resp, err := conn.roundTrip(ctx, r, s, c.headerTimeout)
		lost, ok := err.(noResponseError)
		switch {
		case !ok || s.refused.Load() != nil:
			return resp, err
		case !used:
			return nil, lost.error // another new connection would probably fail in the same way
		}
	}
}

// simple reports whether r can be sent directly: it has no body and may be sent again
// (RFC 9110 9.2.2). It is false for requests that the Transport refuses.
func simple(r *http.Request) bool {
	if !idempotent(r.Method) || hasBody(r) || r.Header == nil {
		return false
	}
	if len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || len(r.Header["Expect"]) > 0 {
		return false
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return false
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	return true
}

// sendByTransport sends r over a connection of t. A target that begins with two slashes goes over one
// of HTTP/1.1: see originFormConn.
func (c *Client) sendByTransport(t *http.Transport, r *http.Request, to endpoint, s *sending) (*http.Response, error) {
	if s.extra = ""; strings.HasPrefix(r.URL.Opaque, "//") {
		t, s.extra = c.http1, r.URL.Scheme+"://"+r.URL.Host
	}
	http1 := to.Scheme == "http" || !c.history.isHTTP2(to.Origin)
	s.onIdle = nil
	if t == c.transport && http1 {
		at := to.clone()
		s.onIdle = func(conn *trackedConn, is bool) { c.idle.setTransportIdle(conn, at, s, is) }
	}
	sent := s.traced(r)
	sent.Close = sent.Close || t == c.transport && !http1 && headSize(r) > maxReusedHead
	if c.bindings != nil {
		// The Transport needs the address in the URL. The origin receives the same
		// request.
		u := *r.URL
		u.Host = pin(to)
		sent.URL, sent.Host = &u, cmp.Or(r.Host, r.URL.Host)
	}
	return t.RoundTrip(sent)
}

// maxReusedHead is the maximum length of a request head, in bytes, after which its HTTP/2
// connection is reused. net/http keeps buffers of three times the longest head as long as
// the connection lives. Few heads are longer than 2 KiB.
const maxReusedHead = 4 << 10

// headSize returns the approximate size of the head of r, in bytes.
func headSize(r *http.Request) int {
	n := len(r.URL.Host) + len(robots.PathQueryOf(r.URL))
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// checked returns resp, or closes it and returns the error of checkFields.
func checked(resp *http.Response) (*http.Response, error) {
	if err := checkFields(resp.Header); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// checkFields returns an error for a head with too many fields, or with a field name that trimNames
// cannot correct.
func checkFields(h http.Header) error {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	if n > maxFields {
		return errFieldCount
	}
	return trimNames(h)
}

// trimNames removes the white space before the colon from field names. RFC 9112 5.1
// requires that of a proxy, and net/http leaves it in the name. It returns an error if the
// name then concerns message framing, because net/http has ignored that field.
func trimNames(h http.Header) error {
	for name, values := range h {
		if strings.IndexByte(name, ' ') < 0 {
			continue
		}
		delete(h, name)
		switch name = http.CanonicalHeaderKey(strings.TrimRight(name, " ")); {
		case name == "Content-Length" || name == "Transfer-Encoding":
			return fmt.Errorf("the response has white space after %s", name)
		case strings.IndexByte(name, ' ') < 0: // otherwise it is not a valid name
			h[name] = append(h[name], values...)
		}
	}
	return nil
}
