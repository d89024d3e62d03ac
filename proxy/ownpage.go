package proxy

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// seeGuide is added to the advice of a refusal if the client may have meant the proxy itself.
const seeGuide = "To see what this proxy is and how to use it, open / at its own address (IP address and port, or localhost) in a browser."

// isForProxy reports whether a request is for the proxy itself and its guide has the path. Such
// a request is not recorded, and nothing is sent. Other requests without an origin, or for the
// proxy's own address, are refused. A request in a tunnel is never for the proxy.
func isForProxy(s *requestState) bool {
	r, conn := s.in.HTTP, s.client.conn
	switch {
	// This is so for nearly all requests.
	case s.rules.OwnPage == nil || !s.rules.OwnPage.Knows(ownPath(&s.record)):
		return false
	case s.in.Tunnel != nil || conn.Redirected():
		return false
	// The request is refused.
	case conn.OverLimit:
		return false
	case r.Method != http.MethodGet && r.Method != http.MethodHead, r.Body != http.NoBody:
		return false
	}
	local, ok := localAddr(conn)
	if !ok {
		return false
	}
	if errors.Is(s.targetErr, inbound.ErrNoSite) {
		return mayBeProxyName(r.Host, local)
	}
	o := s.record.Request.Origin
	return s.targetErr == nil && (o.Scheme == "http" || o.Scheme == "https" && s.rules.TLS != nil) && isAt(o, local)
}

// ownPath returns the path of a request that may be for the proxy itself.
func ownPath(rec *audit.Record) string {
	path := rec.Request.PathQuery
	// The request has no target, for example because it has the origin form.
	if path == "" {
		path = rec.Target
	}
	path, _, _ = strings.Cut(path, "?")
	return path
}

// localAddr returns the local address of a connection.
func localAddr(c net.Conn) (netip.AddrPort, bool) {
	local := socket.AddrPort(c.LocalAddr())
	return local, local.IsValid()
}

// isAt reports whether an origin is the address local, or localhost if local is a loopback address (RFC
// 6761 6.3). Other names that resolve to local do not count.
func isAt(o robots.Origin, local netip.AddrPort) bool {
	if o.Port != local.Port() {
		return false
	}
	addr, err := netip.ParseAddr(o.Host)
	if err != nil {
		return isLocalhost(o.Host) && local.Addr().IsLoopback()
	}
	return addr == local.Addr()
}

// mayBeProxyName reports whether the Host of a request in origin form (RFC 9112 3.2.1) may be
// a name of the proxy. The Host of a site usually has no port: a client that was redirected
// here, or takes the proxy for a gateway, must not take the guide for the site. A proxy on a
// loopback address has no name but localhost: another name comes from a script of a site
// whose name resolves to that address (DNS rebinding), and such a script must not read the
// guide.
func mayBeProxyName(host string, local netip.AddrPort) bool {
	if host == "" {
		// HTTP/1.0 has no Host.
		return true
	}
	o, err := robots.ParseOrigin("http", host)
	if err != nil {
		// Browsers accept more names than ParseOrigin.
		return !local.Addr().IsLoopback()
	}
	if _, err := netip.ParseAddr(o.Host); err == nil || isLocalhost(o.Host) {
		return true
	}
	_, _, noPort := net.SplitHostPort(host)
	usual := local.Port() == 80 || local.Port() == 443
	return (usual || noPort == nil) && !local.Addr().IsLoopback()
}

func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// serveOwnPage answers with the guide and marks the response as one of the proxy.
func (s *requestState) serveOwnPage() {
	header := ownHeader(answer{}, problem{Explanation: explain.Explanation{Reason: "the proxy's own page"}})
	w := s.in.Writer
	maps.Copy(w.Header(), header)
	s.in.EndConnection(s.transfer.flow.uploaded())
	s.transfer.beginWrite()
	s.transfer.begin()
	defer s.transfer.watch.stop()
	r := *s.in.HTTP
	r.URL = &url.URL{Path: ownPath(&s.record)}
	s.rules.OwnPage.ServeHTTP(w, &r)
	// The watch limits the time of this, too.
	http.NewResponseController(w).Flush()
}

// mayMeanProxy reports whether the client of a refused request may have meant the proxy
// itself.
func mayMeanProxy(s *requestState, err error) bool {
	switch {
	case s.rules.OwnPage == nil:
		return false
	// The proxy does not know all its own addresses.
	case errors.Is(err, egress.ErrForbiddenAddr):
		local, ok := localAddr(s.client.conn)
		return errors.Is(err, egress.ErrOwnListener) || ok && isAt(s.record.Request.Origin, local)
	}
	return errors.Is(err, inbound.ErrNoSite)
}
