package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"golang.org/x/net/http/httpguts"
)

// errIndirect says that a request is for the Transport to send: nothing of it was.
var errIndirect = errors.New("the request is not sent directly")

// direct sends r over HTTP/1.1 on this goroutine, where a Transport has two more for each
// connection. Of r's httptrace it calls GetConn, GotConn, Got1xxResponse and what
// http.Request.Write does. errIndirect leaves r to that one: r is not simple, or the origin
// speaks HTTP/2, or the Transport has a connection to it at rest.
func (d *Client) direct(r *http.Request, at spot) (*http.Response, error) {
	if !simple(r) || d.parent != nil && d.parent.at.Scheme == "https" { // TLS inside of TLS cannot be looked at
		return nil, errIndirect
	}
	ctx := r.Context()
	trace := httptrace.ContextClientTrace(ctx)
	for first := true; ; first = false {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var k *kept
		if first {
			k = d.pool.take(at)
		}
		if k == nil && (d.pool.hasLent(at) || at.Scheme == "https" && d.contacts.http2(at.Origin)) {
			return nil, errIndirect
		}
		if trace != nil && trace.GetConn != nil {
			trace.GetConn(r.URL.Host)
		}
		if k == nil {
			var err error
			if k, err = d.open(ctx, at); err != nil {
				return nil, err
			}
		}
		used := k.used
		resp, err := k.send(r, trace, d.headerTimeout)
		lost, ok := err.(unanswered)
		switch {
		case !ok:
			return resp, err
		case !used:
			return nil, lost.error // there is no reason to think that a second would do better
		}
	}
}

// simple says whether r can be sent directly: it has no body, and may be sent again
// (RFC 9110 9.2.2). What the Transport would refuse is for it to refuse.
func simple(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
	default:
		return false
	}
	if r.Body != nil && r.Body != http.NoBody || r.Header == nil || r.URL.Opaque != "" {
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

// open gives a connection that no request was sent over yet. Where that speaks HTTP/2
// it is left for the Transport.
func (d *Client) open(ctx context.Context, at spot) (*kept, error) {
	at = at.own()
	conn, err := d.unused(ctx, at, protocols{"h2", http11})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if !counted(conn).http2 {
		if k := newKept(conn, at, d.pool); k != nil {
			return k, nil
		}
	}
	d.warm.put(at, conn)
	return nil, errIndirect
}

// lend gives the Transport a connection that is at rest, for good; nil: there is none.
func (d *Client) lend(at spot) net.Conn {
	for {
		k := d.pool.take(at)
		if k == nil {
			return nil
		}
		if k.look() == nil && k.conn.SetReadDeadline(time.Time{}) == nil {
			k.counted.kept = false
			return k.conn
		}
		k.conn.Close()
	}
}
