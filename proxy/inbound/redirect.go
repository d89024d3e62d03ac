package inbound

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"robotsproxy/robots"
)

// A redirect is the original destination of a connection that was redirected to the proxy.
type redirect struct {
	addr netip.AddrPort

	// name is a name for the address; "": unknown.
	name string

	// release is called when the connection is closed; nil: it is not.
	release func()
}

// host returns the name, or the address if there is no name.
func (r *redirect) host() string { return cmp.Or(r.name, r.addr.Addr().String()) }

// String returns host:port.
func (r *redirect) String() string {
	return net.JoinHostPort(r.host(), strconv.Itoa(int(r.addr.Port())))
}

// originOf returns the origin of a redirected request without TLS. The host, and the port if there is
// one, are those that the request names.
func (r *redirect) originOf(req *http.Request) (robots.Origin, error) {
	host := req.Host
	if host == "" {
		// HTTP/1.0 need not name a host.
		host = r.String()
	}
	o, err := robots.ParseOrigin("http", host)
	if err == nil && !hasPort(host) {
		o.Port = r.addr.Port()
	}
	return o, err
}

// hasPort reports whether there is a colon outside brackets.
func hasPort(hostport string) bool {
	return strings.LastIndexByte(hostport, ':') > strings.LastIndexByte(hostport, ']')
}
