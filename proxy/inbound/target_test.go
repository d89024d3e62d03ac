package inbound

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

// read parses the head of a request like net/http's server.
func read(t *testing.T, head string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTargetOnTheProxysOwnPort(t *testing.T) {
	for _, c := range []struct {
		name, head string
		origin     string // "": refused
		pathQuery  string
	}{
		{"absolute form (RFC 9112 3.2.2)", "GET http://site.test/a?b=c HTTP/1.1\nHost: site.test", "http://site.test", "/a?b=c"},
		{"absolute form overrides Host", "GET http://site.test/ HTTP/1.1\nHost: other.test", "http://site.test", "/"},
		{"upper-case scheme and host", "GET HTTP://SITE.test/A HTTP/1.1\nHost: x", "http://site.test", "/A"},
		{"explicit default port", "GET http://site.test:80/ HTTP/1.1\nHost: x", "http://site.test", "/"},
		{"another port", "GET http://site.test:8080/ HTTP/1.1\nHost: x", "http://site.test:8080", "/"},
		{"IPv6 literal", "GET http://[::1]:8080/ HTTP/1.1\nHost: x", "http://[::1]:8080", "/"},
		{"https in the clear", "GET https://site.test/ HTTP/1.1\nHost: x", "https://site.test", "/"},
		{"empty path", "GET http://site.test HTTP/1.1\nHost: x", "http://site.test", "/"},
		{"empty query kept", "GET http://site.test/? HTTP/1.1\nHost: x", "http://site.test", "/?"},
		{"escapes as they were sent", "GET http://site.test/%2e%2E/%7Ea HTTP/1.1\nHost: x", "http://site.test", "/%2e%2E/%7Ea"},
		{"OPTIONS without a path (RFC 9112 3.2.4)", "OPTIONS http://site.test HTTP/1.1\nHost: x", "http://site.test", "*"},
		{"OPTIONS with a path", "OPTIONS http://site.test/ HTTP/1.1\nHost: x", "http://site.test", "/"},
		{"OPTIONS with a query alone", "OPTIONS http://site.test?a HTTP/1.1\nHost: x", "http://site.test", "/?a"},
		{"reserved characters and what no URI has (RFC 9110 7.7)", "GET http://site.test/AC%2FDC|\u00fc^\" HTTP/1.1\nHost: x", "http://site.test", "/AC%2FDC|\u00fc^\""},
		{"an escaped host (RFC 3986 3.2.2)", "GET http://s%C3%BC.test/ HTTP/1.1\nHost: x", "http://xn--s-eha.test", "/"},
		{"a fragment", "GET http://site.test/a#b HTTP/1.1\nHost: x", "", ""},
		{"a path that begins with two slashes", "GET http://site.test//other.test/ HTTP/1.1\nHost: x", "http://site.test", "//other.test/"},
		{"ftp (RFC 1738 3.2)", "GET ftp://SITE.test:21/a%20b/c;type=i HTTP/1.1\nHost: x", "ftp://site.test", "/a%20b/c;type=i"},
		{"ftp, another port", "GET ftp://site.test:2121 HTTP/1.1\nHost: x", "ftp://site.test:2121", "/"},
		{"ftp, the root by an escaped slash", "GET ftp://site.test/%2Fetc/motd HTTP/1.1\nHost: x", "", ""},
		{"ftp, a second command", "GET ftp://site.test/a%0D%0ADELE%20b HTTP/1.1\nHost: x", "", ""},
		{"ftp with a password", "GET ftp://u:p@site.test/a HTTP/1.1\nHost: x", "", ""},
		{"origin form, invalid for a proxy", "GET /a HTTP/1.1\nHost: site.test", "", ""},
		{"userinfo", "GET http://a@site.test/ HTTP/1.1\nHost: x", "", ""},
		{"userinfo with a password", "GET http://site.test:80@other.test/ HTTP/1.1\nHost: x", "", ""},
		{"asterisk", "OPTIONS * HTTP/1.1\nHost: site.test", "", ""},
		{"another scheme", "GET gopher://site.test/ HTTP/1.1\nHost: x", "", ""},
		{"no host", "GET http:///a HTTP/1.1\nHost: x", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := read(t, c.head)
			got, err := target(r, nil, nil, r.RequestURI)
			if c.origin == "" {
				if !errors.Is(err, ErrMalformed) {
					t.Errorf("got %v: %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Origin.String() != c.origin || got.PathQuery != c.pathQuery {
				t.Errorf("got %s %s, want %s %s", got.Origin, got.PathQuery, c.origin, c.pathQuery)
			}
		})
	}
}

func TestTargetInsideATunnel(t *testing.T) {
	for _, c := range []struct {
		name, connect, sni, head string
		origin                   string
		err                      error
	}{
		{"origin form", "site.test:443", "site.test", "GET /a HTTP/1.1\nHost: site.test", "https://site.test", nil},
		{"unusual port left out of Host", "site.test:8443", "site.test", "GET /a HTTP/1.1\nHost: site.test", "https://site.test:8443", nil},
		{"unusual port in Host", "site.test:8443", "site.test", "GET /a HTTP/1.1\nHost: site.test:8443", "https://site.test:8443", nil},
		{"upper-case Host", "site.test:443", "site.test", "GET / HTTP/1.1\nHost: SITE.test", "https://site.test", nil},
		{"the name of the TLS handshake", "127.0.0.9:443", "site.test", "GET / HTTP/1.1\nHost: site.test", "https://site.test", nil},
		{"the CONNECT host with another SNI", "site.test:443", "front.test", "GET / HTTP/1.1\nHost: site.test", "https://site.test", nil},
		{"absolute form of the same host", "site.test:443", "site.test", "GET https://site.test/x HTTP/1.1\nHost: site.test", "https://site.test", nil},
		{"HTTP/1.0 without Host", "site.test:443", "site.test", "GET / HTTP/1.0", "https://site.test", nil},
		{"the whole origin", "site.test:443", "site.test", "OPTIONS * HTTP/1.1\nHost: site.test", "https://site.test", nil},
		{"the whole origin with another method", "site.test:443", "site.test", "GET * HTTP/1.1\nHost: site.test", "", ErrMalformed},
		{"in the clear", "site.test:80", "", "GET / HTTP/1.1\nHost: site.test", "http://site.test", nil},
		{"in the clear on another port", "site.test:8080", "", "GET / HTTP/1.1\nHost: site.test:8080", "http://site.test:8080", nil},
		{"foreign Host", "site.test:443", "site.test", "GET / HTTP/1.1\nHost: other.test", "", ErrMisdirected},
		{"foreign port", "site.test:443", "site.test", "GET / HTTP/1.1\nHost: site.test:8443", "", ErrMisdirected},
		{"foreign absolute form", "site.test:443", "site.test", "GET https://other.test/ HTTP/1.1\nHost: site.test", "", ErrMisdirected},
		{"absolute form of another scheme", "site.test:443", "site.test", "GET http://site.test/ HTTP/1.1\nHost: site.test", "", ErrMisdirected},
		{"absolute form of ftp", "site.test:443", "site.test", "GET ftp://site.test/ HTTP/1.1\nHost: site.test", "", ErrMisdirected},
		{"absolute form of ftp in the clear", "site.test:21", "", "GET ftp://site.test/ HTTP/1.1\nHost: site.test", "", ErrMisdirected},
		{"Host with userinfo", "site.test:443", "site.test", "GET / HTTP/1.1\nHost: site.test@other.test", "", ErrMalformed},
		{"Host with a path", "site.test:443", "site.test", "GET / HTTP/1.1\nHost: site.test/evil?", "", ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := read(t, c.head)
			o, err := robots.ParseOrigin("https", c.connect)
			if err != nil {
				t.Fatal(err)
			}
			tunnel := &Tunnel{Origin: o, serverName: c.sni}
			if c.sni != "" {
				tunnel.secured = time.Now()
			}
			got, err := target(r, nil, tunnel, r.RequestURI)
			if c.err != nil {
				if !errors.Is(err, c.err) {
					t.Errorf("got %v: %v; want %v", got, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Origin.String() != c.origin {
				t.Errorf("%s, want %s", got.Origin, c.origin)
			}
		})
	}
}
