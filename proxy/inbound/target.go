package inbound

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

// target returns the Target of a request other than CONNECT that was sent for the given request target on a connection.
// It is the only place that checks the form of a target: absolute form (RFC 9112 3.2.2) on the proxy's
// own port, origin form or "*" on a redirected connection and inside a tunnel, where the host must be
// that of the tunnel.
func target(r *http.Request, conn *Conn, tunnel *Tunnel, sent string) (robots.Target, error) {
	if err := checkForm(r); err != nil {
		return robots.Target{}, err
	}
	var t robots.Target
	var err error
	if strings.HasPrefix(sent, "/") || sent == "*" {
		if t, err = robots.NewTarget(r.Method, robots.Origin{}, sent); err == nil {
			t.Origin, err = originOf(r, conn, tunnel)
		}
		if errors.Is(err, ErrNoSite) && !strings.HasPrefix(sent, "/") {
			err = malformed("the request names no site")
		}
	} else {
		t, err = robots.ParseTarget(r.Method, sent)
		if tunnel != nil && err == nil {
			_, authority, _, _ := robots.SplitURL(sent)
			t.Origin, err = tunnel.admits(t.Origin, tunnel.scheme(r), hasPort(authority))
		}
	}
	switch {
	case err == nil && t.Origin.Scheme == "ftp":
		if err = ftp.CheckPath(t.PathQuery); err != nil {
			err = fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	case err != nil && !errors.Is(err, ErrMisdirected) && !errors.Is(err, ErrMalformed):
		err = malformed(err.Error())
	}
	return t, err
}

// originOf returns the origin of a request whose target does not name one: that of its tunnel or
// redirected connection, or the one in the pseudo-headers of HTTP/2, which are an absolute address
// (RFC 9113 8.3.1; see setUpHTTP2).
func originOf(r *http.Request, conn *Conn, tunnel *Tunnel) (robots.Origin, error) {
	switch {
	case tunnel != nil:
		return tunnel.originOf(r)
	case conn != nil && conn.redirect != nil:
		return conn.redirect.originOf(r)
	case r.ProtoMajor == 2 && r.TLS != nil:
		return robots.ParseOrigin("https", r.Host)
	case r.ProtoMajor == 2:
		return robots.ParseOrigin("http", r.Host)
	}
	return robots.Origin{}, ErrNoSite
}

// checkForm refuses what net/http accepts in HTTP/2 although it may mean one thing to the proxy and
// another to the origin, which may get HTTP/1.1 (RFC 9113 8.1.1, 8.3.1).
func checkForm(r *http.Request) error {
	if r.ProtoMajor < 2 {
		return nil
	}
	// A token, as a method is.
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return malformed("the method is not a token")
	}
	for _, host := range r.Header["Host"] {
		if host != r.Host {
			return malformed("the field host differs from :authority")
		}
	}
	for i, length := range r.Header["Content-Length"] {
		if n, err := strconv.ParseUint(length, 10, 63); err != nil || i > 0 || int64(n) != r.ContentLength {
			return malformed("the field content-length differs from the length of the body")
		}
	}
	return nil
}

// scheme returns the scheme of a request inside the tunnel.
func (t *Tunnel) scheme(r *http.Request) string {
	if !t.secured.IsZero() || r.TLS != nil {
		return "https"
	}
	return "http"
}

// originOf returns the origin of a request inside the tunnel by its Host.
func (t *Tunnel) originOf(r *http.Request) (robots.Origin, error) {
	scheme, host := t.scheme(r), r.Host
	if host == t.Authority && scheme == t.Origin.Scheme && host != "" {
		// The usual case.
		return t.Origin, nil
	}
	if host == "" && !r.ProtoAtLeast(1, 1) {
		// HTTP/1.0 need not name a host.
		host = t.Origin.Addr()
	}
	o, err := robots.ParseOrigin(scheme, host)
	if err != nil {
		return robots.Origin{}, err
	}
	return t.admits(o, scheme, hasPort(host))
}

// admits returns the origin o of a request inside the tunnel, whose requests have a scheme. The host must
// be the one that the CONNECT named, or the server name of the TLS handshake (RFC 9110 15.5.20).
func (t *Tunnel) admits(o robots.Origin, scheme string, hasPort bool) (robots.Origin, error) {
	if !hasPort {
		// Many clients leave out even an unusual port.
		o.Port = t.Origin.Port
	}
	itsHost := o.Host == t.Origin.Host || t.serverName != "" && strings.EqualFold(o.Host, t.serverName)
	if o.Scheme != scheme || o.Port != t.Origin.Port || !itsHost {
		return robots.Origin{}, ErrMisdirected
	}
	return o, nil
}

// connectTarget returns the origin that a CONNECT names (RFC 9112 3.2.3: host and port), which was sent for the
// given request target. Its scheme is guessed from the port.
func connectTarget(r *http.Request, tunnel *Tunnel, sent string) (robots.Origin, error) {
	if tunnel != nil {
		return robots.Origin{}, malformed("a tunnel inside a tunnel")
	}
	if strings.Contains(sent, "@") {
		return robots.Origin{}, malformed("credentials in the URL")
	}
	if !hasPort(sent) || strings.HasSuffix(sent, ":") {
		return robots.Origin{}, malformed("CONNECT needs host:port and nothing else")
	}
	// RFC 9110 9.3.6; otherwise what follows could be read as a body or as the tunnel's content.
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		return robots.Origin{}, malformed("CONNECT must not have a body")
	}
	o, err := robots.ParseOrigin("https", sent)
	if err != nil {
		return robots.Origin{}, malformed(err.Error())
	}
	if o.Port == 80 {
		o.Scheme = "http"
	}
	return o, nil
}

// authority returns an origin in the form of a URL or a Host header.
func authority(o robots.Origin) string { return o.String()[len(o.Scheme)+len("://"):] }
