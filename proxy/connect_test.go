package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

func TestConnectIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	for _, c := range []struct {
		name, target string
		status       int
		token        string
		reason       policy.Reason
	}{
		{"dead origin", testkit.DeadEnd(t, "127.0.0.1"), 502, "destination_unavailable", policy.ReasonOrigin},
		{"no such name", "nowhere.invalid:443", 502, "dns_error", policy.ReasonOrigin},
		{"forbidden port", "127.0.0.1:25", 403, "destination_ip_prohibited", policy.ReasonPort},
		{"forbidden address", "169.254.169.254:80", 403, "destination_ip_prohibited", policy.ReasonAddress},
		{"no port", "site.test", 400, "http_request_error", policy.ReasonMalformed},
		{"empty port", "site.test:", 400, "http_request_error", policy.ReasonMalformed},
		{"a whole address", "http://site.test:8080/a", 400, "http_request_error", policy.ReasonMalformed},
		{"userinfo", "a@site.test:443", 400, "http_request_error", policy.ReasonMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(r.records.all)
			resp := r.send("CONNECT " + c.target + " HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp.StatusCode != c.status || c.token != "" && !strings.Contains(resp.Header.Get("Proxy-Status"), c.token) {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
			if rec := r.records.last(t, before+1); !rec.Blocked() || rec.Decision.Reason != c.reason || rec.Status != c.status {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// TestConnectWithoutTLS checks that a tunnel may carry HTTP without TLS, whatever its port: nothing is sent
// to the origin before the client has said what it speaks.
func TestConnectWithoutTLS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	begins := make(chan string, 9) // what each connection begins with
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				line, _ := bufio.NewReader(c).ReadString('\n')
				begins <- line
				io.WriteString(c, "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			}()
		}
	}()
	r := start(t, setup{})
	conn, br := r.plainTunnel(l.Addr().String())
	defer conn.Close()
	io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	if robots, page := <-begins, <-begins; resp.StatusCode != http.StatusNotFound || robots != "GET /robots.txt HTTP/1.1\r\n" || page != "GET /a HTTP/1.1\r\n" {
		t.Errorf("%s, the origin got %q and %q", resp.Status, robots, page)
	}
}

// TestUntrustedOrigin checks that an origin whose certificate is not trusted gets no request.
func TestUntrustedOrigin(t *testing.T) {
	t.Parallel()
	untrusted := serve(t, true, "", hello)
	r := start(t, setup{change: func(o *proxy.Options) { o.Monitor = true }})
	conn := r.tunnel(untrusted.host())
	io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: "+untrusted.host()+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(resp.Header.Get("Proxy-Status"), "tls_certificate_error") {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if got := untrusted.paths(); got != nil {
		t.Errorf("the untrusted origin saw %q", got)
	}
}

func TestInsideTheTunnel(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, rules, hello)
	other := serve(t, true, rules, hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server, other.Server}})
	for _, c := range []struct {
		name, raw string
		status    int
	}{
		{"origin form", "GET /a HTTP/1.1\r\nHost: " + origin.host() + "\r\n\r\n", 200},
		{"HTTP/1.0 without Host", "GET /a HTTP/1.0\r\n\r\n", 200},
		{"a rule", "GET /private HTTP/1.1\r\nHost: " + origin.host() + "\r\n\r\n", 403},
		{"foreign Host", "GET /a HTTP/1.1\r\nHost: " + other.host() + "\r\n\r\n", 421},
		{"foreign absolute form", "GET https://" + other.host() + "/a HTTP/1.1\r\nHost: " + origin.host() + "\r\n\r\n", 421},
		{"a tunnel in a tunnel", "CONNECT " + other.host() + " HTTP/1.1\r\nHost: " + other.host() + "\r\n\r\n", 400},
		{"OPTIONS * (RFC 9112 3.2.4)", "OPTIONS * HTTP/1.1\r\nHost: " + origin.host() + "\r\n\r\n", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.tunnel(origin.host())
			io.WriteString(conn, c.raw)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			testkit.Must(t, err)
			if resp.StatusCode != c.status {
				t.Errorf("%s", resp.Status)
			}
			if strings.Contains(c.raw, "HTTP/1.0") && resp.TransferEncoding != nil {
				t.Errorf("chunks to an HTTP/1.0 client")
			}
		})
	}
	if got := other.paths(); got != nil {
		t.Errorf("the other origin saw %q", got)
	}
}

func TestDialFirstConnectionIsUsed(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}})
	c := r.client(false)
	for range 3 {
		_, _, err := get(c, origin.URL+"/")
		testkit.Must(t, err)
	}
	ports := map[string]bool{}
	for _, seen := range origin.seen {
		ports[seen.RemoteAddr] = true
	}
	if len(ports) != 1 {
		t.Errorf("the origin got requests on %d connections", len(ports))
	}
}

func TestPlainHTTPInsideATunnel(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{})
	for path, status := range map[string]int{"/page": 200, "/private": 403} {
		conn, br := r.dial()
		// All bytes arrive at once: the proxy must not lose what follows the CONNECT.
		io.WriteString(conn, "CONNECT "+origin.host()+" HTTP/1.1\r\nHost: "+origin.host()+"\r\n\r\nGET "+path+" HTTP/1.1\r\nHost: "+origin.host()+"\r\n\r\n")
		for _, want := range []int{200, status} {
			resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
			testkit.Must(t, err)
			if resp.StatusCode != want {
				t.Errorf("%s: %s, want %d", path, resp.Status, want)
			}
		}
	}
	if got := origin.paths(); slices.Contains(got, "/private") {
		t.Errorf("the origin saw %q", got)
	}
}

func TestPassThroughTunnels(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "User-agent: *\nDisallow: /private\n", hello)
	closed := serve(t, true, "User-agent: *\nDisallow: /\n", hello)
	for name, change := range map[string]func(*proxy.Options){
		"tls.intercept: false": func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } },
		"tls.tunnel":           func(o *proxy.Options) { o.PassThrough = func(host string) bool { return host == "127.0.0.1" } },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{origins: []*httptest.Server{origin.Server, closed.Server}, change: change})
			conn, br := r.dial()
			io.WriteString(conn, "CONNECT "+origin.host()+" HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
			testkit.Must(t, err)
			if resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
			// The certificate is the origin's own, so the tunnel is not intercepted.
			trust := origin.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			trust.ServerName = "127.0.0.1"
			tc := tls.Client(conn, trust)
			io.WriteString(tc, "GET /private HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			body, err := io.ReadAll(tc)
			testkit.Must(t, err)
			if !strings.HasSuffix(string(body), "hello from /private") {
				t.Errorf("%q", body)
			}
			tc.Close()
			if rec := r.records.last(t, 1); rec.Blocked() || rec.Decision.Reason != policy.ReasonTunnel || rec.Bytes < int64(len(body)) || rec.Status != 200 {
				t.Errorf("record: %+v", rec)
			}
			resp = r.send("CONNECT " + closed.host() + " HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp.StatusCode != 403 {
				t.Errorf("a completely disallowed site: %s", resp.Status)
			}
		})
	}
	if got := closed.paths(); !slices.Equal(got, []string{"/robots.txt", "/robots.txt"}) {
		t.Errorf("the disallowed site saw %q", got)
	}
}

// TestPassThroughHostOnPort80 checks that TLS on a port for plain HTTP is not intercepted either.
func TestPassThroughHostOnPort80(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.81:80")
	if err != nil {
		t.Skipf("needs port 80: %v", err)
	}
	defer l.Close()
	r := start(t, setup{change: func(o *proxy.Options) { o.PassThrough = func(host string) bool { return host == "127.0.0.81" } }})
	conn, br := r.dial()
	fmt.Fprintf(conn, "CONNECT 127.0.0.81:80 HTTP/1.1\r\nHost: 127.0.0.81:80\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // any certificate would be a mistake
	if err := client.Handshake(); err == nil || isTimeout(err) {
		t.Errorf("the handshake ended with %v", err)
	}
}
