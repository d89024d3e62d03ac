package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"robotsproxy/robots"
)

var (
	errMalformed   = errors.New("malformed request")
	errMisdirected = errors.New("the request is for another host than its tunnel")
	errLoop        = errors.New("the request has been through this proxy before")
)

// maxReadAhead bounds, in octets, the request bodies that are read before a
// wait. net/http notices that a client has left only when the body is read.
const maxReadAhead = 64 << 10

// target finds where a request goes. It is the one place where a request's
// form is judged: absolute (RFC 9112 3.2.2) on the proxy's own port, origin
// form inside a tunnel, where the host must be the tunnel's.
func target(r *http.Request) (*url.URL, robots.Origin, error) {
	u := *r.URL
	t := tunnelOf(r)
	switch {
	case u.User != nil:
		return nil, robots.Origin{}, fmt.Errorf("%w: credentials in the address", errMalformed)
	case u.Path == "*" || u.Opaque != "":
		return nil, robots.Origin{}, fmt.Errorf("%w: no address to send it to", errMalformed)
	case t != nil:
		return t.target(r, &u)
	case u.Host == "":
		return nil, robots.Origin{}, fmt.Errorf("%w: this is a proxy; it takes whole addresses, as in GET http://example.com/", errMalformed)
	}
	o, err := robots.ParseOrigin(strings.ToLower(u.Scheme), u.Host)
	if err != nil {
		return nil, robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return normal(&u, o), o, nil
}

// target is that of a request inside a tunnel: its host is the one that the
// tunnel was made for, or the one of the TLS handshake in it (RFC 9110 15.5.20).
func (t *tunnelConn) target(r *http.Request, u *url.URL) (*url.URL, robots.Origin, error) {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if u.Host == "" && host != "" && host == t.authority && scheme == t.origin.Scheme {
		u.Scheme, u.Host = scheme, host
		return u, t.origin, nil // as nearly always
	}
	if u.Host != "" { // absolute form overrides Host (RFC 9112 3.2.2)
		host = u.Host
		if !strings.EqualFold(u.Scheme, scheme) {
			return nil, robots.Origin{}, errMisdirected
		}
	}
	if host == "" && !r.ProtoAtLeast(1, 1) {
		host = t.origin.Addr() // HTTP/1.0 need not name one
	}
	o, err := robots.ParseOrigin(scheme, host)
	if err != nil {
		return nil, robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !hasPort(host) {
		o.Port = t.origin.Port // many clients leave even an unusual port out
	}
	if o.Port != t.origin.Port || o.Host != t.origin.Host && (r.TLS == nil || !strings.EqualFold(o.Host, r.TLS.ServerName)) {
		return nil, robots.Origin{}, errMisdirected
	}
	return normal(u, o), o, nil
}

// normal puts a normalised origin into u.
func normal(u *url.URL, o robots.Origin) *url.URL {
	u.Scheme, u.Host = o.Scheme, authority(o)
	u.Fragment, u.RawFragment = "", ""
	return u
}

// authority is an origin as a URL and a Host header have it.
func authority(o robots.Origin) string { return o.String()[len(o.Scheme)+len("://"):] }

func hasPort(hostport string) bool {
	return strings.LastIndexByte(hostport, ':') > strings.LastIndexByte(hostport, ']')
}

// readAhead reads a small body of known length into memory, so that a client
// that leaves during the wait is noticed. A client that expects 100 Continue
// has not sent its body, and is not asked for it before its turn.
func readAhead(r *http.Request) error {
	if r.ContentLength <= 0 || r.ContentLength > maxReadAhead || r.Header.Get("Expect") != "" {
		return nil
	}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, b); err != nil {
		return fmt.Errorf("%w: body: %w", errMalformed, err)
	}
	// The EOF that net/http waits for before it watches the connection.
	if _, err := r.Body.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%w: body is longer than its length", errMalformed)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}
