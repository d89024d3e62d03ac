package proxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// goAwayOrigin is an HTTP/2 origin that, after some connections, accepts no more requests on any
// connection (RFC 9113 6.8), like an origin that is draining.
type goAwayOrigin struct {
	*httptest.Server // its certificate is used
	addr             string
	conns            atomic.Int64
}

// newGoAwayOrigin starts an origin that serves only its first connections.
func newGoAwayOrigin(t *testing.T, served int64) *goAwayOrigin {
	t.Helper()
	o := &goAwayOrigin{Server: testca.NewTLSServer(t, nil)}
	o.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	o.addr = l.Addr().String()
	ended := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			config := &tls.Config{Certificates: o.TLS.Certificates, NextProtos: []string{"h2"}}
			serves := o.conns.Add(1) <= served
			if serves {
				config.NextProtos = nil
			}
			secure := tls.Server(c, config)
			go func() {
				defer c.Close()
				if secure.Handshake() != nil {
					return
				}
				if serves {
					if _, err := http.ReadRequest(bufio.NewReader(secure)); err == nil {
						io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 23\r\nConnection: close\r\n\r\nUser-agent: *\nAllow: /\n")
					}
					return
				}
				var err error
				io.ReadFull(secure, make([]byte, len(http2.ClientPreface)))
				f := http2.NewFramer(secure, secure)
				f.WriteSettings()
				f.WriteGoAway(0, http2.ErrCodeNo, nil)
				for err == nil {
					_, err = f.ReadFrame()
				}
			}()
		}
	}()
	return o
}

// TestOriginThatRefusesRequests checks that the proxy limits its connections to an origin that accepts
// no requests; net/http would reconnect forever.
func TestOriginThatRefusesRequests(t *testing.T) {
	t.Parallel()
	for name, monitor := range map[string]bool{"enforce": false, "monitor": true} {
		t.Run(name, func(t *testing.T) {
			o := newGoAwayOrigin(t, 1)
			r := start(t, setup{origins: []*httptest.Server{o.Server}, change: func(p *proxy.Options) { p.Monitor = monitor }})
			resp, _, err := get(r.client(false), "https://"+o.addr+"/page")
			if err != nil || resp.StatusCode != http.StatusBadGateway {
				t.Errorf("a page: %v %v", resp, err)
			}
			if n := o.conns.Load(); n > 10 { // without a limit there are thousands
				t.Errorf("%d connections for robots.txt and a page", n)
			}
		})
	}
	t.Run("robots.txt", func(t *testing.T) {
		o := newGoAwayOrigin(t, 0)
		r := start(t, setup{origins: []*httptest.Server{o.Server}})
		resp, body, err := get(r.client(false), "https://"+o.addr+"/page")
		if err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("a page: %v %v\n%s", resp, err, body)
		}
		if n := o.conns.Load(); n > 10 {
			t.Errorf("%d connections for robots.txt", n)
		}
	})
}

// TestHintsBlockNoOtherClient checks that a client that does not read blocks no other client, whatever
// its origin sends: one goroutine reads all responses of an HTTP/2 connection.
func TestHintsBlockNoOtherClient(t *testing.T) {
	t.Parallel()
	var written atomic.Int64
	hinted := make(chan struct{})
	s := newSite("", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/big":
			for b := make([]byte, 64<<10); ; written.Add(1) {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		case "/hint":
			w.Header().Set("Link", "</x>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			close(hinted)
			<-r.Context().Done()
		}
	})
	s.EnableHTTP2 = true
	testca.StartTLS(t, s.Server)
	t.Cleanup(s.Close)
	r := start(t, setup{origins: []*httptest.Server{s.Server}, change: func(o *proxy.Options) { o.Linger = 100 * time.Millisecond }})
	f := r.http2InTunnel(t, s.host())
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	f.WriteWindowUpdate(0, 1<<30)
	ask := func(path string) {
		f.open("", ":method", "GET", ":scheme", "https", ":authority", s.host(), ":path", path, "user-agent", "x")
	}
	ask("/big")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for before, same := int64(-1), 0; same < 5; <-tick.C { // until all buffers are full
		if now := written.Load(); now > 0 && now == before {
			same++
		} else {
			before, same = now, 0
		}
	}
	ask("/hint")
	<-hinted
	c := r.client(false)
	c.Timeout = testkit.Patience
	if resp, err := c.Get(s.URL + "/fast"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("another client: %v %v", resp, err)
	}
	f.conn.Close()
}
