package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

// A Pinned is a [Client] that connects to one address of a host and to nothing else, with
// idle connections too, whatever the host's name resolves to by then. Client.At makes one.
type Pinned struct {
	client *Client
	addr   netip.Addr
}

// At returns the Client pinned to an address of the host that requests will be sent to, as
// [Client.Address] has returned it. With the zero Addr it is the Client itself.
func (c *Client) At(addr netip.Addr) Pinned { return Pinned{c, addr} }

// Reach makes sure that o can be connected to: with TCP, and for https with a
// TLS handshake and a verified certificate. The connection is kept for a short
// while and the next RoundTrip to o uses it, so that o sees only one. Reach does
// nothing if a connection to o is open or was made within the last 30 seconds, or
// if a parent forwards requests to o. Concurrent callers share one attempt, which
// goes on when one of them leaves. Its failure is a [RetryError], and is returned to
// all callers within Options.Retry. A failure of the parent itself (ErrParent) is not
// remembered, because it says nothing about o.
//
// Two failures are not returned, because a client may still be served in its tunnel:
// a peer that does not speak TLS (the client may not either), and, if o's host is
// an IP address, a peer that has a certificate for another name or needs a name
// in the SNI (the client may send one).
func (c *Client) Reach(ctx context.Context, o robots.Origin) error {
	return c.reach(ctx, endpoint{Origin: o})
}

// Reach is [Client.Reach].
func (p Pinned) Reach(ctx context.Context, o robots.Origin) error {
	return p.client.reach(ctx, endpoint{o, p.addr})
}

// Dial connects to host (a name, or an IP address without brackets) and port for a tunnel
// that is passed through. The connection is a *socket.Conn, so that copying from one to
// another needs no buffer of ours, unless it goes through a parent that TLS is spoken to,
// or that has sent bytes ahead.
func (c *Client) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return c.dialCounted(ctx, host, port, netip.Addr{})
}

// Dial is [Client.Dial].
func (p Pinned) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return p.client.dialCounted(ctx, host, port, p.addr)
}

// RoundTrip sends one request to its origin; it is an http.RoundTripper. The
// caller's httptrace has to ask a [Tries] of its own about each connection. A
// request for an ftp URL is ftp.ErrPath or ftp.ErrMethod if FTP has no such
// request.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.At(netip.Addr{}).RoundTrip(r)
}

// RoundTrip is [Client.RoundTrip].
func (p Pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.client.send(r, p.addr)
	if !p.addr.IsValid() && (r.Body == nil || r.Body == http.NoBody) && errors.Is(err, ErrElsewhere) {
		resp, err = p.client.send(r, p.addr) // nothing was sent, and the caller did not choose the address that failed
	}
	if err != nil {
		return nil, err
	}
	if err := checkFields(resp.Header); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

func (c *Client) send(r *http.Request, addr netip.Addr) (*http.Response, error) {
	change := len(r.Header["Upgrade"]) > 0
	switch {
	case c.transport == nil:
		return nil, errClosed
	case r.URL.Scheme == "ftp":
		return c.sendFTP(r, addr)
	case c.parent.forwards(r.URL.Scheme) && !change: // a change of protocols needs a tunnel, also from http (RFC 6455 4.1)
		return c.parent.forward(r, &c.dialer)
	}
	to, err := c.destination(r, addr)
	switch {
	case err != nil:
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	case change: // RFC 9113 8.6: HTTP/2 has no Upgrade
		return c.sendByTransport(c.http1, r, to)
	}
	resp, err := c.sendDirect(r, to)
	if err == errNotDirect {
		return c.sendByTransport(c.transport, r, to)
	}
	return resp, err
}

// destination returns the endpoint that r is sent to. If each host has one address, that is
// addr, else the address that the host is bound to, else the first one that a connection
// is made to.
func (c *Client) destination(r *http.Request, addr netip.Addr) (endpoint, error) {
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil || c.bindings == nil {
		return endpoint{Origin: o}, err
	}
	addr = c.addrFor(o.Host, addr)
	if !addr.IsValid() {
		if err := c.Reach(r.Context(), o); err != nil {
			return endpoint{}, err
		}
		if addr, err = c.Address(r.Context(), o); err != nil { // it is bound by now, unless Reach had nothing to do
			return endpoint{}, err
		}
	}
	return endpoint{o, addr}, nil
}

// sendFTP sends a request for an ftp URL, and calls GetConn, GotConn and WroteHeaders of its httptrace.
func (c *Client) sendFTP(r *http.Request, addr netip.Addr) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	if trace == nil {
		trace = new(httptrace.ClientTrace)
	}
	var control net.Conn
	o := ftp.Options{ByName: c.parent != nil, Timeout: c.headerTimeout, Sent: trace.WroteHeaders}
	o.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		if control != nil {
			return c.dialCounted(ctx, host, port, addr)
		}
		if trace.GetConn != nil {
			trace.GetConn(hostPort(host, port))
		}
		conn, err := c.dialCounted(ctx, host, port, addr)
		control = conn
		return conn, err
	}
	if trace.GotConn != nil {
		o.Ready = func(context.Context) error {
			trace.GotConn(httptrace.GotConnInfo{Conn: control})
			return nil
		}
	}
	return ftp.RoundTrip(r, o)
}

// sendDirect sends r over HTTP/1.1 on this goroutine, where a Transport has two more for each
// connection. Of r's httptrace it calls GetConn, GotConn, Got1xxResponse and what
// http.Request.Write does. With errNotDirect nothing was sent: r is not simple, or the
// origin speaks HTTP/2, or the Transport has an idle connection to it.
func (c *Client) sendDirect(r *http.Request, to endpoint) (*http.Response, error) {
	if !simple(r) || c.parent != nil && c.parent.origin.Scheme == "https" { // TLS inside of TLS cannot be peeked at
		return nil, errNotDirect
	}
	ctx := r.Context()
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
		if trace != nil && trace.GetConn != nil {
			trace.GetConn(r.URL.Host)
		}
		if conn == nil {
			var err error
			if conn, err = c.newPersistConn(ctx, to); err != nil {
				return nil, err
			}
		}
		used := conn.used
		resp, err := conn.roundTrip(r, trace, c.headerTimeout)
		lost, ok := err.(noResponseError)
		switch {
		case !ok:
			return resp, err
		case !used:
			return nil, lost.error // another new connection would hardly do better
		}
	}
}

// simple reports whether r can be sent directly: it has no body, and may be sent again
// (RFC 9110 9.2.2). It is false for what the Transport refuses.
func simple(r *http.Request) bool {
	if !idempotent(r.Method) || r.Body != nil && r.Body != http.NoBody || r.Header == nil || r.URL.Opaque != "" {
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

// idempotent reports whether a request with a method may be sent again, as net/http sees it
// (RFC 9110 9.2.2).
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// sendByTransport sends r over a connection of t.
func (c *Client) sendByTransport(t *http.Transport, r *http.Request, to endpoint) (*http.Response, error) {
	sent := r
	switch {
	case t != c.transport:
	case to.Scheme == "http" || !c.history.isHTTP2(to.Origin):
		sent = r.WithContext(httptrace.WithClientTrace(r.Context(), c.idleTrace(to.clone())))
	case headSize(r) > maxReusedHead:
		sent = r.WithContext(r.Context())
		sent.Close = true
	}
	if c.bindings != nil {
		sent = pinnedRequest(sent, to)
	}
	resp, err := t.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	resp.Request = r
	return resp, nil
}

// idleTrace notes which HTTP/1.1 connections of the Transport are idle.
func (c *Client) idleTrace(to endpoint) *httptrace.ClientTrace {
	var conn *trackedConn
	return &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if conn = tracked(got.Conn); conn != nil {
				c.idle.setTransportIdle(conn, to, false)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil && conn != nil {
				c.idle.setTransportIdle(conn, to, true)
			}
		},
	}
}

// maxReusedHead bounds, in bytes, the head of a request after which its HTTP/2 connection is
// reused. net/http keeps the buffers of a connection at the size that the longest request
// head made them, three times that head. Few heads are longer than 2 KiB.
const maxReusedHead = 4 << 10

// headSize returns the approximate size of the head of r, in bytes.
func headSize(r *http.Request) int {
	n := len(r.URL.Host) + len(r.URL.RawPath) + len(r.URL.Path) + len(r.URL.RawQuery)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// pinnedRequest returns r in the form in which a Transport sends it to one address. The
// origin receives the same request.
func pinnedRequest(r *http.Request, to endpoint) *http.Request {
	u := *r.URL
	u.Host = pin(to)
	p := r.WithContext(r.Context())
	p.URL, p.Host = &u, cmp.Or(r.Host, r.URL.Host)
	return p
}

// checkFields returns an error for a head with too many fields, or with a field that trimNames cannot
// correct.
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

// trimNames removes the white space before the colon, which RFC 9112 5.1 wants removed from
// a response; net/http leaves it in the name. It returns an error if the name then
// is one of framing, because net/http has not seen that.
func trimNames(h http.Header) error {
	for name, values := range h {
		if strings.IndexByte(name, ' ') < 0 {
			continue
		}
		delete(h, name)
		switch name = http.CanonicalHeaderKey(strings.TrimRight(name, " ")); {
		case name == "Content-Length" || name == "Transfer-Encoding":
			return fmt.Errorf("the origin's answer has white space behind %s", name)
		case strings.IndexByte(name, ' ') < 0: // else it is not a valid name
			h[name] = append(h[name], values...)
		}
	}
	return nil
}

// settle makes a request wait, on a connection that was used before, until all
// that has come on it is used up. net/http hands a connection on before it has
// looked whether the origin sent more than it was asked for (the body of an
// answer to HEAD, say), and would take that for the answer to the next request:
// somebody else's. Given the time, it finds it and closes the connection. HTTP/2
// numbers its answers, and one of the pool's has looked at its connection already.
func settle(got httptrace.GotConnInfo) {
	if !got.Reused {
		return
	}
	if c := tracked(got.Conn); c != nil && !c.http2 && !c.pooled && !c.reader.drained() {
		end := time.AfterFunc(settleTime, func() { c.Close() })
		c.reader.await()
		end.Stop()
	}
}

// settleTime is how long a reader may take to use up what has come.
const settleTime = time.Second

// A Tries counts the new connections that a request was given, and is
// GotConn's too. net/http sends a request again, without an end, to a peer that
// says of each HTTP/2 connection that it takes no more requests (GOAWAY). The
// zero Tries has counted none; it is one request's.
type Tries struct{ fresh atomic.Int32 }

// maxTries is how many new connections one request is worth.
const maxTries = 3

var errTries = errors.New("the origin takes requests on none of its connections")

// Got settles a connection. An error says that the request has had its tries;
// whoever called for it has to cancel it, by that cause.
func (t *Tries) Got(got httptrace.GotConnInfo) error {
	if !got.Reused && t.fresh.Add(1) > maxTries {
		return errTries
	}
	settle(got)
	return nil
}

// Drop keeps a request, whose context has been cancelled, from being written to
// the connection that it was given. HTTP/2 looks at the context before it
// writes, and has other requests on the connection.
func Drop(got httptrace.GotConnInfo) {
	if c := tracked(got.Conn); c == nil || !c.http2 {
		got.Conn.Close()
	}
}

// NextWrite tells w when the next bytes are written to an HTTP/1 connection, and so,
// on one that a request was just given, when its head is: WroteHeaders is called before
// they leave a buffer. It returns false, and does nothing, with HTTP/2 and FTP, where
// WroteHeaders is called at that time.
func NextWrite(got httptrace.GotConnInfo, w Writer) bool {
	c := tracked(got.Conn)
	if c == nil || c.http2 {
		return false
	}
	c.writes.set(w)
	return true
}

// Settling is the Client for those who have no httptrace of their own to count
// tries and settle connections.
func (c *Client) Settling() http.RoundTripper { return settling{c} }

type settling struct{ client *Client }

// RoundTrip sends one request to its origin. Its context has to end.
func (s settling) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var tries Tries
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if err := tries.Got(got); err != nil {
			cancel(err)
			Drop(got)
		}
	}}
	return s.client.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
}
