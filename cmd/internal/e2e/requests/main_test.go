// Package requests proves, end to end, that requests and responses pass through the proxy correctly:
//   - bodies, encodings, ranges, uploads, trailers and interim responses arrive unchanged
//   - streams and upgraded connections are forwarded at once, and end with either side
//   - hop-by-hop fields, Via, loops and malformed requests are handled as RFC 9110 to 9113 say
//   - tunnels: CONNECT, intercepted requests, HTTP/1.0, HTTP/2, no server name
//   - origins that break off, send too much or never answer give the client a clear error
//   - signed requests verify at the origin, and records and the report name the key
//   - FTP URLs, and upstream proxies of each kind
package requests

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
