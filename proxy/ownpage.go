package proxy

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"robotsproxy/policy/explain"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
)

// seeGuide follows what to do where somebody may have meant the proxy itself.
const seeGuide = "What this proxy is and how to use it is told by / at its own address (its IP address and port, or localhost), as in a browser."

// isForProxy says whether a request is for the proxy itself, and one that its guide has
// an answer to. Whatever else comes without a site, or with our own address for one,
// is refused as ever. Nothing goes out for what this says yes to, and nothing of it
// is recorded. A request in a tunnel is never one.
func isForProxy(x *requestState) bool {
	r := x.request
	by := connInfoFrom(r)
	switch {
	case x.rules.OwnPage == nil || !x.rules.OwnPage.Knows(r.URL.Path): // as nearly always
		return false
	case by.client == nil || by.tunnel != nil:
		return false
	case by.client.tooMany: // refused as ever
		return false
	case r.Method != http.MethodGet && r.Method != http.MethodHead, r.Body != http.NoBody:
		return false
	}
	local, ok := localAddr(r)
	if !ok {
		return false
	}
	if errors.Is(x.noURL, errNoSite) {
		return mayBeProxyName(r.Host, local)
	}
	o := x.record.Request.Origin
	return x.noURL == nil && (o.Scheme == "http" || o.Scheme == "https" && x.rules.TLS != nil) && isAt(o, local)
}

// localAddr is where a request's connection came in.
func localAddr(r *http.Request) (netip.AddrPort, bool) {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	local := addr.AddrPort()
	return netip.AddrPortFrom(local.Addr().WithZone("").Unmap(), local.Port()), true
}

// isAt says whether an origin is local itself, and nothing that leads there by a
// name, but for the one that every machine has (RFC 6761 6.3).
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

// mayBeProxyName says whether the Host of a request in origin form (RFC 9112 3.2.1) may
// be a name of the proxy. A site's own Host mostly has no port: who was led here by
// force, or takes the proxy for a gateway, must not take the guide for the site. And
// a proxy on loopback has no name but localhost: with another comes the script of a
// site that has its name lead here, to read what is none of its business.
func mayBeProxyName(host string, local netip.AddrPort) bool {
	if host == "" {
		return true // HTTP/1.0
	}
	o, err := robots.ParseOrigin("http", host)
	if err != nil {
		return !local.Addr().IsLoopback() // browsers take names that are none to us
	}
	if _, err := netip.ParseAddr(o.Host); err == nil || isLocalhost(o.Host) {
		return true
	}
	usual := local.Port() == 80 || local.Port() == 443
	return (usual || hasPort(host)) && !local.Addr().IsLoopback()
}

func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// serveOwnPage has the guide answer, and marks the answer as the proxy's own.
func (h *Handler) serveOwnPage(x *requestState) {
	header := ownHeader(answer{}, problem{Explanation: explain.Explanation{Reason: "the proxy's own page"}})
	maps.Copy(x.client.Header(), header)
	x.setConnectionClose()
	x.beginWrite()
	x.watch.begin(x)
	defer x.watch.stop()
	x.rules.OwnPage.ServeHTTP(x.client, x.request)
	http.NewResponseController(x.client).Flush() // under the watch
}

// mayMeanProxy says whether who is refused may have meant the proxy itself.
func mayMeanProxy(x *requestState, err error) bool {
	switch {
	case x.rules.OwnPage == nil:
		return false
	case errors.Is(err, egress.ErrForbiddenAddr): // not all of these are known for our own
		local, ok := localAddr(x.request)
		return errors.Is(err, egress.ErrOwnListener) || ok && isAt(x.record.Request.Origin, local)
	}
	return errors.Is(err, errNoSite)
}
