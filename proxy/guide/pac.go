package guide

import (
	"strconv"
	"strings"

	"robotsproxy/robots"
)

// PAC is the script that leads a browser through a proxy. The proxy is host:port, or
// https://host:port for one whose own port speaks TLS; of anything else, or without a
// port, it is nil, and nothing is to be served: a browser without a script goes straight out.
//
// All goes through the proxy, plain host names too, and there is no DIRECT to fall back
// on: while the proxy is away nothing may go past it. The one exception is the machine
// that the browser runs on (localhost, RFC 6761 6.3; 127.0.0.0/8 and ::1): that is the
// user's own, most browsers go there directly whatever a script says, and to the proxy it
// would be another machine, or one of the addresses that it refuses.
func PAC(proxy string) []byte {
	kind := "PROXY"
	hostport, secure := strings.CutPrefix(proxy, "https://")
	if secure {
		kind = "HTTPS"
	}
	o, err := robots.ParseOrigin("http", hostport)
	if err != nil || portOf(hostport) == 0 {
		return nil
	}
	// What ParseOrigin gives is letters, digits and -_.:[] alone. It is quoted all the same.
	return []byte(strings.Replace(pacScript, "WAY", strconv.QuoteToASCII(kind+" "+o.Addr()), 1))
}

// portOf is the port that is said; 0: none is.
func portOf(hostport string) int {
	_, port, _ := strings.Cut(hostport[strings.LastIndexByte(hostport, ']')+1:], ":")
	n, _ := strconv.Atoi(port)
	return n
}

// pacScript is JavaScript as the oldest browsers take it. 127.evil.example is no
// address, and so the numbers are looked at and not how the host begins.
const pacScript = `// All goes through robotsproxy but what is on this machine itself. There is no
// DIRECT behind it: while the proxy is away, nothing goes past it.
function FindProxyForURL(url, host) {
  host = host.toLowerCase();
  if (host == "localhost" || /\.localhost$/.test(host) || host == "::1" || host == "[::1]" ||
      /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host)) {
    return "DIRECT";
  }
  return WAY;
}
`
