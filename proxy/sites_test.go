package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// front is a protocol that clients speak to the proxy itself.
type front int

const (
	inTheClear front = iota
	overTLS
	withHTTP2 // without TLS
)

// route is a combination of protocols between client, proxy and origin.
type route struct {
	name     string
	tls      bool // the origin uses https
	h2       bool // the client uses HTTP/2
	h2origin bool
	front    front
}

var routes = []route{
	{name: "plain"},
	{name: "intercepted h1", tls: true},
	{name: "intercepted h2", tls: true, h2: true},
	{name: "h1 to an h2 origin", tls: true, h2origin: true},
	{name: "h2 to an h2 origin", tls: true, h2: true, h2origin: true},
	{name: "plain to a proxy with TLS", front: overTLS},
	{name: "intercepted h2 in a proxy with TLS", tls: true, h2: true, front: overTLS},
	{name: "plain by h2", h2: true, front: withHTTP2},
	{name: "intercepted h1 in a stream of h2", tls: true, front: withHTTP2},
	{name: "intercepted h2 in a stream of h2", tls: true, h2: true, h2origin: true, front: withHTTP2},
}

// serve starts a site for this route.
func (w route) serve(t testing.TB, robotsTxt string, pages http.HandlerFunc) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	return w.serveOn(t, l, robotsTxt, pages)
}

// serveOn starts a site for this route on l.
func (w route) serveOn(t testing.TB, l net.Listener, robotsTxt string, pages http.HandlerFunc) *site {
	t.Helper()
	s := newSite(robotsTxt, pages)
	s.Listener.Close()
	s.Listener = l
	s.EnableHTTP2 = w.h2origin
	if w.tls {
		testca.StartTLS(t, s.Server)
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// client returns a client for this route.
func (w route) client(r *rig) *http.Client {
	if w.front != withHTTP2 {
		return r.client(w.h2)
	}
	toProxy := r.http2Transport()
	if !w.tls {
		return &http.Client{Transport: toProxy}
	}
	tr := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: r.roots},
		ForceAttemptHTTP2:  w.h2,
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return r.streamTo(toProxy, addr)
		},
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// http2Transport returns a transport that sends every request to the proxy over HTTP/2.
func (r *rig) http2Transport() *http.Transport {
	var spoken http.Protocols
	spoken.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: &spoken, DisableCompression: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, r.url.Host)
		if err == nil {
			r.t.Cleanup(func() { c.Close() }) // also with open streams, which would hold up Shutdown for a second
		}
		return c, err
	}}
}

// streamTo opens a tunnel in an HTTP/2 stream (RFC 9113 8.5).
func (r *rig) streamTo(proxy http.RoundTripper, addr string) (net.Conn, error) {
	near, far := net.Pipe()
	r.t.Cleanup(func() { near.Close() }) // the client's HTTP/2 may keep it, if it still counts a stream
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: r.url.Scheme, Host: addr}, Host: addr, Header: http.Header{}, Body: io.NopCloser(far)}
	resp, err := proxy.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		far.Close()
		resp.Body.Close()
		return nil, fmt.Errorf("CONNECT: %s, %s", resp.Status, resp.Header.Get("Proxy-Status"))
	}
	go func() {
		io.Copy(far, resp.Body)
		far.Close()
	}()
	return near, nil
}

// site is an origin that logs its requests.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

// serve starts a site with a robots.txt and pages.
func serve(t testing.TB, overTLS bool, robotsTxt string, pages http.HandlerFunc) *site {
	t.Helper()
	return route{tls: overTLS}.serve(t, robotsTxt, pages)
}

func newSite(robotsTxt string, pages http.HandlerFunc) *site {
	s := &site{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r)
		s.mu.Unlock()
		if r.URL.Path == "/robots.txt" {
			io.WriteString(w, robotsTxt)
			return
		}
		pages(w, r)
	})
	s.Server = httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	return s
}

// arrived returns the n-th request, counted from 0.
func (s *site) arrived(n int) *http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[n]
}

// paths returns the paths of all requests in order.
func (s *site) paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p []string
	for _, r := range s.seen {
		p = append(p, r.URL.RequestURI())
	}
	return p
}

func (s *site) host() string {
	u, _ := url.Parse(s.URL)
	return u.Host
}

// get requests address and reads the whole response. err is the error of the client library.
func get(c *http.Client, address string) (*http.Response, string, error) {
	resp, err := c.Get(address)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}
