package proxy_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"robotsproxy/proxy"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/testkit"
)

// open counts what is open.
type open struct{ requests, conns, intercepted, passedThrough, upgraded int }

func openAt(h *proxy.Handler) open {
	s := h.Stats()
	return open{s.Requests.Open, s.Conns.Open, s.Intercepted.Open, s.PassedThrough.Open, s.Upgraded.Open}
}

// wantOpen waits for the counts want. An end is counted shortly after it is visible.
func (r *rig) wantOpen(t *testing.T, want open) {
	t.Helper()
	var got open
	defer func() {
		if got != want {
			t.Errorf("open: %+v, want %+v", got, want)
		}
	}()
	testkit.Eventually(t, "the open counts are reached", func() bool {
		got = openAt(r.handler)
		return got == want
	})
}

// TestOpenRequestsAreCounted checks that requests and connections are counted while they last.
func TestOpenRequestsAreCounted(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel() // HTTP/2 ends a second after its last stream
			came, goOn := make(chan struct{}), make(chan struct{})
			origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				came <- struct{}{}
				<-goOn
			})
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, front: route.front})
			client := route.client(r)
			done := make(chan error)
			go func() {
				_, _, err := get(client, origin.URL+"/page")
				done <- err
			}()
			<-came
			want := open{requests: 1, conns: 1}
			if route.tls {
				want.intercepted = 1
			}
			if route.tls && route.front == withHTTP2 {
				want.requests = 2 // CONNECT is a stream that lasts as long as the tunnel
			}
			r.wantOpen(t, want)
			goOn <- struct{}{}
			testkit.Must(t, <-done)
			want.requests--
			r.wantOpen(t, want)
			s := r.handler.Stats()
			if s.Conns.Total != 1 || s.Intercepted.Total != uint64(want.intercepted) || s.Unused != 0 {
				t.Errorf("%+v", s)
			}
			testkit.Must(t, r.handler.Shutdown(t.Context()))
			r.wantOpen(t, open{})
		})
	}
}

// TestBrokenTunnelIsNoLongerOpen covers a body whose truncation only the end of the connection shows:
// the proxy cuts the connection below the tunnel.
func TestBrokenTunnelIsNoLongerOpen(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "a part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r := start(t, setup{origins: []*httptest.Server{origin.Server}})
	c := r.tunnel(origin.host())
	io.WriteString(c, "GET /page HTTP/1.0\r\nHost: "+origin.host()+"\r\n\r\n")
	if _, err := io.Copy(io.Discard, c); err == nil {
		t.Error("the body looks complete")
	}
	r.wantOpen(t, open{})
}

func TestPassThroughAndUpgradedAreCounted(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err == nil {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			io.Copy(c, rw)
			c.Close()
		}
	})
	for _, passThrough := range []bool{false, true} {
		r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
			o.PassThrough = func(string) bool { return passThrough }
			o.Monitor = passThrough // robots.txt does not block the tunnel
		}})
		if passThrough {
			r.roots.AddCert(origin.Certificate())
		}
		conn := r.tunnel(origin.host())
		io.WriteString(conn, "GET /echo HTTP/1.1\r\nHost: "+origin.host()+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		testkit.Must(t, err)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("passThrough=%t: %s", passThrough, resp.Status)
		}
		want := open{requests: 1, conns: 1, intercepted: 1, upgraded: 1}
		if passThrough {
			want = open{requests: 1, conns: 1, passedThrough: 1}
		}
		r.wantOpen(t, want)
		conn.Close()
		r.wantOpen(t, open{})
		if s := r.handler.Stats(); s.Intercepted.Total != uint64(want.intercepted) || s.PassedThrough.Total != uint64(want.passedThrough) || s.Upgraded.Total != uint64(want.upgraded) {
			t.Errorf("%+v", s)
		}
	}
}

// TestDistrustIsCounted covers clients that do not trust the CA, with and without a TLS alert.
func TestDistrustIsCounted(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	authority, err := mitm.LoadOrCreate(t.TempDir())
	testkit.Must(t, err)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Authority = authority }})
	r.roots.AddCert(authority.Certificate())
	for i, proto := range []string{"http/1.1", "h2"} {
		r.tunnel(origin.host(), proto).Close() // like a client that checks the certificate after the handshake
		r.wantOpen(t, open{})
		testkit.Eventually(t, proto+": the tunnel was not used", func() bool { return r.handler.Stats().Unused == uint64(i+1) })
		if got := authority.FaultHosts(mitm.FaultUnused); !slices.Equal(got, []string{origin.host()}) {
			t.Errorf("%s: not used for %q", proto, got)
		}
	}
	c, _ := r.plainTunnel(origin.host())
	if err := tls.Client(c, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}).Handshake(); err == nil {
		t.Fatal("an unknown CA is trusted")
	}
	c.Close()
	r.wantOpen(t, open{})
	testkit.Eventually(t, "three tunnels were not used", func() bool { return r.handler.Stats().Unused == 3 })
	if n := authority.Stats().Failed[mitm.FaultUntrusted]; n != 1 {
		t.Errorf("%d handshakes failed for distrust, want 1", n)
	}
}

// TestDistrustIsCountedAtShutdown: the proxy stops before it reads the alert, as run does when the client has ended.
func TestDistrustIsCountedAtShutdown(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux keeps what has arrived")
	}
	origin := serve(t, true, "", hello)
	authority, err := mitm.LoadOrCreate(t.TempDir())
	testkit.Must(t, err)
	r := start(t, setup{
		origins: []*httptest.Server{origin.Server},
		change:  func(o *proxy.Options) { o.Authority = authority },
		listen:  func(l net.Listener) net.Listener { return readsAtEnd{l} },
	})
	c, _ := r.plainTunnel(origin.host())
	if err := tls.Client(c, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}).Handshake(); err == nil {
		t.Fatal("an unknown CA is trusted")
	}
	c.Close()
	testkit.Must(t, r.handler.Shutdown(t.Context()))
	if got := authority.FaultHosts(mitm.FaultUntrusted); !slices.Equal(got, []string{origin.host()}) {
		t.Errorf("not trusted for %q, want %q; failed handshakes: %v", got, origin.host(), authority.Stats().Failed)
	}
}

// readsAtEnd is a listener whose connections are not read between a TLS handshake's first record and
// the end of the connection or of its reading direction.
type readsAtEnd struct{ net.Listener }

func (l readsAtEnd) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readAtEnd{TCPConn: c.(*net.TCPConn), ended: make(chan struct{})}, nil
}

type readAtEnd struct {
	*net.TCPConn
	handshake atomic.Bool
	once      sync.Once
	ended     chan struct{}
}

func (c *readAtEnd) Read(b []byte) (int, error) {
	if c.handshake.Load() {
		<-c.ended
	}
	return c.TCPConn.Read(b)
}

func (c *readAtEnd) Write(b []byte) (int, error) {
	if b[0] == 22 { // a handshake record
		c.handshake.Store(true)
	}
	return c.TCPConn.Write(b)
}

func (c *readAtEnd) CloseRead() error {
	defer c.once.Do(func() { close(c.ended) })
	return c.TCPConn.CloseRead()
}

func (c *readAtEnd) Close() error {
	defer c.once.Do(func() { close(c.ended) })
	return c.TCPConn.Close()
}

func TestDistrustOfTheProxyCertificateIsCounted(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	r := start(t, setup{front: overTLS})
	for _, roots := range []*x509.CertPool{x509.NewCertPool(), r.roots} {
		c, err := net.Dial("tcp", r.url.Host)
		testkit.Must(t, err)
		tc := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "example.com"})
		if (tc.Handshake() == nil) != (roots == r.roots) {
			t.Fatal("unexpected trust")
		}
		fmt.Fprintf(tc, "GET %s/page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", origin.URL)
		io.Copy(io.Discard, tc)
		c.Close()
	}
	r.wantOpen(t, open{})
	for fault, n := range r.handler.Stats().Faults {
		if want := map[bool]uint64{true: 1}[fault == mitm.FaultUntrusted]; n != want {
			t.Errorf("%d times %s, want %d", n, fault, want)
		}
	}
}

func TestRefusedConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	const most, answered, closed = 1, 16, 3
	origin := serve(t, false, "", hello)
	r := start(t, setup{change: func(o *proxy.Options) { o.MaxConnsPerClient = most }})
	r.connectAndGet(origin.URL)
	for range answered {
		c, _ := r.dial()
		c.Write([]byte("G"))
	}
	for range closed {
		if c, _ := r.dial(); !closesSilently(c) {
			t.Error("an excess connection stays open")
		}
	}
	var s proxy.Stats
	testkit.Eventually(t, "all connections are counted", func() bool { // the end of the last connection is visible before it is counted
		s = r.handler.Stats()
		return s.Conns.Open == most+answered
	})
	if s.Answered != answered || s.Closed != closed || s.Conns.Total != most+answered+closed || s.MaxConns != 20_000 {
		t.Errorf("%+v", s)
	}
}
