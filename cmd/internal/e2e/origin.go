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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/proxy/egress/ftptest"
	"robotsproxy/robots/testkit"
)

// Forbidding is a robots.txt that disallows /no.
const Forbidding = "User-agent: *\nDisallow: /no\n"

// FooBot is the User-Agent header of a crawler that says who it is.
const FooBot = "FooBot/1.0 (+https://foo.test)"

// A Hit is one request as it arrived at an origin.
type Hit struct {
	At     time.Time // when its head had reached the machine
	Conn   int       // the origin's connections, counted from 1
	Scheme string
	Method string
	Host   string
	Path   string // with the query, as on the wire
	Proto  string
	Header http.Header
}

// An Origin is one *.test name on a loopback address of its own, serving HTTP
// and HTTPS. Everything that arrives is in its log before it is answered.
type Origin struct {
	Name  string
	Ip    netip.Addr
	Ports map[string]int // by scheme

	mu     sync.Mutex // guards what follows
	hits   []Hit
	conns  int
	routes map[string]http.HandlerFunc
}

// OriginCount numbers the origins of this process: each has a name and an address to itself.
var OriginCount atomic.Uint32

// NewName gives a fresh *.test name that resolves to a loopback address nobody listens on yet.
func NewName(label string) (name string, addr netip.Addr) {
	n := OriginCount.Add(1)
	addr = netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)})
	name = fmt.Sprintf("%s-%d.test", label, n)
	Names.Point(name, addr)
	return name, addr
}

// NewOrigin starts an origin that the proxies trust, with robots as its robots.txt.
func NewOrigin(t testing.TB, label, robots string) *Origin {
	t.Helper()
	return NewOriginWith(t, label, robots, func(name string) tls.Certificate {
		return Trusted(t).Leaf(t, name, time.Now().Add(24*time.Hour))
	})
}

// NewOrigin2 is NewOrigin, but HTTP/2 is spoken by https.
func NewOrigin2(t testing.TB, label, robots string) *Origin {
	t.Helper()
	name, addr := NewName(label)
	o := &Origin{Name: name, Ip: addr, Ports: map[string]int{}, routes: map[string]http.HandlerFunc{}}
	o.Handle("/robots.txt", TextPage("text/plain", robots))
	o.listen(t, "https", addr, &tls.Config{
		Certificates: []tls.Certificate{Trusted(t).Leaf(t, name, time.Now().Add(24*time.Hour))},
		NextProtos:   []string{"h2", "http/1.1"},
	})
	return o
}

// NewOriginWith is NewOrigin with a certificate of the caller's choice.
func NewOriginWith(t testing.TB, label, robots string, certify func(name string) tls.Certificate) *Origin {
	t.Helper()
	name, addr := NewName(label)
	o := &Origin{Name: name, Ip: addr, Ports: map[string]int{}, routes: map[string]http.HandlerFunc{}}
	o.Handle("/robots.txt", TextPage("text/plain", robots))
	o.listen(t, "http", addr, nil)
	o.listen(t, "https", addr, &tls.Config{Certificates: []tls.Certificate{certify(name)}})
	return o
}

// listen serves one scheme until the test ends.
func (o *Origin) listen(t testing.TB, scheme string, addr netip.Addr, secure *tls.Config) {
	t.Helper()
	lc := net.ListenConfig{Control: stampNew}
	inner, err := lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	o.Ports[scheme] = inner.Addr().(*net.TCPAddr).Port
	l := net.Listener(&countingListener{inner, o})
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	server := &http.Server{
		Handler:           o.logged(scheme),
		ReadHeaderTimeout: testkit.Patience,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext:       withWire,
	}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}

// logged notes the request, then answers it by its route.
func (o *Origin) logged(scheme string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire := r.Context().Value(wireKey{}).(*wire)
		h := Hit{
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

// Handle sets what a path answers; the path is without a query.
func (o *Origin) Handle(path string, h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.routes[path] = h
}

// URL is the address of a path under the scheme.
func (o *Origin) URL(scheme, path string) string { return scheme + "://" + o.Hostport(scheme) + path }

// Hostport is the origin's authority under the scheme.
func (o *Origin) Hostport(scheme string) string {
	return net.JoinHostPort(o.Name, strconv.Itoa(o.Ports[scheme]))
}

// Arrivals are all requests of the scheme so far, in order of arrival.
func (o *Origin) Arrivals(scheme string) []Hit {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []Hit
	for _, h := range o.hits {
		if h.Scheme == scheme {
			found = append(found, h)
		}
	}
	slices.SortStableFunc(found, func(a, b Hit) int { return a.At.Compare(b.At) })
	return found
}

// Pages are the arrivals that did not ask for robots.txt.
func (o *Origin) Pages(scheme string) []Hit {
	return slices.DeleteFunc(o.Arrivals(scheme), func(h Hit) bool { return h.Path == "/robots.txt" })
}

// Connections is how many connections were made to either port.
func (o *Origin) Connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns
}

// A countingListener numbers the connections of an origin.
type countingListener struct {
	net.Listener
	origin *Origin
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

// Addr is the origin's IP address.
func (o *Origin) Addr() string { return o.Ip.String() }

// SlowRobots asks for a second between requests and forbids /private/ on a
// line that no other number of an answer is like.
var SlowRobots = strings.Repeat("# nothing\n", 39) + "User-agent: *\nDisallow: /private/\nCrawl-delay: 1\n"

// Early is how much closer than the delay two arrivals may come: the time
// between the proxy's clock and the wire on a machine that has other work.
const Early = 5 * time.Millisecond

// WantFile holds a record against the robots.txt it must rest on.
func WantFile(t testing.TB, r Record, o *Origin, scheme, text string) {
	t.Helper()
	if r.RobotsURL != o.URL(scheme, "/robots.txt") || r.RobotsSHA256 != Digest([]byte(text)) {
		t.Errorf("record rests on %q, %s", r.RobotsURL, r.RobotsSHA256)
	}
	at, err := time.Parse(time.RFC3339Nano, r.RobotsFetched)
	if err != nil || at.After(time.Now()) || time.Since(at) > 2*testkit.Patience {
		t.Errorf("robots_fetched %q: %v", r.RobotsFetched, err)
	}
}

// WantPolite holds an origin's log against what the proxy promises it:
// robots.txt first and once, n pages, nothing forbidden, and the delay kept.
func WantPolite(t testing.TB, o *Origin, scheme string, n int, delay time.Duration) {
	t.Helper()
	all := o.Arrivals(scheme)
	if len(all) == 0 || all[0].Path != "/robots.txt" {
		t.Errorf("%s: the first of %d arrivals is not robots.txt", scheme, len(all))
	}
	pages := o.Pages(scheme)
	if len(all)-len(pages) != 1 {
		t.Errorf("%s: robots.txt was fetched %d times", scheme, len(all)-len(pages))
	}
	if len(pages) != n {
		t.Errorf("%s: %d pages arrived, want %d", scheme, len(pages), n)
	}
	for _, h := range pages {
		if strings.HasPrefix(h.Path, "/private") {
			t.Errorf("%s: %s arrived", scheme, h.Path)
		}
	}
	WantGaps(t, pages, delay)
}

// WantGaps holds the arrivals of one host, whatever their scheme, against the delay.
func WantGaps(t testing.TB, pages []Hit, delay time.Duration) {
	t.Helper()
	slices.SortFunc(pages, func(a, b Hit) int { return a.At.Compare(b.At) })
	for i := 1; i < len(pages); i++ {
		if gap := pages[i].At.Sub(pages[i-1].At); gap < delay-Early {
			t.Errorf("%s %s arrived %v after %s, want %v", pages[i].Scheme, pages[i].Path, gap, pages[i-1].Path, delay)
		}
	}
}

// DeadEnd is a name with a port on which nobody listens.
func DeadEnd(t testing.TB) string {
	t.Helper()
	name, addr := NewName("dead")
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return net.JoinHostPort(name, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// An Entry of hosts, as a configuration has it.
type Entry = map[string]any

// Everything is a robots.txt that disallows all paths.
const Everything = "User-agent: *\nDisallow: /\n"

// Schemes are those of an Origin.
var Schemes = []string{"http", "https"}

// FTPRobots is the robots.txt of a server of StartFTP.
const FTPRobots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 3\n"

// StartFTP serves files and a robots.txt.
func StartFTP(t testing.TB, s *ftptest.Server) *ftptest.Server {
	t.Helper()
	s.Files = map[string]string{
		"robots.txt": FTPRobots, "a.txt": "0123456789", "pub/b c.bin": string(RandomBytes(300_000)), "pub/deep/x": "x", "private/x": "secret",
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
