package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// records is a Sink that remembers.
type records struct {
	mu  sync.Mutex
	all []audit.Record
	err error
}

func (r *records) Write(rec *audit.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *rec)
	return r.err
}

// last waits for the n-th record, which may follow its answer.
func (r *records) last(t *testing.T, n int) audit.Record {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-tick.C {
		r.mu.Lock()
		if len(r.all) >= n {
			defer r.mu.Unlock()
			return r.all[n-1]
		}
		r.mu.Unlock()
	}
	t.Fatalf("there is no record number %d", n)
	return audit.Record{}
}

// A rig is a whole proxy on loopback, and the client's side of it.
type rig struct {
	t       testing.TB
	url     *url.URL
	handler *proxy.Handler
	roots   *x509.CertPool // that a client of the proxy trusts
	records *records
	served  chan error
}

type setup struct {
	origins []*httptest.Server // whose certificates are trusted
	limits  pace.Limits
	change  func(*proxy.Options)
	private []netip.Prefix
}

func start(t testing.TB, s setup) *rig {
	t.Helper()
	if s.private == nil {
		s.private = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	if s.limits.PerSecond == 0 {
		s.limits = pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1000, MaxWait: time.Minute, MaxQueue: 1000}
	}
	trusted := x509.NewCertPool()
	for _, o := range s.origins {
		if o.TLS != nil {
			trusted.AddCert(o.Certificate())
		}
	}
	door, err := egress.New(egress.Options{AllowPrivate: s.private, Roots: trusted})
	must(t, err)
	client, err := fetch.New(fetch.Options{Transport: door})
	must(t, err)
	book, err := cache.New(cache.Options{Fetcher: client})
	must(t, err)
	engine, err := policy.New(policy.Options{Book: book, Pace: s.limits})
	must(t, err)
	authority, err := mitm.LoadOrCreate(t.TempDir())
	must(t, err)
	r := &rig{t: t, records: &records{}, roots: x509.NewCertPool(), served: make(chan error, 2)}
	r.roots.AddCert(authority.Certificate())
	o := proxy.Options{
		Engine: engine, Pacer: pace.New(pace.Options{}), Door: door, Authority: authority,
		Audit: r.records, Ready: func() error { return nil }, Log: slog.New(slog.DiscardHandler), Linger: 5 * time.Second,
	}
	if s.change != nil {
		s.change(&o)
	}
	r.handler, err = proxy.New(o)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.url = &url.URL{Scheme: "http", Host: l.Addr().String()}
	go func() { r.served <- r.handler.Serve(l) }()
	running, stop := context.WithCancel(context.Background())
	go func() { r.served <- book.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := r.handler.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-r.served; err != nil {
				t.Error(err)
			}
		}
		door.Close()
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client is one that goes through the proxy and trusts its CA.
func (r *rig) client(h2 bool) *http.Client {
	tr := &http.Transport{
		Proxy:              http.ProxyURL(r.url),
		TLSClientConfig:    &tls.Config{RootCAs: r.roots},
		ForceAttemptHTTP2:  h2,
		DisableCompression: true,
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dial opens a connection to the proxy, for what no client library sends.
func (r *rig) dial() (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.url.Host)
	must(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	must(r.t, c.SetDeadline(time.Now().Add(10*time.Second)))
	return c, bufio.NewReader(c)
}

// say sends raw octets and reads one answer.
func (r *rig) say(raw string) *http.Response {
	r.t.Helper()
	c, br := r.dial()
	_, err := io.WriteString(c, raw)
	must(r.t, err)
	resp, err := http.ReadResponse(br, nil)
	must(r.t, err)
	return resp
}

// tunnel makes one and speaks TLS in it.
func (r *rig) tunnel(origin string, protos ...string) *tls.Conn {
	r.t.Helper()
	c, br := r.dial()
	_, err := io.WriteString(c, "CONNECT "+origin+" HTTP/1.1\r\nHost: "+origin+"\r\n\r\n")
	must(r.t, err)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	must(r.t, err)
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("CONNECT: %s", resp.Status)
	}
	host, _, _ := net.SplitHostPort(origin)
	tc := tls.Client(c, &tls.Config{RootCAs: r.roots, ServerName: host, NextProtos: protos})
	must(r.t, tc.Handshake())
	return tc
}

// A site is an origin whose log is what counts.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

// serve makes a site with a robots.txt and pages.
func serve(t testing.TB, overTLS bool, robotsTxt string, pages http.HandlerFunc) *site {
	t.Helper()
	s := newSite(robotsTxt, pages)
	if overTLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// serveOn makes one at an address of the caller's.
func serveOn(t testing.TB, l net.Listener, robotsTxt string, pages http.HandlerFunc) *site {
	t.Helper()
	s := newSite(robotsTxt, pages)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
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

// paths are those that arrived, in their order.
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

// get reads a whole answer; err is what the client's library said.
func get(c *http.Client, address string) (*http.Response, string, error) {
	resp, err := c.Get(address)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}
