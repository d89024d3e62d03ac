package proxy

import (
	"errors"
	"fmt"
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

// withoutUserinfo leaves out of a target, as a client wrote it, what may be a
// password: the record of a refused request is no place for it.
func withoutUserinfo(target string) string {
	from := 0
	if i := strings.Index(target, "://"); i >= 0 {
		from = i + len("://")
	}
	authority := target[from:]
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	return target[:from] + target[from+strings.LastIndexByte(authority, '@')+1:]
}

// authority is an origin as a URL and a Host header have it.
func authority(o robots.Origin) string { return o.String()[len(o.Scheme)+len("://"):] }

func hasPort(hostport string) bool {
	return strings.LastIndexByte(hostport, ':') > strings.LastIndexByte(hostport, ']')
}
