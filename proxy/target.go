package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

// target returns the normalised URL and the origin of a request other than CONNECT. It is the only
// place that checks the form of a target: absolute form (RFC 9112 3.2.2) on the proxy's own port,
// origin form on a redirected connection and inside a tunnel, where the host must be that of the
// tunnel.
func target(r *http.Request) (*url.URL, robots.Origin, error) {
	if err := checkForm(r); err != nil {
		return nil, robots.Origin{}, err
	}
	u := *r.URL
	t := tunnelOf(r)
	switch {
	case u.User != nil:
		return nil, robots.Origin{}, fmt.Errorf("%w: credentials in the URL", errMalformed)
	case u.Path == "*" || u.Opaque != "":
		return nil, robots.Origin{}, fmt.Errorf("%w: no URL to forward it to", errMalformed)
	case t != nil:
		return t.target(r, &u)
	case u.Host == "" && connInfoFrom(r).redirect() != nil:
		return connInfoFrom(r).redirect().target(r, &u)
	case u.Host == "" && r.ProtoMajor == 2:
		// Its pseudo-headers are an absolute address (RFC 9113 8.3.1); see setUpHTTP2.
		u.Scheme, u.Host = "http", r.Host
		if r.TLS != nil {
			u.Scheme = "https"
		}
	case u.Host == "":
		return nil, robots.Origin{}, errNoSite
	}
	o, err := robots.ParseOrigin(strings.ToLower(u.Scheme), u.Host)
	if err == nil && o.Scheme == "ftp" {
		err = ftp.CheckPath(u.RequestURI())
	}
	if err != nil {
		return nil, robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return normalise(&u, o), o, nil
}

// checkForm refuses what net/http accepts although it may mean one thing to the proxy and another to
// the origin, which gets HTTP/1.1. A space ends a target there, and so does "#" at some origins; a
// proxy must not correct them (RFC 9112 3.2). The other checks apply only to HTTP/2 (RFC 9113 8.1.1,
// 8.3.1).
func checkForm(r *http.Request) error {
	if strings.ContainsAny(r.RequestURI, " #") {
		return fmt.Errorf("%w: a space or a fragment in the URL", errMalformed)
	}
	if r.ProtoMajor < 2 {
		return nil
	}
	if !httpguts.ValidHeaderFieldName(r.Method) { // a token, as a method is
		return fmt.Errorf("%w: invalid method", errMalformed)
	}
	for _, host := range r.Header["Host"] {
		if host != r.Host {
			return fmt.Errorf("%w: Host differs from :authority", errMalformed)
		}
	}
	for i, length := range r.Header["Content-Length"] {
		if n, err := strconv.ParseUint(length, 10, 63); err != nil || i > 0 || int64(n) != r.ContentLength {
			return fmt.Errorf("%w: Content-Length differs from the length of the body", errMalformed)
		}
	}
	return nil
}

// target returns the URL u and the origin of a request inside the tunnel. The host must be the one
// that the CONNECT named, or the server name of the TLS handshake (RFC 9110 15.5.20).
func (t *tunnelConn) target(r *http.Request, u *url.URL) (*url.URL, robots.Origin, error) {
	scheme, host := "http", r.Host
	if t.secure || r.TLS != nil {
		scheme = "https"
	}
	if u.Host == "" && host != "" && host == t.authority && scheme == t.origin.Scheme {
		u.Scheme, u.Host = scheme, host
		return u, t.origin, nil // the usual case
	}
	if u.Host != "" { // absolute form overrides Host (RFC 9112 3.2.2)
		host = u.Host
		if !strings.EqualFold(u.Scheme, scheme) {
			return nil, robots.Origin{}, errMisdirected
		}
	}
	if host == "" && !r.ProtoAtLeast(1, 1) {
		host = t.origin.Addr() // HTTP/1.0 need not name a host
	}
	o, err := robots.ParseOrigin(scheme, host)
	if err != nil {
		return nil, robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !hasPort(host) {
		o.Port = t.origin.Port // many clients leave out even an unusual port
	}
	if o.Port != t.origin.Port || o.Host != t.origin.Host && (t.serverName == "" || !strings.EqualFold(o.Host, t.serverName)) {
		return nil, robots.Origin{}, errMisdirected
	}
	return normalise(u, o), o, nil
}

// target returns the URL u and the origin of a redirected request without TLS. The host, and the port
// if there is one, are those that the request names.
func (d *redirect) target(r *http.Request, u *url.URL) (*url.URL, robots.Origin, error) {
	host := r.Host
	if host == "" { // HTTP/1.0
		host = cmp.Or(d.name, bracketed(d.addr.Addr()))
	}
	o, err := robots.ParseOrigin("http", host)
	if err != nil {
		return nil, robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !hasPort(host) {
		o.Port = d.addr.Port()
	}
	return normalise(u, o), o, nil
}

// ftpPort is the port of FTP, which the proxy cannot check inside a tunnel.
const ftpPort = 21

// connectTarget returns the origin that a CONNECT names (RFC 9112 3.2.3: host and port). Its scheme is guessed
// from the port. An error that is returned with an origin is about that origin.
func connectTarget(r *http.Request) (robots.Origin, error) {
	if tunnelOf(r) != nil {
		return robots.Origin{}, fmt.Errorf("%w: a tunnel inside a tunnel", errMalformed)
	}
	if strings.Contains(r.Host, "@") {
		return robots.Origin{}, fmt.Errorf("%w: credentials in the URL", errMalformed)
	}
	if r.RequestURI != r.Host || !hasPort(r.Host) || strings.HasSuffix(r.Host, ":") {
		return robots.Origin{}, fmt.Errorf("%w: CONNECT needs host:port and nothing else", errMalformed)
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 { // RFC 9110 9.3.6; otherwise what follows could be read as a body or as the tunnel's content
		return robots.Origin{}, fmt.Errorf("%w: CONNECT must not have a body", errMalformed)
	}
	o, err := robots.ParseOrigin("https", r.Host)
	if err != nil {
		return robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if o.Port == 80 {
		o.Scheme = "http"
	}
	if o.Port == ftpPort {
		return o, errFTPTunnel
	}
	return o, nil
}

// normalise sets the origin of u to o and removes the fragment.
func normalise(u *url.URL, o robots.Origin) *url.URL {
	u.Scheme, u.Host = o.Scheme, authority(o)
	u.Fragment, u.RawFragment = "", ""
	return u
}

// requestTarget returns a request's target as the client has written it, without
// userinfo.
func requestTarget(r *http.Request) string {
	if r.ProtoMajor == 2 && strings.HasPrefix(r.RequestURI, "/") {
		return withoutUserinfo(r.Host) + r.RequestURI
	}
	return withoutUserinfo(r.RequestURI)
}

// withoutUserinfo removes a possible password from a target, so that the record of a
// refused request does not contain it.
func withoutUserinfo(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	from, ends := 0, "?" // without "//", everything before a query may be meant as an authority
	if i := strings.Index(target, "://"); i >= 0 {
		from = i + len("://")
		if rest := target[from:]; rest != "" && strings.IndexAny(rest, "/?#") != 0 {
			ends = "/?#"
		}
	}
	authority := target[from:]
	if i := strings.IndexAny(authority, ends); i >= 0 {
		authority = authority[:i]
	}
	return target[:from] + target[from+strings.LastIndexByte(authority, '@')+1:]
}

// authority returns an origin in the form of a URL or a Host header.
func authority(o robots.Origin) string { return o.String()[len(o.Scheme)+len("://"):] }

// hasPort reports whether there is a colon outside brackets.
func hasPort(hostport string) bool {
	return strings.LastIndexByte(hostport, ':') > strings.LastIndexByte(hostport, ']')
}
