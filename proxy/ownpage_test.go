package proxy_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/proxy/guide"
	"robotsproxy/robots/testkit"
)

// guided makes the proxy serve its own page.
func guided(t *testing.T) func(*proxy.Options) {
	return func(o *proxy.Options) {
		page, err := guide.New(guide.Options{CAPEM: o.Authority.CertPEM(), Ready: func() error { return nil }, Version: "test"})
		testkit.Must(t, err)
		o.OwnPage = page
	}
}

// none fails the test if a record was written.
func (r *records) none(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.all {
		t.Errorf("recorded: %+v", rec)
	}
}

// toSelf replaces SELF with the proxy's own address and PORT with its port.
func (r *rig) toSelf(raw string) string {
	_, port, _ := net.SplitHostPort(r.url.Host)
	return strings.NewReplacer("SELF", r.url.Host, "PORT", port).Replace(raw)
}

// TestOwnPage checks that requests to the proxy itself get the page and leave no record.
func TestOwnPage(t *testing.T) {
	t.Parallel()
	r := start(t, setup{change: guided(t)})
	for _, c := range []struct{ name, request, want string }{
		{"origin form (RFC 9112 3.2.1)", "GET / HTTP/1.1\r\nHost: SELF\r\n\r\n", "this is a proxy"},
		{"a query", "GET /?x=y HTTP/1.1\r\nHost: SELF\r\n\r\n", "this is a proxy"},
		{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "http://SELF/ca.pem"},
		{"an empty Host", "GET / HTTP/1.1\r\nHost: \r\n\r\n", "http://SELF/ca.pem"},
		{"by localhost", "GET /proxy.pac HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", `"PROXY localhost:PORT"`},
		{"by localhost through a forwarded port", "GET /proxy.pac HTTP/1.1\r\nHost: localhost:1234\r\n\r\n", `"PROXY localhost:1234"`},
		{"by another address", "GET /proxy.pac HTTP/1.1\r\nHost: 192.0.2.1:1234\r\n\r\n", `"PROXY 192.0.2.1:1234"`},
		{"absolute form (RFC 9112 3.2.2)", "GET http://SELF/proxy.pac HTTP/1.1\r\nHost: other.test\r\n\r\n", `"PROXY SELF"`},
		{"absolute form, in capitals", "GET HTTP://SELF/robots.txt HTTP/1.1\r\nHost: SELF\r\n\r\n", "Disallow: /"},
		{"absolute form by localhost", "GET http://LOCALHOST:PORT/robots.txt HTTP/1.1\r\nHost: x\r\n\r\n", "Disallow: /"},
		{"absolute form by a mapped address", "GET http://[::ffff:127.0.0.1]:PORT/robots.txt HTTP/1.1\r\nHost: x\r\n\r\n", "Disallow: /"},
		{"for a browser", "GET / HTTP/1.1\r\nHost: SELF\r\nAccept: text/html\r\n\r\n", "<!DOCTYPE html>"},
		{"the certificate", "GET /ca.pem HTTP/1.1\r\nHost: SELF\r\n\r\n", "-----BEGIN CERTIFICATE-----"},
		{"with our Via", "GET / HTTP/1.1\r\nHost: SELF\r\nVia: 1.1 robotsproxy-00000000\r\n\r\n", "this is a proxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := r.send(r.toSelf(c.request))
			body, err := io.ReadAll(resp.Body)
			testkit.Must(t, err)
			if want := r.toSelf(c.want); resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
				t.Errorf("%s, no %q:\n%s", resp.Status, want, body)
			}
			if got := resp.Header.Get("Proxy-Status"); !strings.HasPrefix(got, "robotsproxy") {
				t.Errorf("Proxy-Status: %q", got)
			}
		})
	}
	if resp := r.send(r.toSelf("HEAD / HTTP/1.1\r\nHost: SELF\r\nConnection: close\r\n\r\n")); resp.StatusCode != http.StatusOK || resp.ContentLength < 100 {
		t.Errorf("HEAD: %v", resp)
	}
	if resp := r.send(r.toSelf("GET /favicon.ico HTTP/1.1\r\nHost: SELF\r\n\r\n")); resp.StatusCode != http.StatusNotFound {
		t.Errorf("favicon: %v", resp)
	}
	r.records.none(t)
}

// TestNotTheOwnPage checks that similar requests are refused and recorded as usual.
func TestNotTheOwnPage(t *testing.T) {
	t.Parallel()
	r := start(t, setup{change: guided(t), private: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	for _, c := range []struct {
		name, request string
		status        int
		reason        policy.Reason
		linked        bool // the response names the page's address
	}{
		{"another path", "GET /a HTTP/1.1\r\nHost: SELF\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"a path that resolves to a page", "GET /x/../ca.pem HTTP/1.1\r\nHost: SELF\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"two slashes", "GET //ca.pem HTTP/1.1\r\nHost: SELF\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"a fragment", "GET /#a HTTP/1.1\r\nHost: SELF\r\n\r\n", 400, policy.ReasonMalformed, false},
		{"another method", "POST / HTTP/1.1\r\nHost: SELF\r\nContent-Length: 0\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: SELF\r\n\r\n", 400, policy.ReasonMalformed, false},
		{"a body", "GET / HTTP/1.1\r\nHost: SELF\r\nContent-Length: 1\r\n\r\nx", 400, policy.ReasonMalformed, true},
		{"a body in chunks", "GET / HTTP/1.1\r\nHost: SELF\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"a site that resolves to the proxy", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"its robots.txt", "GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"a foreign name that resolves to loopback", "GET / HTTP/1.1\r\nHost: evil.test:PORT\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"a name that starts with localhost", "GET / HTTP/1.1\r\nHost: localhost.evil.test:PORT\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"an invalid name that browsers accept", "GET / HTTP/1.1\r\nHost: a!b.evil.test:PORT\r\n\r\n", 400, policy.ReasonMalformed, true},
		{"our address, another path", "GET http://SELF/a HTTP/1.1\r\nHost: SELF\r\n\r\n", 403, policy.ReasonAddress, true},
		{"our address by https", "GET https://SELF/ HTTP/1.1\r\nHost: SELF\r\n\r\n", 403, policy.ReasonAddress, true},
		{"our address, with a password", "GET http://u:p@SELF/ HTTP/1.1\r\nHost: SELF\r\n\r\n", 400, policy.ReasonMalformed, false},
		{"our address by ftp", "GET ftp://SELF/robots.txt HTTP/1.1\r\nHost: SELF\r\n\r\n", 403, policy.ReasonAddress, true},
		{"another port", "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n", 403, policy.ReasonPort, false},
		{"another loopback address", "GET http://127.0.0.2:PORT/ HTTP/1.1\r\nHost: SELF\r\n\r\n", 403, policy.ReasonAddress, false},
		{"a tunnel to it", "CONNECT SELF HTTP/1.1\r\nHost: SELF\r\n\r\n", 403, policy.ReasonAddress, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.records.forget()
			resp := r.send(r.toSelf(c.request))
			body, err := io.ReadAll(resp.Body)
			testkit.Must(t, err)
			if resp.StatusCode != c.status || strings.Contains(string(body), "this is a proxy, not") {
				t.Errorf("%s\n%s", resp.Status, body)
			}
			if linked := strings.Contains(string(body), "at its own address"); linked != c.linked {
				t.Errorf("names the page's address: %t, want %t\n%s", linked, c.linked, body)
			}
			if rec := r.records.last(t, 1); rec.Decision.Reason != c.reason {
				t.Errorf("recorded as %s", rec.Decision.Reason)
			}
		})
	}
}

// TestNoOwnPage checks that requests to the proxy itself are malformed if it has no page.
func TestNoOwnPage(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	resp := r.send(r.toSelf("GET / HTTP/1.1\r\nHost: SELF\r\n\r\n"))
	body, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusBadRequest || strings.Contains(string(body), "own address") {
		t.Errorf("%s\n%s", resp.Status, body)
	}
}

// TestOwnPageIsInNoTunnel checks that the page's paths lead to the origin inside a tunnel.
func TestOwnPageIsInNoTunnel(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		origin := serve(t, secure, "", hello)
		r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: guided(t)})
		var c net.Conn
		if secure {
			c = r.tunnel(origin.host())
		} else {
			c, _ = r.plainTunnel(origin.host())
		}
		_, err := io.WriteString(c, "GET /ca.pem HTTP/1.1\r\nHost: "+origin.host()+"\r\nConnection: close\r\n\r\n")
		testkit.Must(t, err)
		all, err := io.ReadAll(c)
		testkit.Must(t, err)
		if bytes.Contains(all, []byte("CERTIFICATE")) || !bytes.Contains(all, []byte("hello")) {
			t.Errorf("TLS %t: %s", secure, all)
		}
		if got := origin.paths(); len(got) != 2 || got[1] != "/ca.pem" {
			t.Errorf("TLS %t: arrived %q", secure, got)
		}
	}
}

// TestOwnPageNeedsNoLogin checks that every client may read the page, within its connection limit.
func TestOwnPageNeedsNoLogin(t *testing.T) {
	t.Parallel()
	r := start(t, setup{
		clients: []policy.Client{{Name: "lab-a", PasswordHash: "$2y$04$7qHcXGZ6hjF0.SYxYsFhiOQvFWSQyd1EhnKPhPmfvQuMsw3IrNUHC"}},
		change: func(o *proxy.Options) {
			guided(t)(o)
			o.MaxConnsPerClient = 1
		},
	})
	c, br := r.dial()
	for range 2 { // the connection is persistent
		_, err := io.WriteString(c, r.toSelf("GET / HTTP/1.1\r\nHost: SELF\r\n\r\n"))
		testkit.Must(t, err)
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s %v", resp.Status, err)
		}
	}
	r.records.none(t)
	if resp := r.send(r.toSelf("GET / HTTP/1.1\r\nHost: SELF\r\n\r\n")); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("over the connection limit: %s", resp.Status)
	}
	r.records.last(t, 1)
}

// HTTP/2 with prior knowledge: :authority is the requested address (RFC 9113 8.3.1).
func TestOwnPageByPriorKnowledge(t *testing.T) {
	t.Parallel()
	r := start(t, setup{change: guided(t), private: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	for _, c := range []struct{ scheme, authority, path, want string }{
		{"http", "SELF", "/", "200"},
		{"http", "SELF", "/favicon.ico", "404"},
		{"http", "SELF", "/a", "403"},
		{"http", "SELF", "//", "403"},
		{"https", "SELF", "/", "403"},
		{"http", "127.0.0.2:PORT", "/", "403"},
		{"http", "", "/", "400"},
	} {
		r.records.forget()
		f := r.http2ByPriorKnowledge(t)
		fields := []string{":method", "GET", ":scheme", c.scheme, ":path", c.path}
		if c.authority != "" {
			fields = append(fields, ":authority", r.toSelf(c.authority))
		}
		if got := f.outcome(f.open("", fields...)); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
		if c.want == "200" || c.want == "404" {
			r.records.none(t)
		}
	}
}

// TestOwnPageOverTLS checks that a TLS port serves the page only over TLS.
func TestOwnPageOverTLS(t *testing.T) {
	t.Parallel()
	r := start(t, setup{front: overTLS, change: guided(t)})
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: SELF\r\n\r\n", "GET https://SELF/ HTTP/1.1\r\nHost: SELF\r\n\r\n", "GET http://SELF/ HTTP/1.1\r\nHost: SELF\r\n\r\n",
	} {
		if resp := r.send(r.toSelf(request)); resp.StatusCode != http.StatusOK {
			t.Errorf("%q: %s", request, resp.Status)
		}
	}
	r.records.none(t)
}

// TestNamesOfTheOwnPage checks that, on a non-loopback address, the page is served under any name with
// the proxy's port, but not under a name without a port.
func TestNamesOfTheOwnPage(t *testing.T) {
	t.Parallel()
	r := start(t, setup{change: guided(t), listen: func(l net.Listener) net.Listener { return remote{l} }})
	for host, want := range map[string]int{
		"proxy.example:8080": 200, "proxy.example": 400, "192.0.2.1": 200, "a!b:8080": 200, "localhost:8080": 200,
	} {
		if resp := r.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"); resp.StatusCode != want {
			t.Errorf("%s: %s", host, resp.Status)
		}
	}
	resp := r.send("GET http://192.0.2.1:8080/proxy.pac HTTP/1.1\r\nHost: x\r\n\r\n")
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"PROXY 192.0.2.1:8080"`) {
		t.Errorf("%s %s", resp.Status, body)
	}
	if resp := r.send("GET http://localhost:8080/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode == http.StatusOK {
		t.Error("localhost is accepted on a non-loopback address")
	}
}

// remote reports 192.0.2.1:8080 as the local address of connections.
type remote struct{ net.Listener }

func (l remote) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remoteConn{c}, nil
}

type remoteConn struct{ net.Conn }

func (remoteConn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080}
}
