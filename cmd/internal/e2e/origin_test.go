package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A hit is one request as it arrived at an origin.
type hit struct {
	At     time.Time // when its head had reached the machine
	Conn   int       // the origin's connections, counted from 1
	Scheme string
	Method string
	Host   string
	Path   string // with the query, as on the wire
	Proto  string
	Header http.Header
}

// An origin is one *.test name on a loopback address of its own, serving HTTP
// and HTTPS. Everything that arrives is in its log before it is answered.
type origin struct {
	Name  string
	ip    netip.Addr
	ports map[string]int // by scheme

	mu     sync.Mutex // guards what follows
	hits   []hit
	conns  int
	routes map[string]http.HandlerFunc
}

// originCount numbers the origins of this process: each has a name and an address to itself.
var originCount atomic.Uint32

// newName gives a fresh *.test name that resolves to a loopback address nobody listens on yet.
func newName(label string) (name string, addr netip.Addr) {
	n := originCount.Add(1)
	addr = netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)})
	name = fmt.Sprintf("%s-%d.test", label, n)
	names.point(name, addr)
	return name, addr
}

// newOrigin starts an origin that the proxies trust, with robots as its robots.txt.
func newOrigin(t testing.TB, label, robots string) *origin {
	t.Helper()
	return newOriginWith(t, label, robots, func(name string) tls.Certificate {
		return trusted(t).leaf(t, name, time.Now().Add(24*time.Hour))
	})
}

// newOrigin2 is newOrigin, but HTTP/2 is spoken by https.
func newOrigin2(t testing.TB, label, robots string) *origin {
	t.Helper()
	name, addr := newName(label)
	o := &origin{Name: name, ip: addr, ports: map[string]int{}, routes: map[string]http.HandlerFunc{}}
	o.handle("/robots.txt", textPage("text/plain", robots))
	o.listen(t, "https", addr, &tls.Config{
		Certificates: []tls.Certificate{trusted(t).leaf(t, name, time.Now().Add(24*time.Hour))},
		NextProtos:   []string{"h2", "http/1.1"},
	})
	return o
}

// newOriginWith is newOrigin with a certificate of the caller's choice.
func newOriginWith(t testing.TB, label, robots string, certify func(name string) tls.Certificate) *origin {
	t.Helper()
	name, addr := newName(label)
	o := &origin{Name: name, ip: addr, ports: map[string]int{}, routes: map[string]http.HandlerFunc{}}
	o.handle("/robots.txt", textPage("text/plain", robots))
	o.listen(t, "http", addr, nil)
	o.listen(t, "https", addr, &tls.Config{Certificates: []tls.Certificate{certify(name)}})
	return o
}

// listen serves one scheme until the test ends.
func (o *origin) listen(t testing.TB, scheme string, addr netip.Addr, secure *tls.Config) {
	t.Helper()
	lc := net.ListenConfig{Control: stampNew}
	inner, err := lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	o.ports[scheme] = inner.Addr().(*net.TCPAddr).Port
	l := net.Listener(&countingListener{inner, o})
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	server := &http.Server{
		Handler:           o.logged(scheme),
		ReadHeaderTimeout: patience,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext:       withWire,
	}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}

// logged notes the request, then answers it by its route.
func (o *origin) logged(scheme string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire := r.Context().Value(wireKey{}).(*wire)
		h := hit{
			At: wire.arrived(), Conn: wire.id, Scheme: scheme, Method: r.Method, Host: r.Host,
			Path: r.RequestURI, Proto: r.Proto, Header: r.Header.Clone(),
		}
		o.mu.Lock()
		o.hits = append(o.hits, h)
		route, ok := o.routes[r.URL.Path]
		o.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		route(w, r)
	})
}

// handle sets what a path answers; the path is without a query.
func (o *origin) handle(path string, h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.routes[path] = h
}

// url is the address of a path under the scheme.
func (o *origin) url(scheme, path string) string { return scheme + "://" + o.hostport(scheme) + path }

// hostport is the origin's authority under the scheme.
func (o *origin) hostport(scheme string) string {
	return net.JoinHostPort(o.Name, strconv.Itoa(o.ports[scheme]))
}

// arrivals are all requests of the scheme so far, in order of arrival.
func (o *origin) arrivals(scheme string) []hit {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []hit
	for _, h := range o.hits {
		if h.Scheme == scheme {
			found = append(found, h)
		}
	}
	slices.SortStableFunc(found, func(a, b hit) int { return a.At.Compare(b.At) })
	return found
}

// pages are the arrivals that did not ask for robots.txt.
func (o *origin) pages(scheme string) []hit {
	return slices.DeleteFunc(o.arrivals(scheme), func(h hit) bool { return h.Path == "/robots.txt" })
}

// connections is how many connections were made to either port.
func (o *origin) connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns
}

// A countingListener numbers the connections of an origin.
type countingListener struct {
	net.Listener
	origin *origin
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.origin.mu.Lock()
	l.origin.conns++
	id := l.origin.conns
	l.origin.mu.Unlock()
	return &wire{TCPConn: c.(*net.TCPConn), id: id}, nil
}

// A wire is a connection that knows when the last of what was read arrived: at the
// start of a handler that is its request's head, which nothing but a body follows.
// What came before it, the end of a TLS handshake say, may be long ago.
type wire struct {
	*net.TCPConn
	id int

	mu   sync.Mutex // guards last
	last time.Time
}

func (w *wire) Read(b []byte) (int, error) {
	n, at, err := readStamped(w.TCPConn, b)
	if n > 0 {
		w.mu.Lock()
		w.last = at
		w.mu.Unlock()
	}
	return n, err
}

func (w *wire) arrived() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

type wireKey struct{}

// withWire puts the wire below a connection into its requests' context.
func withWire(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, wireKey{}, c)
}

// addr is the origin's IP address.
func (o *origin) addr() string { return o.ip.String() }
