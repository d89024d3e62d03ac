package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// pool holds what is in a PEM file.
func pool(t testing.TB, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		t.Fatalf("%s holds no certificate", file)
	}
	return p
}

// client is a Go client of the proxy, of HTTP/2 or HTTP/1.1 inside tunnels.
func (p *proxy) client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	if h2 {
		protocols.SetHTTP1(true) // for what is not in a tunnel; ALPN prefers h2
	}
	tr := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: p.listen}),
		TLSClientConfig:    &tls.Config{RootCAs: pool(t, p.ca)},
		Protocols:          protocols,
		DisableCompression: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// from makes a client ask from another address of the loopback network.
func from(t testing.TB, c *http.Client, address string) *http.Client {
	t.Helper()
	tr := c.Transport.(*http.Transport).Clone()
	tr.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	t.Cleanup(tr.CloseIdleConnections)
	own := *c
	own.Transport = tr
	return &own
}

// A result is an answer as a client saw it.
type result struct {
	Status int
	Proto  string
	Header http.Header
	Body   []byte
}

// get asks for the URL with the header, given as pairs.
func get(t testing.TB, c *http.Client, target string, header ...string) result {
	t.Helper()
	return do(t, c, http.MethodGet, target, nil, header...)
}

// do asks with a method and a body. It may be called from any goroutine: an
// error fails the test and gives the zero result.
func do(t testing.TB, c *http.Client, method, target string, body io.Reader, header ...string) result {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, target, body)
	if err != nil {
		t.Error(err)
		return result{}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, target, err)
		return result{}
	}
	return read(t, resp)
}

// read takes the answer in whole.
func read(t testing.TB, resp *http.Response) result {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("read the body: %v", err)
	}
	return result{resp.StatusCode, resp.Proto, resp.Header, body}
}

// A wireClient writes octets of the test's choice to the proxy.
type wireClient struct {
	net.Conn
	r *bufio.Reader
}

// dial opens a connection to the proxy that ends with the test.
func (p *proxy) dial(t testing.TB) *wireClient {
	t.Helper()
	c, err := net.Dial("tcp", p.listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &wireClient{c, bufio.NewReader(c)}
}

// send writes lines joined by CRLF, with the empty line that ends a head.
func (w *wireClient) send(t testing.TB, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(w, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatalf("write to the proxy: %v", err)
	}
}

// receive reads one answer with its body; method is what was asked.
func (w *wireClient) receive(t testing.TB, method string) result {
	t.Helper()
	resp, err := http.ReadResponse(w.r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("read the proxy's answer: %v", err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || (method == http.MethodConnect && resp.StatusCode == http.StatusOK) {
		return result{resp.StatusCode, resp.Proto, resp.Header, nil}
	}
	return read(t, resp)
}

// connect opens a tunnel to the authority and wants it open.
func (p *proxy) connect(t testing.TB, authority string) *wireClient {
	t.Helper()
	w := p.dial(t)
	w.send(t, "CONNECT "+authority+" HTTP/1.1", "Host: "+authority)
	if got := w.receive(t, http.MethodConnect); got.Status != http.StatusOK {
		t.Fatalf("CONNECT %s: %d %s\n%s", authority, got.Status, got.Header, got.Body)
	}
	return w
}

// secure makes the tunnel TLS, trusting the proxy's CA alone.
func (w *wireClient) secure(t testing.TB, p *proxy, name string, alpn ...string) *wireClient {
	t.Helper()
	c := tls.Client(&rest{w.Conn, w.r}, &tls.Config{RootCAs: pool(t, p.ca), ServerName: name, NextProtos: alpn})
	if err := c.Handshake(); err != nil {
		t.Fatalf("TLS inside the tunnel: %v", err)
	}
	return &wireClient{c, bufio.NewReader(c)}
}

// rest is a connection whose first octets are in a reader already.
type rest struct {
	net.Conn
	r io.Reader
}

func (c *rest) Read(b []byte) (int, error) { return c.r.Read(b) }

// proxyStatus is the error token and the details of a Proxy-Status header
// (RFC 9209), which must name the proxy and say why.
func proxyStatus(t testing.TB, h http.Header) (token, details string) {
	t.Helper()
	fields := h.Values("Proxy-Status")
	list, err := httpsfv.UnmarshalList(fields)
	if err != nil || len(list) != 1 {
		t.Errorf("Proxy-Status %q: want one structured item (%v)", fields, err)
		return "", ""
	}
	item, ok := list[0].(httpsfv.Item)
	if !ok || item.Value != httpsfv.Token("robotsproxy") {
		t.Errorf("Proxy-Status %q does not begin with the token robotsproxy", fields)
		return "", ""
	}
	if v, ok := item.Params.Get("error"); ok {
		tok, _ := v.(httpsfv.Token)
		token = string(tok)
	}
	if v, ok := item.Params.Get("details"); ok {
		details, _ = v.(string)
	}
	return token, details
}

// wantOwn holds an answer against an answer of the proxy's own.
func wantOwn(t testing.TB, r result, status int, token string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("status %d, want %d; header %v, body:\n%s", r.Status, status, r.Header, r.Body)
		return
	}
	if got, details := proxyStatus(t, r.Header); got != token || details == "" {
		t.Errorf("Proxy-Status error %q, details %q; want error %q and some details", got, details, token)
	}
	ctype := r.Header.Get("Content-Type")
	if len(r.Body) > 0 && !strings.HasPrefix(ctype, "text/plain") && !strings.HasPrefix(ctype, "application/problem+json") {
		t.Errorf("Content-Type %q of a refusal", ctype)
	}
	if (status == http.StatusTooManyRequests) && r.Header.Get("Retry-After") == "" {
		t.Errorf("%d without Retry-After", status)
	}
}

// wantNames holds a refusal by a rule against what it must name.
func wantNames(t testing.TB, r result, rule string, line int, group, robotsURL string) {
	t.Helper()
	text := string(r.Body)
	for _, pattern := range []string{
		regexp.QuoteMeta(rule), `\b` + itoa(line) + `\b`, regexp.QuoteMeta(group), regexp.QuoteMeta(robotsURL),
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("a refusal that does not name %s:\n%s", pattern, text)
		}
	}
}

// trustOrigins makes a client verify origins themselves, as behind a tunnel that is not opened.
func trustOrigins(t testing.TB, c *http.Client) {
	t.Helper()
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = pool(t, trustedFile(t))
}
