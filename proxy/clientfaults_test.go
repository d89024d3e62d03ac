package proxy_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"robotsproxy/proxy"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/robots/testkit"
)

// A warnings is a log of warnings as text.
type warnings struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *warnings) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(strings.TrimSpace(w.text.String()), "\n")
}

// A halfConn is a connection on which nothing arrives.
type halfConn struct{ net.Conn }

func (halfConn) Read([]byte) (int, error) { return 0, io.EOF }

// beginHandshake returns a tunnel in which the proxy has answered the client's part of a TLS handshake.
func beginHandshake(r *rig, host string) net.Conn {
	c, br := r.plainTunnel(host)
	tls.Client(halfConn{c}, &tls.Config{ServerName: "127.0.0.1"}).Handshake()
	br.Peek(1)
	return c
}

// TestClientFaults checks which connections count as those of a client whose settings do not fit the proxy, and that the log
// has one warning about several.
func TestClientFaults(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	distrust := func(r *rig) {
		c, _ := r.plainTunnel(origin.host())
		defer c.Close()
		if tls.Client(c, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}).Handshake() == nil {
			t.Error("an unknown CA is trusted")
		}
	}
	speak := func(r *rig, first string) {
		c, err := net.Dial("tcp", r.url.Host)
		testkit.Must(t, err)
		defer c.Close()
		io.WriteString(c, first)
		io.Copy(io.Discard, c)
	}
	for name, c := range map[string]struct {
		front   front
		connect func(r *rig)
		want    clientfault.Kind
		tunnel  bool
	}{
		"rejects the certificate": {connect: distrust, want: clientfault.Distrust, tunnel: true},
		"closes during the handshake": {connect: func(r *rig) {
			beginHandshake(r, origin.host()).Close()
		}, want: clientfault.MaybeDistrust, tunnel: true},
		"closes after the handshake": {connect: func(r *rig) {
			r.tunnel(origin.host(), "http/1.1").Close()
		}, want: clientfault.MaybeDistrust, tunnel: true},
		"closes after the handshake, HTTP/2": {connect: func(r *rig) {
			r.tunnel(origin.host(), "h2").Close()
		}, want: clientfault.MaybeDistrust, tunnel: true},
		"TLS in the clear": {connect: func(r *rig) {
			speak(r, "\x16\x03\x01\x00\x05hello")
		}, want: clientfault.TLS},
		"plain HTTP": {front: overTLS, connect: func(r *rig) {
			speak(r, "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
		}, want: clientfault.PlainHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := new(warnings)
			r := start(t, setup{front: c.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
				o.Log = slog.New(slog.NewTextHandler(log, nil))
			}})
			testkit.Eventually(t, "two connections count", func() bool {
				c.connect(r)
				all := r.handler.ClientFaults()
				return len(all) == 1 && all[0].Count >= 2
			})
			got := r.handler.ClientFaults()[0]
			host := ""
			if c.tunnel {
				host = origin.host()
			}
			if got.Kind != c.want || got.Client != "127.0.0.1" || got.Host != host {
				t.Errorf("%+v", got)
			}
			lines := log.lines()
			if len(lines) != 1 || !strings.Contains(lines[0], " level=WARN ") || !strings.Contains(lines[0], " client=127.0.0.1 ") ||
				!strings.Contains(lines[0], "why=\""+c.want.String()+"\" what_to_do=") || strings.Contains(lines[0], " host=") != c.tunnel ||
				c.tunnel && !strings.Contains(lines[0], " host="+origin.host()+" ") {
				t.Errorf("the log has %q", lines)
			}
		})
	}
}

// TestNoClientFault checks connections that look similar and are no fault of the client.
func TestNoClientFault(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	for name, connect := range map[string]func(r *rig){
		"requests": func(r *rig) {
			for _, h2 := range []bool{false, true} {
				client := r.client(h2)
				resp, err := client.Get(origin.URL)
				testkit.Must(t, err)
				resp.Body.Close()
				client.CloseIdleConnections()
			}
		},
		"no handshake": func(r *rig) {
			c, _ := r.plainTunnel(origin.host())
			c.Close()
			testkit.Eventually(r.t, "the tunnel has ended", func() bool { return r.handler.Stats().Intercepted.Open == 0 })
		},
		"no TLS in a tunnel": func(r *rig) {
			c, br := r.plainTunnel(origin.host())
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+origin.host()+"\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(br, nil)
			testkit.Must(t, err)
			resp.Body.Close()
			c.Close()
		},
		"the proxy shuts down": func(r *rig) {
			beginHandshake(r, origin.host())
			r.tunnel(origin.host(), "http/1.1") // is unused
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, setup{origins: []*httptest.Server{origin.Server}})
			connect(r)
			testkit.Must(t, r.handler.Shutdown(t.Context()))
			if got := r.handler.ClientFaults(); len(got) > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}
