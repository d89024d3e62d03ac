package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/dnstest"
	"robotsproxy/proxy/inbound"
	"robotsproxy/robots/testkit"
)

// A redirector stands for a firewall: clients that connect to it are served by ServeTransparent,
// with its own address as the original destination. That differs from the origin's address,
// 127.0.0.1, at the same port.
type redirector struct{ net.Listener }

// Addr returns another address than that of the listener, which a connection that was not redirected has.
func (redirector) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3), Port: 1} }

// redirect has the proxy serve redirected connections that were going to port, and returns
// the address that clients connect to.
func (r *rig) redirect(port string, nameOf inbound.NameOf) string {
	r.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.3", port))
	testkit.Must(r.t, err)
	served := make(chan error, 1)
	go func() { served <- r.handler.ServeTransparent(redirector{l}, nameOf) }()
	r.t.Cleanup(func() {
		r.handler.Shutdown(context.Background())
		if err := <-served; err != nil {
			r.t.Error(err)
		}
	})
	return l.Addr().String()
}

// directClient returns a client that knows of no proxy, and is redirected to addr.
func (r *rig) directClient(addr string, h2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: r.roots},
		ForceAttemptHTTP2: h2,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// exampleSite starts a site that is known as example.com, and a setup that resolves it.
func exampleSite(t *testing.T, over route) (*site, setup, string) {
	t.Helper()
	s := over.serve(t, "User-agent: *\nDisallow: /private\n", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page of "+r.Host) })
	names, err := dnstest.Start(map[string][][]string{"example.com.": {{"127.0.0.1"}}})
	testkit.Must(t, err)
	t.Cleanup(names.Close)
	_, port, _ := net.SplitHostPort(s.host())
	return s, setup{origins: []*httptest.Server{s.Server}, names: names}, port
}

// TestConnectionsToBothListeners checks that the limit of a client holds for its connections to the proxy's port and its
// redirected connections together.
func TestConnectionsToBothListeners(t *testing.T) {
	s, with, port := exampleSite(t, route{name: "HTTP"})
	with.change = func(o *proxy.Options) { o.MaxConnsPerClient = 1 }
	r := start(t, with)
	base := strings.Replace(s.URL, "127.0.0.1", "example.com", 1)
	if _, resp := r.connectAndGet(base + "/a"); resp == nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the first connection: %v", resp)
	}
	resp, err := r.directClient(r.redirect(port, nil), false).Get(base + "/a")
	testkit.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a redirected connection beside it: %s, want %d", resp.Status, http.StatusTooManyRequests)
	}
}

// TestTransparent checks that requests of clients that know of no proxy are judged like all others.
func TestTransparent(t *testing.T) {
	for _, over := range []route{{name: "HTTP"}, {name: "TLS", tls: true}, {name: "TLS with HTTP/2", tls: true, h2: true}} {
		t.Run(over.name, func(t *testing.T) {
			s, with, port := exampleSite(t, over)
			r := start(t, with)
			c := r.directClient(r.redirect(port, nil), over.h2)
			base := strings.Replace(s.URL, "127.0.0.1", "example.com", 1)
			resp, body, err := get(c, base+"/page")
			testkit.Must(t, err)
			if resp.StatusCode != http.StatusOK || body != "page of example.com:"+port || resp.ProtoMajor == 2 != over.h2 {
				t.Errorf("%s %s %q", resp.Proto, resp.Status, body)
			}
			resp, _, err = get(c, base+"/private/page")
			testkit.Must(t, err)
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("a disallowed page: %s", resp.Status)
			}
			if got := fmt.Sprint(s.paths()); got != "[/robots.txt /page]" {
				t.Errorf("the origin saw %s", got)
			}
			if rec := r.records.of(t, policy.ReasonRule); !rec.Transparent || rec.Request.Origin.Host != "example.com" {
				t.Errorf("record of %v, transparent: %t", rec.Request.Origin, rec.Transparent)
			}
		})
	}
}

// TestTransparentOrigin checks which origin a redirected connection goes to.
func TestTransparentOrigin(t *testing.T) {
	_, with, port := exampleSite(t, route{tls: true})
	plain := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) })
	_, plainPort, _ := net.SplitHostPort(plain.host())
	r := start(t, with)
	unnamed := r.redirect(port, nil)

	tlsHost := func(addr, serverName, host string) func() (string, error) {
		return func() (string, error) {
			c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: serverName, InsecureSkipVerify: true})
			if err != nil {
				return "", err
			}
			defer c.Close()
			return exchange(c, "GET /page HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		}
	}
	plainHost := func(addr, request string) func() (string, error) {
		return func() (string, error) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return "", err
			}
			defer c.Close()
			return exchange(c, request)
		}
	}
	for _, c := range []struct {
		name string
		send func() (string, error)
		want string // in the answer
	}{
		{"TLS by its server name", tlsHost(unnamed, "example.com", "example.com"), "200 OK"},
		{"TLS for another host than its server name", tlsHost(unnamed, "example.com", "other.test"), "421 "},
		{"TLS without a server name goes to the address", tlsHost(unnamed, "", "127.0.0.3"), "502 "}, // where no origin listens
		{"HTTP by Host and its port", plainHost(unnamed, "GET /page HTTP/1.1\r\nHost: 127.0.0.1:"+plainPort+"\r\n\r\n"), "127.0.0.1:" + plainPort},
		{"HTTP by Host for a forbidden address", plainHost(unnamed, "GET /page HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n"), "403 "},
		{"HTTP without a Host that can be read", plainHost(unnamed, "GET /page HTTP/1.1\r\nHost: a..b\r\n\r\n"), "400 "},
		{"a request as to a proxy", plainHost(unnamed, "GET "+plain.URL+"/page HTTP/1.1\r\nHost: x\r\n\r\n"), "127.0.0.1:" + plainPort},
		{"a CONNECT as to a proxy", plainHost(unnamed, "CONNECT "+plain.host()+" HTTP/1.1\r\nHost: "+plain.host()+"\r\n\r\n"), "200 Connection established"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.send()
			if err != nil && !strings.Contains(c.want, "502") || err == nil && !strings.Contains(got, c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// exchange sends a request and returns the answer with the body.
func exchange(c net.Conn, request string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	connect := strings.HasPrefix(request, "CONNECT")
	method := http.MethodGet
	if connect {
		method = http.MethodConnect
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return "", err
	}
	if connect {
		return resp.Status, nil
	}
	body, err := io.ReadAll(resp.Body)
	return resp.Status + " " + string(body), err
}

// TestTransparentNames checks that an address for which the caller has a name is that host, until the
// connection is closed.
func TestTransparentNames(t *testing.T) {
	s, with, port := exampleSite(t, route{tls: true})
	r := start(t, with)
	released := make(chan struct{})
	nameOf := func(addr netip.Addr) (string, func()) {
		if addr.String() != "127.0.0.3" {
			t.Errorf("asked for the name of %v", addr)
		}
		return "example.com", func() { close(released) }
	}
	c, err := tls.Dial("tcp", r.redirect(port, nameOf), &tls.Config{InsecureSkipVerify: true}) // sends no server name
	testkit.Must(t, err)
	defer c.Close()
	if got, err := exchange(c, "GET /page HTTP/1.1\r\nHost: example.com:"+port+"\r\n\r\n"); err != nil || !strings.HasPrefix(got, "200") {
		t.Errorf("%q, %v", got, err)
	}
	if leaf := c.ConnectionState().PeerCertificates[0]; leaf.VerifyHostname("example.com") != nil {
		t.Errorf("certificate for %v", leaf.DNSNames)
	}
	if got := fmt.Sprint(s.paths()); got != "[/robots.txt /page]" {
		t.Errorf("the origin saw %s", got)
	}
	select {
	case <-released:
		t.Error("the name was released before the connection was closed")
	default:
	}
	c.Close()
	testkit.Within(t, "the name is released", released)
}

// TestTransparentPassThrough checks a redirected connection with TLS that the proxy does not intercept.
func TestTransparentPassThrough(t *testing.T) {
	s, with, port := exampleSite(t, route{tls: true})
	with.change = func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } }
	r := start(t, with)
	r.roots.AddCert(s.Certificate())
	resp, body, err := get(r.directClient(r.redirect(port, nil), false), "https://example.com:"+port+"/page")
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusOK || body != "page of example.com:"+port || !resp.TLS.PeerCertificates[0].Equal(s.Certificate()) {
		t.Errorf("%s %q", resp.Status, body)
	}
}

// TestConfined checks that what cannot be judged is reset and recorded.
func TestConfined(t *testing.T) {
	const handshakeRecord = "\x16\x03\x01"
	for _, c := range []struct {
		name  string
		sent  string
		ports []egress.PortRange
		err   string // in the record
	}{
		{"the banner of SSH", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", nil, "neither HTTP nor TLS"},
		{"a binary protocol", "\x00\x00\x00\x08\x04\xd2\x16\x2f", nil, "neither HTTP nor TLS"},
		{"the beginning of a method", "GE", nil, "neither HTTP nor TLS"},
		{"the beginning of a ClientHello", handshakeRecord + "\x01\x00\x01", nil, "neither HTTP nor TLS"},
		{"a ClientHello without an end", handshakeRecord + "\x40\x00\x01\x00\xff\xff" + strings.Repeat("\x00", 20<<10), nil, "neither HTTP nor TLS"},
		{"nothing", "", nil, "sent nothing"},
		{"a forbidden port", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", []egress.PortRange{{First: 1, Last: 1}}, "port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, with, port := exampleSite(t, route{})
			with.change = func(o *proxy.Options) {
				o.HeadTimeout = 50 * time.Millisecond
				if c.ports != nil {
					var err error
					o.Egress, err = egress.New(egress.Options{Ports: c.ports})
					testkit.Must(t, err)
					t.Cleanup(o.Egress.Close)
				}
			}
			r := start(t, with)
			if got, err := untilReset(r.redirect(port, nil), c.sent); err == nil || got != "" {
				t.Errorf("the client got %q, %v; want a reset", got, err)
			}
			rec := r.records.of(t, policy.ReasonConfined)
			if !rec.Transparent || rec.Target != "127.0.0.3:"+port || !strings.Contains(rec.Err.Error(), c.err) {
				t.Errorf("record: %q, %v", rec.Target, rec.Err)
			}
			if got := s.paths(); len(got) > 0 {
				t.Errorf("the origin saw %v", got)
			}
		})
	}
}

// untilReset connects, sends bytes and reads to the end. The connection may be reset at any step.
func untilReset(addr, sent string) (string, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, sent); err != nil {
		return "", err // reported once: a read after it would find the end
	}
	b, err := io.ReadAll(conn)
	return string(b), err
}

// TestTransparentLoop checks that the proxy's own connection is not served when it comes back.
func TestTransparentLoop(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			_, with, port := exampleSite(t, route{tls: true})
			with.change = func(o *proxy.Options) { o.PassThrough = func(host string) bool { return host == "127.0.0.3" } }
			r := start(t, with)
			resp, _, err := get(r.client(false), scheme+"://"+r.redirect(port, nil)+"/page")
			if err == nil && resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s", resp.Status)
			}
			if rec := r.records.of(t, policy.ReasonLoop); rec.Target != "127.0.0.3:"+port {
				t.Errorf("record of %q", rec.Target)
			}
		})
	}
}

// TestNotRedirected checks that a client that takes the transparent listener for a proxy is refused.
func TestNotRedirected(t *testing.T) {
	r := start(t, setup{})
	l, err := inbound.ListenTransparent("127.0.0.1:0")
	testkit.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- r.handler.ServeTransparent(l, nil) }()
	if got, err := untilReset(l.Addr().String(), "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"); err == nil || got != "" {
		t.Errorf("the client got %q, %v; want a reset", got, err)
	}
	if rec := r.records.of(t, policy.ReasonConfined); !strings.Contains(rec.Err.Error(), "not redirected") {
		t.Errorf("record: %v", rec.Err)
	}
	r.handler.Shutdown(context.Background())
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestTransparentClients checks that redirected clients are known by their networks alone.
func TestTransparentClients(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, c := range []struct {
		name    string
		clients []policy.Client
		want    string // status, or "" for a reset
	}{
		{"a network", []policy.Client{{Name: "lab", Networks: loopback}}, "200"},
		{"another network", []policy.Client{{Name: "lab", Networks: elsewhere}}, "403"},
		{"a password", []policy.Client{{Name: "lab", PasswordHash: hashOf(t, secret)}}, "403"},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", c.name, secure), func(t *testing.T) {
				s, with, port := exampleSite(t, route{tls: secure})
				with.clients = c.clients
				r := start(t, with)
				req, err := http.NewRequest(http.MethodGet, strings.Replace(s.URL, "127.0.0.1", "example.com", 1)+"/page", nil)
				testkit.Must(t, err)
				req.Header.Set("Proxy-Authorization", strings.TrimSpace(strings.TrimPrefix(basic("lab", secret), "Proxy-Authorization: ")))
				resp, err := r.directClient(r.redirect(port, nil), false).Do(req)
				status := "reset"
				if err == nil {
					resp.Body.Close()
					status = resp.Status[:3]
				}
				if want := c.want; status != want && !(secure && want == "403" && status == "reset") {
					t.Errorf("%s, %v; want %s", status, err, want)
				}
				if c.want == "403" {
					if rec := r.records.of(t, policy.ReasonAuth); !rec.Transparent {
						t.Error("the record does not say that the connection was redirected")
					}
					if got := s.paths(); len(got) > 0 {
						t.Errorf("the origin saw %v", got)
					}
				}
			})
		}
	}
}

// TestTransparentClientsAfterAReload checks that a redirected client that is no longer admitted is not asked for a login,
// which it could not send, on an open connection either.
func TestTransparentClientsAfterAReload(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, over := range []route{{name: "HTTP"}, {name: "TLS", tls: true}, {name: "TLS with HTTP/2", tls: true, h2: true}} {
		t.Run(over.name, func(t *testing.T) {
			s, with, port := exampleSite(t, over)
			with.clients = []policy.Client{{Name: "lab", Networks: loopback}}
			r := startRuled(t, with)
			c := r.directClient(r.redirect(port, nil), over.h2)
			for _, want := range []int{http.StatusOK, http.StatusForbidden} {
				resp, _, err := get(c, strings.Replace(s.URL, "127.0.0.1", "example.com", 1)+"/page")
				testkit.Must(t, err)
				if resp.StatusCode != want || resp.Header.Get("Proxy-Authenticate") != "" {
					t.Errorf("%s with Proxy-Authenticate %q, want %d without", resp.Status, resp.Header.Get("Proxy-Authenticate"), want)
				}
				r.use(func(_ *proxy.Rules, o *policy.Options) {
					o.Clients = []policy.Client{{Name: "lab", PasswordHash: hashOf(t, secret)}}
				})
			}
		})
	}
}

// BenchmarkRedirected is BenchmarkRequest on redirected connections.
func BenchmarkRedirected(b *testing.B) {
	for _, route := range routes[:2] {
		b.Run(route.name, func(b *testing.B) {
			r, origin := startForBenchmark(b, route, pageSize, func(*proxy.Options) {})
			_, port, _ := net.SplitHostPort(origin.host())
			addr := r.redirect(port, func(netip.Addr) (string, func()) { return "127.0.0.1", nil })
			open := func() net.Conn {
				conn, err := net.Dial("tcp", addr)
				testkit.Must(b, err)
				if route.tls {
					conn = tls.Client(conn, &tls.Config{RootCAs: r.roots, ServerName: "127.0.0.1"})
				}
				b.Cleanup(func() { conn.Close() })
				return conn
			}
			benchmarkRequests(b, open, "GET /page HTTP/1.1\r\nHost: "+origin.host()+"\r\nUser-Agent: FooBot/1.0\r\n\r\n", pageSize)
		})
	}
}
