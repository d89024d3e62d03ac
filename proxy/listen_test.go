package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/proxy/inbound"
	"robotsproxy/robots/testkit"
)

// connectAndGet opens a connection and requests address on it. The response is nil if there is none.
func (r *rig) connectAndGet(address string) (net.Conn, *http.Response) {
	r.t.Helper()
	c, br := r.dial()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", address)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return c, nil
	}
	io.Copy(io.Discard, resp.Body)
	return c, resp
}

func TestConnectionsOfOneClient(t *testing.T) {
	t.Parallel()
	const most, answered = 3, 16
	origin := serve(t, false, "", hello)
	r := start(t, setup{change: func(o *proxy.Options) { o.MaxConnsPerClient = most }})
	first, _ := r.connectAndGet(origin.URL)
	for range most - 1 {
		if _, resp := r.connectAndGet(origin.URL); resp == nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("within the limit of %d: %v", most, resp)
		}
	}
	over, resp := r.connectAndGet(origin.URL)
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests || !resp.Close || resp.Header.Get("Retry-After") == "" ||
		!strings.HasPrefix(resp.Header.Get("Proxy-Status"), "robotsproxy; error=connection_limit_reached") {
		t.Fatalf("over the limit: %v", resp)
	}
	if rec := r.records.of(t, policy.ReasonLimit); !rec.Blocked() || rec.Status != http.StatusTooManyRequests {
		t.Errorf("record: %+v", rec)
	}
	if _, err := over.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the excess connection stays open: %v", err)
	}
	// The proxy keeps a limited number of excess connections open to answer them.
	silent := make([]net.Conn, answered)
	for i := range silent {
		silent[i], _ = r.dial()
		silent[i].Write([]byte("G"))
	}
	if c, _ := r.dial(); !closesSilently(c) {
		t.Error("too many excess connections are answered")
	}
	if n := len(origin.paths()); n != 1+most {
		t.Errorf("%d requests arrived, want robots.txt and %d", n, most)
	}
	// A closed connection frees its slot for another client once the proxy has noticed.
	for _, c := range append(silent, first) {
		c.Close()
	}
	testkit.Eventually(t, "another connection is accepted", func() bool {
		c, resp := r.connectAndGet(origin.URL)
		c.Close()
		return resp != nil && resp.StatusCode == http.StatusOK
	})
}

// closesSilently reports whether the other side closes a connection without sending anything.
func closesSilently(c net.Conn) bool {
	n, err := c.Read(make([]byte, 1))
	return n == 0 && err != nil && !isTimeout(err)
}

func TestConnectionsOfAll(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	logged := &lines{}
	r := start(t, setup{change: func(o *proxy.Options) {
		o.MaxConns, o.Log = 2, slog.New(slog.NewTextHandler(logged, nil))
	}})
	first, _ := r.connectAndGet(origin.URL)
	r.connectAndGet(origin.URL)
	third, br := r.dial()
	fmt.Fprintf(third, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL)
	testkit.Eventually(t, "the limit is logged", func() bool { return logged.has("limits.connections reached") })
	if n := len(origin.paths()); n != 3 {
		t.Fatalf("%d requests arrived, want robots.txt and two", n)
	}
	first.Close()
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the waiting connection: %v %v", resp, err)
	}
}

// lines is a log buffer.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

// emfileListener fails as if the process had no file descriptors left.
type emfileListener struct {
	net.Listener
	left chan struct{} // one value per failure
}

func (l emfileListener) Accept() (net.Conn, error) {
	select {
	case <-l.left:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	default:
		return l.Listener.Accept()
	}
}

func TestFileDescriptorsExhausted(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	logged := &lines{}
	short := make(chan struct{}, 5)
	for range cap(short) {
		short <- struct{}{}
	}
	r := start(t, setup{
		listen: func(l net.Listener) net.Listener { return emfileListener{l, short} },
		change: func(o *proxy.Options) { o.Log = slog.New(slog.NewTextHandler(logged, nil)) },
	})
	if _, resp := r.connectAndGet(origin.URL); resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %v", resp)
	}
	if s := r.handler.Stats(); s.Failed != uint64(cap(short)) || s.Conns.Total != 1 {
		t.Errorf("counted: %+v", s)
	}
	if !logged.has("accept failed") || !logged.has("too many open files") {
		t.Errorf("log: %s", logged.text.String())
	}
}

// RFC 9113 3.3: HTTP/2 with prior knowledge inside a plain tunnel.
func TestHTTP2InTheClearInsideATunnel(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{})
	var spoken http.Protocols
	spoken.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &spoken, DialContext: func(context.Context, string, string) (net.Conn, error) {
		c, br := r.dial()
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", origin.host())
		resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%v %w", resp, err)
		}
		return c, nil
	}}
	defer tr.CloseIdleConnections()
	for path, want := range map[string]int{"/page": 200, "/private": 403} {
		resp, _, err := get(&http.Client{Transport: tr}, origin.URL+path)
		if err != nil || resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("%s: %v %v", path, resp, err)
		}
	}
}

// TestPassThroughTunnelInAStream checks a passed-through tunnel in an HTTP/2 stream.
func TestPassThroughTunnelInAStream(t *testing.T) {
	t.Parallel()
	origin := route{tls: true}.serve(t, "User-agent: *\nDisallow: /x", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } }})
	c := route{tls: true, front: withHTTP2}.client(r)
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(origin.Certificate())
	resp, body, err := get(c, origin.URL+"/page")
	if err != nil || body != "hello from /page" || resp.Header.Get("Via") != "" {
		t.Errorf("%v %q %v", resp, body, err)
	}
	c.CloseIdleConnections()
	if rec := r.records.last(t, 1); rec.Decision.Reason != policy.ReasonTunnel || rec.Status != 200 || rec.Bytes == 0 || rec.Err != nil {
		t.Errorf("record: %+v", rec)
	}
}

// TestConnectInAStreamIsRefused checks that a refused CONNECT in a stream gets a normal response.
func TestConnectInAStreamIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	_, err := r.streamTo(r.http2Transport(), "127.0.0.1:22")
	if err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "destination_ip_prohibited") {
		t.Errorf("%v", err)
	}
}

func TestSilentConnectionIsClosed(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	const limit = 2 * time.Second // a request has to arrive within it as well
	r := start(t, setup{change: func(o *proxy.Options) { o.HeadTimeout = limit }})
	origin := serve(t, false, "", hello)
	silent, _ := r.dial()
	if !closesSilently(silent) {
		t.Error("on the proxy's own port")
	}
	c, br := r.dial()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", origin.host())
	if resp, err := http.ReadResponse(bufio.NewReader(br), &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	io.WriteString(c, "PRI * HTTP/2.0\r\n")
	if !closesSilently(c) {
		t.Error("in a tunnel")
	}
}

// TestMalformedRequests covers requests that net/http cannot parse: they are refused and recorded.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	plain := serve(t, false, "", hello)
	for name, front := range map[string]front{"in the clear": inTheClear, "over TLS": overTLS} {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{front: front, origins: []*httptest.Server{origin.Server}})
			within := map[string]func() (net.Conn, *bufio.Reader){"own port": r.dial}
			if front == inTheClear {
				within["in a tunnel"] = func() (net.Conn, *bufio.Reader) {
					c := r.tunnel(origin.host())
					return c, bufio.NewReader(c)
				}
				within["in a tunnel in the clear"] = func() (net.Conn, *bufio.Reader) { return r.plainTunnel(plain.host()) }
			}
			n := 0
			for where, dial := range within {
				for raw, want := range map[string]int{
					"\r\n\r\n":               400,
					"x\r\n\r\n":              400,
					"PRI\r\n\r\n":            400,
					"PRI * HTTP/1\r\n":       400,
					"GET / HTTP/1.1\r\n\r\n": 400, // no Host
					"GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n":                                  400,
					"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n":             501,
					"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 100<<10) + "\r\n\r\n": 431,
					"GET / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n":                        417,
				} {
					c, br := dial()
					io.WriteString(c, raw)
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						t.Errorf("%s: %.40q: %v", where, raw, err)
						continue
					}
					body, _ := io.ReadAll(resp.Body)
					n++
					rec := r.records.last(t, n)
					if resp.StatusCode != want || !resp.Close || resp.Header.Get("Proxy-Status") != `robotsproxy; error=http_request_error; details="malformed"` || !strings.Contains(string(body), rec.ID) {
						t.Errorf("%s: %.40q: %s %v %s", where, raw, resp.Status, resp.Header, body)
					}
					if rec.Status != want || rec.Decision.Reason != policy.ReasonMalformed || !rec.Blocked() || rec.Request.Client != "127.0.0.1" {
						t.Errorf("%s: %.40q: record %+v", where, raw, rec)
					}
					c.Close()
				}
			}
		})
	}
	if n := len(origin.paths()) + len(plain.paths()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// TestRequestByteByByte checks that a request may arrive byte by byte.
func TestRequestByteByByte(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	origin := serve(t, false, "", hello)
	c, br := r.dial()
	for _, b := range []byte("GET " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\n\r\n") {
		c.Write([]byte{b})
	}
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp, err)
	}
}

// TestBodyThatLooksLikeAResponse checks that bodies pass unchanged, whatever they contain.
func TestBodyThatLooksLikeAResponse(t *testing.T) {
	t.Parallel()
	const text = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(2*len(text)))
		for range 2 {
			io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
	})
	r := start(t, setup{})
	c := r.client(false)
	for range 2 { // the second on a persistent connection
		if _, body, err := get(c, origin.URL+"/"); err != nil || body != text+text {
			t.Errorf("%q %v", body, err)
		}
	}
}

// TestConnectionsOfANamedClient checks that connections are counted by client name, whatever their address.
func TestConnectionsOfANamedClient(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	r := start(t, setup{
		clients: []policy.Client{{Name: "lab-a", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
		change:  func(o *proxy.Options) { o.MaxConnsPerClient = 2 },
	})
	first, _ := r.connectAndGet(origin.URL)
	r.connectAndGet(origin.URL)
	if _, resp := r.connectAndGet(origin.URL); resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("over the limit: %v", resp)
	}
	if rec := r.records.of(t, policy.ReasonLimit); rec.Request.Client != "lab-a" {
		t.Errorf("record: %+v", rec)
	}
	first.Close()
	testkit.Eventually(t, "another connection is accepted", func() bool {
		_, resp := r.connectAndGet(origin.URL)
		return resp != nil && resp.StatusCode == http.StatusOK
	})
}

// TestFailedHandshakes checks that plain HTTP on a TLS port gets an explanation, and that a handshake that
// fails before a request leaves no record.
func TestFailedHandshakes(t *testing.T) {
	t.Parallel()
	r := start(t, setup{front: overTLS})
	distrusts, err := net.Dial("tcp", r.url.Host)
	testkit.Must(t, err)
	defer distrusts.Close()
	if err := tls.Client(distrusts, &tls.Config{ServerName: "example.com"}).Handshake(); err == nil {
		t.Fatal("an untrusted certificate is accepted")
	}
	clear, err := net.Dial("tcp", r.url.Host)
	testkit.Must(t, err)
	defer clear.Close()
	io.WriteString(clear, "GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(clear), nil)
	testkit.Must(t, err)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "This port requires TLS.") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if rec := r.records.last(t, 1); rec.Status != 400 || rec.Err == nil || !strings.Contains(rec.Err.Error(), "tls handshake") {
		t.Errorf("record: %+v", rec)
	}
}

// TestTLSInTheClear checks that the record of a client that opens TLS to a plain port says so, at once,
// whatever bytes the handshake has.
func TestTLSInTheClear(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	conn, err := net.Dial("tcp", r.url.Host)
	testkit.Must(t, err)
	defer conn.Close()
	io.WriteString(conn, "\x16\x03\x01\x00\x05hello") // no line ends here
	testkit.Must(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "This port expects plain HTTP.") {
		t.Errorf("%s %s", resp.Status, body)
	}
	rec := r.records.last(t, 1)
	if rec.Status != 400 || rec.Decision.Reason != policy.ReasonMalformed || !errors.Is(rec.Err, inbound.ErrTLSInTheClear) {
		t.Errorf("record: %+v", rec)
	}
}

// TestWhatIsIdle checks which connections make room for another one at limits.connections: those that carry no request, also if
// they are or carry an intercepted tunnel.
func TestWhatIsIdle(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	release := make(chan struct{})
	var held sync.WaitGroup
	origin := serve(t, true, "", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if r.URL.Path == "/held" {
			<-release
		}
	})
	defer close(release)
	defer held.Wait()
	for name, c := range map[string]struct {
		hold   func(r *rig)
		evicts bool
	}{
		"no request yet":             {func(r *rig) { r.dial() }, true},
		"a tunnel without a request": {func(r *rig) { r.tunnel(origin.host()) }, true},
		"a tunnel after a request": {func(r *rig) {
			_, err := io.WriteString(r.tunnel(origin.host()), "GET /page HTTP/1.1\r\nHost: "+origin.host()+"\r\n\r\n")
			testkit.Must(r.t, err)
			r.records.last(t, 1)
		}, true},
		"a tunnel in a stream": {func(r *rig) {
			_, err := r.streamTo(r.http2Transport(), origin.host())
			testkit.Must(r.t, err)
		}, true},
		"a request in a tunnel": {func(r *rig) {
			c := r.tunnel(origin.host())
			_, err := io.WriteString(c, "GET /held HTTP/1.1\r\nHost: "+origin.host()+"\r\n\r\n")
			testkit.Must(r.t, err)
			_, err = http.ReadResponse(bufio.NewReader(c), nil)
			testkit.Must(r.t, err)
		}, false},
	} {
		held.Go(func() {
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.MaxConns = 1 }})
			c.hold(r)
			testkit.Eventually(t, "the connection is accepted", func() bool { return r.handler.Stats().Conns.Open == 1 })
			further, _ := r.dial()
			if c.evicts {
				testkit.Eventually(t, name+": makes room", func() bool { s := r.handler.Stats(); return s.Evicted == 1 && s.Conns.Total == 2 })
				return
			}
			testkit.Must(t, further.SetReadDeadline(time.Now().Add(3*time.Second)))
			if _, err := further.Read(make([]byte, 1)); !isTimeout(err) || r.handler.Stats().Evicted != 0 || r.handler.Stats().Conns.Total != 1 {
				t.Errorf("%s: another connection gets %v, %+v", name, err, r.handler.Stats())
			}
		})
	}
}
