package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"

	"github.com/dunglas/httpsfv"
)

// CertPool returns the certificates in a PEM file.
func CertPool(t testing.TB, file string) *x509.CertPool {
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

// Client returns a Go client of the proxy that speaks HTTP/2 or HTTP/1.1 inside tunnels.
func (p *Proxy) Client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	if h2 {
		// For requests outside tunnels; ALPN prefers h2.
		protocols.SetHTTP1(true)
	}
	tr := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: p.Listen}),
		TLSClientConfig:    &tls.Config{RootCAs: CertPool(t, p.CA)},
		Protocols:          protocols,
		DisableCompression: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		Timeout:       testkit.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// From returns a copy of a client that connects from another loopback address.
func From(t testing.TB, c *http.Client, address string) *http.Client {
	t.Helper()
	tr := c.Transport.(*http.Transport).Clone()
	tr.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	t.Cleanup(tr.CloseIdleConnections)
	own := *c
	own.Transport = tr
	return &own
}

// Named returns settings in which each of the loopback addresses is a client with a name of its own. All others may use the
// proxy too, and are one client.
func Named(addresses ...string) Settings {
	var clients []Entry
	for _, a := range addresses {
		clients = append(clients, Entry{"name": "client-" + a, "networks": []string{a + "/32"}})
	}
	return Settings{"clients": clients, "open": true}
}

// A Result is a response as the client received it.
type Result struct {
	Status int
	Proto  string
	Header http.Header
	Body   []byte
}

// Get requests the URL. The header fields are name, value pairs.
func Get(t testing.TB, c *http.Client, target string, header ...string) Result {
	t.Helper()
	return Do(t, c, http.MethodGet, target, nil, header...)
}

// Do sends a request. Any goroutine may call it: an error fails the test and returns the
// zero Result.
func Do(t testing.TB, c *http.Client, method, target string, body io.Reader, header ...string) Result {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, target, body)
	if err != nil {
		t.Error(err)
		return Result{}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, target, err)
		return Result{}
	}
	return Read(t, resp)
}

// Read reads a response to its end.
func Read(t testing.TB, resp *http.Response) Result {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("read the body: %v", err)
	}
	return Result{resp.StatusCode, resp.Proto, resp.Header, body}
}

// A RawClient writes arbitrary bytes to the proxy.
type RawClient struct {
	net.Conn
	R *bufio.Reader
}

// Dial opens a connection to the proxy and closes it when the test ends.
func (p *Proxy) Dial(t testing.TB) *RawClient {
	t.Helper()
	return p.DialFrom(t, "127.0.0.1")
}

// DialFrom is Dial from another loopback address.
func (p *Proxy) DialFrom(t testing.TB, address string) *RawClient {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).Dial("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testkit.Patience))
	return &RawClient{c, bufio.NewReader(c)}
}

// Send writes the lines joined by CRLF, followed by the empty line that ends a head.
func (r *RawClient) Send(t testing.TB, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(r, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatalf("write to the proxy: %v", err)
	}
}

// Receive reads one response with its body; method is the request's method.
func (r *RawClient) Receive(t testing.TB, method string) Result {
	t.Helper()
	resp, err := http.ReadResponse(r.R, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("read the proxy's answer: %v", err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || (method == http.MethodConnect && resp.StatusCode == http.StatusOK) {
		return Result{resp.StatusCode, resp.Proto, resp.Header, nil}
	}
	return Read(t, resp)
}

// Connect opens a tunnel to the authority; a refusal fails the test.
func (p *Proxy) Connect(t testing.TB, authority string) *RawClient {
	t.Helper()
	w := p.Dial(t)
	w.Send(t, "CONNECT "+authority+" HTTP/1.1", "Host: "+authority)
	if got := w.Receive(t, http.MethodConnect); got.Status != http.StatusOK {
		t.Fatalf("CONNECT %s: %d %s\n%s", authority, got.Status, got.Header, got.Body)
	}
	return w
}

// Secure starts TLS in the tunnel and trusts only the proxy's CA.
func (r *RawClient) Secure(t testing.TB, p *Proxy, name string, alpn ...string) *RawClient {
	t.Helper()
	c := tls.Client(&BufferedConn{r.Conn, r.R}, &tls.Config{RootCAs: CertPool(t, p.CA), ServerName: name, NextProtos: alpn})
	if err := c.Handshake(); err != nil {
		t.Fatalf("TLS inside the tunnel: %v", err)
	}
	return &RawClient{c, bufio.NewReader(c)}
}

// BufferedConn is a connection whose first bytes are already in a reader.
type BufferedConn struct {
	net.Conn
	Reader io.Reader
}

func (c *BufferedConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

// ProxyStatus returns the error token and the details of a Proxy-Status header (RFC 9209),
// which must name the proxy.
func ProxyStatus(t testing.TB, h http.Header) (token, details string) {
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

// WantOwn checks that a response is a refusal made by the proxy, with this status and error token.
func WantOwn(t testing.TB, r Result, status int, token string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("status %d, want %d; header %v, body:\n%s", r.Status, status, r.Header, r.Body)
		return
	}
	if got, details := ProxyStatus(t, r.Header); got != token || details == "" {
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

// WantNames checks that a refusal names the rule, its line, the group and the robots.txt URL.
func WantNames(t testing.TB, r Result, rule string, line int, group, robotsURL string) {
	t.Helper()
	text := string(r.Body)
	for _, pattern := range []string{
		regexp.QuoteMeta(rule), `\b` + strconv.Itoa(line) + `\b`, regexp.QuoteMeta(group), regexp.QuoteMeta(robotsURL),
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("a refusal that does not name %s:\n%s", pattern, text)
		}
	}
}

// TrustOrigins makes a client verify the origins' own certificates, as in a passed-through tunnel.
func TrustOrigins(t testing.TB, c *http.Client) {
	t.Helper()
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = CertPool(t, TrustedFile(t))
}

// InFlight starts a download that the origin suspends after the first line.
func InFlight(t *testing.T, p *Proxy, o *Origin, scheme string, h2 bool) *http.Response {
	t.Helper()
	client := p.Client(t, h2)
	client.Timeout = HeldFor
	resp, err := client.Get(o.URL(scheme, "/held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if line, err := bufio.NewReaderSize(io.LimitReader(resp.Body, 6), 16).ReadString('\n'); line != "first\n" {
		t.Fatalf("the download begins %q, %v", line, err)
	}
	return resp
}

// Upgrade upgrades a connection and checks that the origin echoes every byte, including bytes
// sent before the client reads the 101 response.
func Upgrade(t *testing.T, w *RawClient, target, host string) {
	t.Helper()
	w.Send(t, "GET "+target+" HTTP/1.1", "Host: "+host, "Connection: Upgrade", "Upgrade: websocket")
	got := w.Receive(t, http.MethodGet)
	if got.Status != http.StatusSwitchingProtocols || !strings.EqualFold(got.Header.Get("Upgrade"), "websocket") {
		t.Fatalf("upgrade: %v %s", got, got.Body)
	}
	for _, message := range []string{"one", strings.Repeat("two", 10_000), "\x00\xff"} {
		io.WriteString(w, message)
		back := make([]byte, len(message))
		if _, err := io.ReadFull(w.R, back); err != nil || string(back) != message {
			t.Fatalf("sent %d bytes, back came %v", len(message), err)
		}
	}
}

// Clients returns n clients without a timeout, each with its own address.
func (p *Proxy) Clients(t testing.TB, n int) []*http.Client {
	t.Helper()
	all := make([]*http.Client, n)
	for i := range all {
		all[i] = From(t, p.Client(t, false), "127.0.2."+strconv.Itoa(i+1))
		all[i].Timeout = 0
	}
	return all
}

// Secret is the password of lab-a; it needs escapes in a URL. SecretHash is its hash by libxcrypt.
const (
	Secret     = "s3cret:of@lab/a"
	SecretHash = "$2y$04$0123456789ABCDEFGHIJKeWhxGazFJvgwd1EV8Nvgo/k/wcxTQ3fW"
)

// As returns the proxy's URL with a user name and a password.
func (p *Proxy) As(name, password string) string {
	return (&url.URL{Scheme: "http", Host: p.Listen, User: url.UserPassword(name, password)}).String()
}

// EnvAs returns an environment that sends a client through the proxy with the password.
func (p *Proxy) EnvAs(t testing.TB, password string) []string {
	t.Helper()
	env := p.Env(t)
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], "http://"+p.Listen, p.As("lab-a", password))
	}
	return env
}

// WantNoSecret ends the proxy and checks that the password is not in the audit, the log or
// the requests that reached the origin.
func (p *Proxy) WantNoSecret(t testing.TB, o *Origin) {
	t.Helper()
	p.End(t)
	audit, err := os.ReadFile(p.Audit)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"the audit": string(audit), "the log": p.Stderr.String(),
		"what arrived": fmt.Sprintf("%+v %+v", o.Arrivals("http"), o.Arrivals("https")),
	} {
		for _, s := range []string{Secret, url.QueryEscape(Secret), url.PathEscape(Secret), SecretHash, "Proxy-Authorization",
			base64.StdEncoding.EncodeToString([]byte("lab-a:" + Secret))} {
			if strings.Contains(text, s) {
				t.Errorf("%q is in %s", s, where)
			}
		}
	}
}
