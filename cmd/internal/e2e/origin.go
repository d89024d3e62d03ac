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

// FooBot is the User-Agent header of a crawler that identifies itself.
const FooBot = "FooBot/1.0 (+https://foo.test)"

// A Hit is one request as it arrived at an origin.
type Hit struct {
	// When the kernel received the head.
	At time.Time

	// Number of the connection, from 1.
	Conn   int
	Scheme string
	Method string
	Host   string

	// With the query, as received.
	Path   string
	Proto  string
	Header http.Header
}

// An Origin is one *.test name on its own loopback address, serving HTTP and HTTPS. It logs
// each request before it responds.
type Origin struct {
	Name string
	Ip   netip.Addr

	// By scheme.
	Ports map[string]int

	// Guards the fields below.
	mu     sync.Mutex
	hits   []Hit
	conns  int
	routes map[string]http.HandlerFunc
}

// OriginCount numbers the origins of this process; each has its own name and address.
var OriginCount atomic.Uint32

// NewName returns a new *.test name that resolves to an unused loopback address.
func NewName(label string) (name string, addr netip.Addr) {
	n := OriginCount.Add(1)
	addr = netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)})
	name = fmt.Sprintf("%s-%d.test", label, n)
	Names.Point(name, addr)
	return name, addr
}

// NewOrigin starts an origin that the proxies trust. robots is its robots.txt.
func NewOrigin(t testing.TB, label, robots string) *Origin {
	t.Helper()
	return NewOriginWith(t, label, robots, func(name string) tls.Certificate {
		return Trusted(t).Leaf(t, name, time.Now().Add(24*time.Hour))
	})
}

// NewOrigin2 starts an origin that speaks HTTP/2 on https.
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

// NewOriginWith starts an origin with the certificate that certify returns.
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

// logged logs the request, then calls the handler of its path.
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

// Handle sets the handler of a path, given without a query.
func (o *Origin) Handle(path string, h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.routes[path] = h
}

// URL returns the URL of a path.
func (o *Origin) URL(scheme, path string) string { return scheme + "://" + o.Hostport(scheme) + path }

// Hostport returns the origin's authority under the scheme.
func (o *Origin) Hostport(scheme string) string {
	return net.JoinHostPort(o.Name, strconv.Itoa(o.Ports[scheme]))
}

// Arrivals returns all requests of the scheme so far, in order of arrival.
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

// Pages returns the arrivals except robots.txt requests.
func (o *Origin) Pages(scheme string) []Hit {
	return slices.DeleteFunc(o.Arrivals(scheme), func(h Hit) bool { return h.Path == "/robots.txt" })
}

// Connections counts the connections made to either port.
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

// A wire is a connection that records when its last read bytes arrived. At the start of a
// handler these are the bytes of the request's head; its first bytes, such as a TLS handshake,
// may be much older.
type wire struct {
	*net.TCPConn
	id int

	// Guards last.
	mu   sync.Mutex
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

// withWire puts the wire below a connection into the requests' context.
func withWire(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, wireKey{}, c)
}

// Addr returns the origin's IP address.
func (o *Origin) Addr() string { return o.Ip.String() }

// SlowRobots has a Crawl-delay of one second and forbids /private/ on a line whose number
// appears nowhere else in a refusal.
var SlowRobots = strings.Repeat("# nothing\n", 39) + "User-agent: *\nDisallow: /private/\nCrawl-delay: 1\n"

// Early is how much less than the delay two arrivals may be apart: the jitter between the
// proxy's clock and the wire on a busy machine.
const Early = 5 * time.Millisecond

// WantFile checks that a record names the robots.txt it rests on.
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

// WantPolite checks an origin's log: robots.txt first and once, n pages, no forbidden page,
// and the crawl delay between arrivals.
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

// WantGaps checks the delay between the arrivals at one host, over all schemes.
func WantGaps(t testing.TB, pages []Hit, delay time.Duration) {
	t.Helper()
	slices.SortFunc(pages, func(a, b Hit) int { return a.At.Compare(b.At) })
	for i := 1; i < len(pages); i++ {
		if gap := pages[i].At.Sub(pages[i-1].At); gap < delay-Early {
			t.Errorf("%s %s arrived %v after %s, want %v", pages[i].Scheme, pages[i].Path, gap, pages[i-1].Path, delay)
		}
	}
}

// DeadEnd returns a name and port that refuse connections until the test ends.
func DeadEnd(t testing.TB) string {
	t.Helper()
	name, addr := NewName("dead")
	_, port, _ := net.SplitHostPort(testkit.DeadEnd(t, addr.String()))
	return net.JoinHostPort(name, port)
}

// An Entry is an entry of hosts in the configuration.
type Entry = map[string]any

// Everything is a robots.txt that disallows all paths.
const Everything = "User-agent: *\nDisallow: /\n"

// Schemes are the schemes of an Origin.
var Schemes = []string{"http", "https"}

// FTPRobots is the robots.txt of StartFTP's server.
const FTPRobots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 3\n"

// StartFTP starts an FTP server with files and a robots.txt.
func StartFTP(t testing.TB, s *ftptest.Server) *ftptest.Server {
	t.Helper()
	s.Files = map[string]string{
		"robots.txt": FTPRobots, "a.txt": "0123456789", "pub/b c.bin": string(RandomBytes(300_000)),
		"pub/deep/x": "x", "private/x": "secret",
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
