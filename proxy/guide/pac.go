package guide

import (
	"strconv"
	"strings"

	"robotsproxy/robots"
)

// PAC returns the script that leads a browser through a proxy. The proxy is host:port, or
// https://host:port if its own port speaks TLS. For anything else, or without a port, PAC returns
// nil, which must not be served: a browser with an empty script bypasses the proxy.
//
// All requests go through the proxy, those for plain host names too, and there is no DIRECT to fall
// back on: while the proxy is down nothing may bypass it. The one exception is the browser's own
// machine (localhost, RFC 6761 6.3; 127.0.0.0/8 and ::1): most browsers connect to it directly
// whatever a script says, and for the proxy these addresses would be its own machine, or refused.
func PAC(proxy string) []byte {
	kind := "PROXY"
	hostport, secure := strings.CutPrefix(proxy, "https://")
	if secure {
		kind = "HTTPS"
	}
	o, err := robots.ParseOrigin("http", hostport)
	if err != nil || explicitPort(hostport) == 0 {
		return nil
	}
	// An address from ParseOrigin needs no quoting: it consists of letters, digits and -_.:[]. Quote it
	// all the same.
	return []byte(strings.Replace(pacScript, "PROXY;", strconv.QuoteToASCII(kind+" "+o.Addr())+";", 1))
}

// explicitPort returns the port in hostport, 0 if there is none.
func explicitPort(hostport string) int {
	_, port, _ := strings.Cut(hostport[strings.LastIndexByte(hostport, ']')+1:], ":")
	n, _ := strconv.Atoi(port)
	return n
}

// pacScript is JavaScript that the oldest browsers accept. It matches the digits of an address, not
// the prefix "127.", because 127.evil.example is a host name.
const pacScript = `// All requests go through robotsproxy, except those to this machine itself. There is no DIRECT
// as a second choice: if the proxy is unavailable, no request bypasses it.
function FindProxyForURL(url, host) {
  host = host.toLowerCase();
  if (host == "localhost" || /\.localhost$/.test(host) || host == "::1" || host == "[::1]" ||
      /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host)) {
    return "DIRECT";
  }
  return PROXY;
}
`
