package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/dnstest"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// records is a Sink that keeps all records.
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

// forget drops all records.
func (r *records) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

// last waits for the n-th record, which may be written after its response.
func (r *records) last(t *testing.T, n int) (found audit.Record) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("there is a record number %d", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.all) >= n {
			found = r.all[n-1]
		}
		return len(r.all) >= n
	})
	return found
}

// of waits for a record with the given reason. Records of allowed requests may be late.
func (r *records) of(t *testing.T, reason policy.Reason) (found audit.Record) {
	t.Helper()
	testkit.Eventually(t, "a record for the reason is written", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.IndexFunc(r.all, func(rec audit.Record) bool { return rec.Decision.Reason == reason })
		if i >= 0 {
			found = r.all[i]
		}
		return i >= 0
	})
	return found
}

// authority is the CA of all rigs. It is shared because creating a CA syncs files to disk, which is slow.
var authority = sync.OnceValues(func() (*mitm.Authority, error) {
	dir, err := os.MkdirTemp("", "authority")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return mitm.LoadOrCreate(dir)
})

// rig is a complete proxy on loopback with its client side.
type rig struct {
	t       testing.TB
	url     *url.URL
	handler *proxy.Handler
	roots   *x509.CertPool // trusted by clients of the proxy
	records *records
	pacer   *pace.Pacer
	egress  *egress.Client
	served  chan error
}

type setup struct {
	origins       []*httptest.Server // their certificates are trusted
	front         front
	listen        func(net.Listener) net.Listener // nil: unchanged
	limits        pace.Limits
	change        func(*proxy.Options)
	private       []netip.Prefix
	names         *dnstest.Server // nil: the system's resolver; otherwise pacing is by address
	clients       []policy.Client // allowed clients
	open          bool            // unknown clients are allowed too
	policyOptions func(*policy.Options)
	egressOptions func(*egress.Options)
	fetchArchive  *archive.Archive // gets the robots.txt files
}

// egress returns a new egress client.
func (s setup) egress(t testing.TB) *egress.Client {
	t.Helper()
	o := egress.Options{AllowPrivate: s.private, Roots: x509.NewCertPool()}
	for _, origin := range s.origins {
		if origin.TLS != nil {
			o.Roots.AddCert(origin.Certificate())
		}
	}
	if s.names != nil {
		o.Resolver, o.OneAddress, o.Rebind = s.names.Addr(), true, time.Nanosecond
	}
	if s.egressOptions != nil {
		s.egressOptions(&o)
	}
	c, err := egress.New(o)
	testkit.Must(t, err)
	return c
}

func start(t testing.TB, s setup) *rig {
	t.Helper()
	if s.private == nil {
		s.private = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	if s.limits.PerSecond == 0 {
		s.limits = pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1000, MaxWait: time.Minute, MaxQueue: 1000}
	}
	out := s.egress(t)
	fetches := new(proxy.Fetches)
	client, err := fetch.New(fetch.Options{Sender: fetches, IsOwnFailure: proxy.FetchFailedHere})
	testkit.Must(t, err)
	robotsCache, err := cache.New(cache.Options{Fetcher: client})
	testkit.Must(t, err)
	policyOptions := policy.Options{Cache: robotsCache, Pace: s.limits, Clients: s.clients, Open: s.open}
	if s.policyOptions != nil {
		s.policyOptions(&policyOptions)
	}
	engine, err := policy.New(policyOptions)
	testkit.Must(t, err)
	authority, err := authority()
	testkit.Must(t, err)
	r := &rig{t: t, egress: out, records: &records{}, roots: x509.NewCertPool(), served: make(chan error, 2)}
	r.roots.AddCert(authority.Certificate())
	o := proxy.Options{
		Rules: proxy.Rules{Engine: engine, Egress: out, Authority: authority, PerAddress: s.names != nil},
		Pacer: pace.New(pace.Options{}), Audit: r.records, Log: slog.New(slog.DiscardHandler),
		Keep: func(*audit.Record) error { return nil }, Begin: func(...*audit.Begun) error { return nil }, Ready: func() error { return nil },
		Limits: proxy.Limits{Linger: testkit.Patience},
	}
	r.url = &url.URL{Scheme: "http"}
	if s.front == overTLS {
		r.url.Scheme = "https"
		own := testca.NewTLSServer(t, nil) // its certificate is used
		own.Close()
		r.roots.AddCert(own.Certificate())
		o.TLS = &tls.Config{Certificates: own.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	}
	if s.change != nil {
		s.change(&o)
	}
	r.pacer = o.Pacer
	fetches.Pacer, fetches.Archive, fetches.Ready, fetches.Rules = o.Pacer, s.fetchArchive, o.Ready, &o.Rules
	r.handler, err = proxy.New(o)
	testkit.Must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	r.url.Host = l.Addr().String()
	if s.listen != nil {
		l = s.listen(l)
	}
	t.Cleanup(out.Close)
	r.serve(l, robotsCache)
	return r
}

// serve runs the handler until the test ends.
func (r *rig) serve(l net.Listener, robotsCache *cache.Cache) {
	go func() { r.served <- r.handler.Serve(l) }()
	running, stop := context.WithCancel(context.Background())
	go func() { r.served <- robotsCache.Run(running) }()
	r.t.Cleanup(func() {
		stop()
		if err := r.handler.Shutdown(context.Background()); err != nil {
			r.t.Error(err)
		}
		for range 2 {
			if err := <-r.served; err != nil {
				r.t.Error(err)
			}
		}
	})
}

// client returns a client that uses the proxy and trusts its CA.
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

// dial opens a connection to the proxy, for requests that client libraries do not send.
func (r *rig) dial() (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.url.Host)
	testkit.Must(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	testkit.Must(r.t, c.SetDeadline(time.Now().Add(testkit.Patience)))
	if r.url.Scheme == "https" {
		c = tls.Client(c, &tls.Config{RootCAs: r.roots, ServerName: "example.com"})
	}
	return c, bufio.NewReader(c)
}

// plainTunnel opens a tunnel without starting TLS in it.
func (r *rig) plainTunnel(origin string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, br := r.dial()
	_, err := io.WriteString(c, "CONNECT "+origin+" HTTP/1.1\r\nHost: "+origin+"\r\n\r\n")
	testkit.Must(r.t, err)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	testkit.Must(r.t, err)
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("CONNECT: %s", resp.Status)
	}
	return c, br
}

// send sends raw bytes and reads one response.
func (r *rig) send(raw string) *http.Response {
	r.t.Helper()
	c, br := r.dial()
	_, err := io.WriteString(c, raw)
	testkit.Must(r.t, err)
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(r.t, err)
	return resp
}

// tunnel opens a tunnel and starts TLS in it.
func (r *rig) tunnel(origin string, protos ...string) *tls.Conn {
	r.t.Helper()
	c, _ := r.plainTunnel(origin)
	host, _, _ := net.SplitHostPort(origin)
	tc := tls.Client(c, &tls.Config{RootCAs: r.roots, ServerName: host, NextProtos: protos})
	testkit.Must(r.t, tc.Handshake())
	return tc
}
