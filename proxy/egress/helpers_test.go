package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"robotsproxy/proxy/egress/dnstest"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// newClient creates a Client for one test. When it is closed, it must leave no goroutine.
// Origins of the test are closed before, because their idle connections have goroutines
// too. Goroutines of another Client of the test do not count.
func newClient(t testing.TB, o Options) *Client {
	t.Helper()
	before := goleak.IgnoreCurrent()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var left error
		for range 20 { // each Find waits up to 0.4 s
			if left = goleak.Find(before, goleak.IgnoreAnyFunction("robotsproxy/proxy/egress.(*pool).startWatch.func1")); left == nil {
				return
			}
			if !strings.Contains(left.Error(), "http2ClientConn") {
				break
			}
			d.Close() // again: net/http counts a stream of HTTP/2 as in flight for a moment after its answer
		}
		t.Error(left)
	})
	t.Cleanup(d.Close)
	return d
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// newNames starts a DNS server with these names.
func newNames(t testing.TB, answers map[string][][]string) *dnstest.Server {
	t.Helper()
	n, err := dnstest.Start(answers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// A CA of the test signs the certificates of its origins.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	})
	a.pool.AddCert(a.cert)
	return a
}

// leaf signs a certificate for a name or an address, valid until end.
func (a *authority) leaf(t testing.TB, name string, end time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{NotBefore: end.Add(-48 * time.Hour), NotAfter: end}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	cert, key := sign(t, a, template)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func sign(t testing.TB, issuer *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// An origin is a listener that counts what connects to it.
type origin struct {
	robots.Origin
	accepted atomic.Int64
	hung     chan struct{} // receives for each connection that ended
}

type countingListener struct {
	net.Listener
	o *origin
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.o.accepted.Add(1)
	}
	return c, err
}

func listen(t testing.TB, scheme, ip string) (*origin, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	testkit.Must(t, err)
	return originAt(t, scheme, l)
}

// deadEnd returns an origin that refuses connections.
func deadEnd(t testing.TB, scheme string) robots.Origin {
	t.Helper()
	at := netip.MustParseAddrPort(testkit.DeadEnd(t, "127.0.0.1"))
	return robots.Origin{Scheme: scheme, Host: at.Addr().String(), Port: at.Port()}
}

// originAt returns an origin that listens on l.
func originAt(t testing.TB, scheme string, l net.Listener) (*origin, net.Listener) {
	t.Helper()
	ip := l.Addr().(*net.TCPAddr).IP.String()
	t.Cleanup(func() { l.Close() })
	o := &origin{hung: make(chan struct{}, 1000)}
	o.Origin = robots.Origin{Scheme: scheme, Host: ip, Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	return o, countingListener{l, o}
}

// serve starts an HTTP origin. With a certificate it is an HTTPS origin, which also
// speaks HTTP/2.
func serve(t testing.TB, h http.HandlerFunc, certs ...tls.Certificate) *origin {
	t.Helper()
	if len(certs) == 0 {
		return serveOver(t, h, nil)
	}
	return serveOver(t, h, &tls.Config{Certificates: certs, NextProtos: []string{"h2", "http/1.1"}})
}

func serveOver(t testing.TB, h http.HandlerFunc, secure *tls.Config) *origin {
	t.Helper()
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	o, l := listen(t, scheme, "127.0.0.1")
	serveOn(t, o, l, h, secure)
	return o
}

// serveOn serves the connections of l.
func serveOn(t testing.TB, o *origin, l net.Listener, h http.HandlerFunc, secure *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			o.hung <- struct{}{}
		}
	}
	if s.TLS = secure; secure != nil {
		s.EnableHTTP2 = slices.Contains(secure.NextProtos, "h2")
		testca.StartTLS(t, s)
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
}

// as returns the origin under another host.
func (o *origin) as(host string) robots.Origin {
	named := o.Origin
	named.Host = host
	return named
}

func get(t testing.TB, d *Client, url string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

func only(port uint16) []PortRange { return []PortRange{{port, port}} }

func itoa(port uint16) string { return strconv.Itoa(int(port)) }

func later() time.Time { return time.Now().Add(time.Hour) }
