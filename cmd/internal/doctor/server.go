package doctor

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"robotsproxy/proxy/mitm"
)

// A testServer is a server on loopback whose robots.txt allows everything. It is the listener of its own HTTP server.
type testServer struct {
	net.Listener
	server http.Server

	// authority makes the server's certificate; nil: the server speaks plain HTTP.
	authority *mitm.Authority

	// These say what a client has done: connected, sent a request, so that it has accepted the certificate, and sent one through
	// the proxy.
	connected, gotRequest, gotProxied atomic.Bool
}

// newTestServer starts the server. The caller closes it.
func newTestServer(a *mitm.Authority) (*testServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &testServer{Listener: l, authority: a}
	t.server.ReadHeaderTimeout = requestTimeout
	t.server.Handler = t
	// The server would log clients that disconnect.
	t.server.ErrorLog = log.New(io.Discard, "", 0)
	// The goroutine ends with close.
	go t.server.Serve(t)
	return t, nil
}

// close stops the server and closes its connections.
func (t *testServer) close() { t.server.Close() }

// ServeHTTP answers every request with a robots.txt.
func (t *testServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.gotRequest.Store(true)
	if strings.Contains(r.Header.Get("Via"), proxyName) {
		t.gotProxied.Store(true)
	}
	io.WriteString(w, "User-agent: *\nAllow: /\n")
}

// Accept returns a connection, after its TLS handshake if there is an authority. It handles one at a time: there is one client.
func (t *testServer) Accept() (net.Conn, error) {
	for {
		conn, err := t.Listener.Accept()
		if err != nil || t.authority == nil {
			return conn, err
		}
		t.connected.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		secure, err := t.authority.Handshake(ctx, conn, "127.0.0.1", 443)
		cancel()
		if err == nil {
			return secure, nil
		}
		conn.Close()
	}
}
