package explain

import (
	"strings"

	"robotsproxy/robots"
)

// ParseURL returns the target of a request for a URL as the proxy reads it, or says why the proxy
// would not take it. A fragment does not count: clients do not send it (RFC 9110 7.1).
func ParseURL(method, address string) (robots.Target, error) {
	address, _, _ = strings.Cut(address, "#")
	return robots.ParseTarget(method, address)
}
