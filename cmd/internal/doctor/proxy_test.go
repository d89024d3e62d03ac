package doctor

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/testkit"
)

// doctorFor is one that looks at a proxy, and knows a CA.
func doctorFor(t *testing.T, proxy string) *doctor {
	t.Helper()
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	a, err := mitm.LoadOrCreate(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return &doctor{
		flags: &doctorFlags{}, cfg: config.Default(), getenv: func(string) string { return "" }, now: time.Now,
		proxy: u, listen: u.Host, reachable: true, authority: a, ca: a.Certificate(), caFile: "ca.pem",
	}
}

// refusing is a proxy that refuses everything, with these fields.
func refusing(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
	}
}

// forwarding is a proxy that forwards plain requests, with a name in Via.
func forwarding(t *testing.T, via string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.IsAbs() {
			w.Header().Set("Server", proxyName)
			return
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header.Set("User-Agent", r.UserAgent())
		out.Header.Set("Via", via)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
	}
}

const proxyStatus = "Proxy-Status"

// Proxy-Status (RFC 9209) tells responses of this proxy from those of others.
func TestDoctorHTTP(t *testing.T) {
	for _, c := range []struct {
		name  string
		proxy http.HandlerFunc
		want  cli.Status
		says  string
	}{
		{"it passes", forwarding(t, "1.1 robotsproxy-12345678"), cli.StatusOK, "a request passes"},
		{"another passes it", forwarding(t, "1.1 squid"), cli.StatusFail, "not answered by robotsproxy"},
		{"loopback is private", refusing(403, proxyStatus, `robotsproxy; error=destination_ip_prohibited; details="address"`), cli.StatusOK, "refuses this machine's own addresses"},
		{"the origin is not there, to a proxy elsewhere", refusing(502, proxyStatus, "robotsproxy; error=destination_unavailable"), cli.StatusOK, "a request reaches the proxy"},
		{"identity", refusing(403, proxyStatus, `robotsproxy; error=http_request_denied; details="identity"`), cli.StatusWarn, "identity"},
		{"the audit cannot be written", refusing(503, proxyStatus, "robotsproxy; error=proxy_internal_error"), cli.StatusFail, "503"},
		{"a name is asked for", refusing(407, proxyStatus, "robotsproxy", "Proxy-Authenticate", "Basic"), cli.StatusWarn, "name and a password"},
		{"another's refusal", refusing(403, proxyStatus, "squid; error=http_request_denied"), cli.StatusFail, "squid"},
		{"one whose name begins as ours", refusing(403, proxyStatus, "robotsproxy2; error=destination_ip_prohibited"), cli.StatusFail, "not answered by robotsproxy"},
		{"no status at all", refusing(403), cli.StatusFail, "not answered by robotsproxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.proxy)
			defer server.Close()
			found := checkHTTP(t.Context(), doctorFor(t, server.URL))
			if found.Status != c.want || !strings.Contains(found.Detail, c.says) || (found.Hint == "") != (found.Status == cli.StatusOK) {
				t.Errorf("%+v", found)
			}
		})
	}
}

func TestDoctorSendsTheCredentials(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:se cret")) {
			w.WriteHeader(407)
			return
		}
		refusing(403, proxyStatus, "robotsproxy; error=destination_ip_prohibited")(w, r)
	}))
	defer server.Close()
	d := doctorFor(t, server.URL)
	d.proxy.User = url.UserPassword("me", "se cret")
	if found := checkHTTP(t.Context(), d); found.Status != cli.StatusOK {
		t.Errorf("%+v", found)
	}
}

// TestDoctorFindsTheCredentials: the name and password in a proxy variable are the client's, if the
// variable points to the checked proxy and --proxy has none.
func TestDoctorFindsTheCredentials(t *testing.T) {
	other, err := url.Parse("http://127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, variable, value string
		other                 *url.URL
		want                  string
	}{
		{"of the configured proxy", "http_proxy", "http://me:secret@localhost:8080", nil, "me:secret"},
		{"in another variable", "HTTPS_PROXY", "http://me:secret@127.0.0.1:8080", nil, "me:secret"},
		{"of another proxy", "http_proxy", "http://me:secret@127.0.0.1:9090", nil, ""},
		{"none", "http_proxy", "http://127.0.0.1:8080", nil, ""},
		{"--proxy", "http_proxy", "http://me:secret@127.0.0.1:8080", other, ""},
	} {
		d := &doctor{flags: &doctorFlags{}, cfg: config.Default(), getenv: func(name string) string {
			if name == c.variable {
				return c.value
			}
			return ""
		}}
		d.cfg.Listen = "0.0.0.0:8080"
		findProxy(t.Context(), d, c.other)
		if got := d.proxy.User.String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestDoctorProxy(t *testing.T) {
	page := httptest.NewServer(refusing(200, "Server", "robotsproxy"))
	defer page.Close()
	refusal := httptest.NewServer(refusing(400, proxyStatus, "robotsproxy; error=http_request_error"))
	defer refusal.Close()
	other := httptest.NewServer(refusing(200, "Server", "nginx"))
	defer other.Close()
	mute := listenAs(t, func(c net.Conn) { io.WriteString(c, "220 ftp\r\n") })
	for _, c := range []struct {
		name, proxy string
		want        cli.Status
		says        string
	}{
		{"its page", page.URL, cli.StatusOK, "robotsproxy answers"},
		{"its refusal", refusal.URL, cli.StatusOK, "robotsproxy answers"},
		{"another server", other.URL, cli.StatusFail, "is not robotsproxy"},
		{"no HTTP", "http://" + mute, cli.StatusFail, "does not answer as a proxy"},
		{"TLS where there is none", strings.Replace(page.URL, "http:", "https:", 1), cli.StatusFail, "does not answer as a proxy"},
		{"nothing", "http://" + testkit.DeadEnd(t, "127.0.0.1"), cli.StatusFail, "nothing listens"},
		{"any port", "http://127.0.0.1:0", cli.StatusFail, "port 0"},
	} {
		d := doctorFor(t, c.proxy)
		d.reachable = false
		found := checkProxy(t.Context(), d)
		if found.Status != c.want || !strings.Contains(found.Detail, c.says) || d.reachable != (c.want == cli.StatusOK) {
			t.Errorf("%s: %+v", c.name, found)
		}
		if d.reachable == d.proxyDate.IsZero() {
			t.Errorf("%s: date %s", c.name, d.proxyDate)
		}
	}
}

// listenAs serves each connection by a function, until the test ends.
func listenAs(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().String()
}

// tunnelling is a proxy that opens every tunnel with a certificate of a, and
// without one passes nothing.
func tunnelling(t *testing.T, a *mitm.Authority) string {
	return "http://" + listenAs(t, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		var head [4096]byte
		if _, err := c.Read(head[:]); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		if a == nil {
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") // an origin in the clear
			return
		}
		a.Handshake(context.Background(), c, "127.0.0.1", 443)
	})
}

func TestDoctorHTTPS(t *testing.T) {
	other, forget, err := newUntrustedCA()
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	d := doctorFor(t, "http://127.0.0.1:1")
	for _, c := range []struct {
		name, proxy string
		intercept   bool
		want        cli.Status
		says        string
	}{
		{"our CA", tunnelling(t, d.authority), true, cli.StatusOK, "its certificate is signed by the CA"},
		{"another CA", tunnelling(t, other), true, cli.StatusFail, "not by the CA in ca.pem"},
		{"not opened", tunnelling(t, nil), true, cli.StatusWarn, "does not intercept it"},
		{"not opened, as is said", tunnelling(t, nil), false, cli.StatusOK, "does not intercept it (tls.intercept)"},
	} {
		d.proxy, err = url.Parse(c.proxy)
		if err != nil {
			t.Fatal(err)
		}
		d.cfg.TLS.Intercept = c.intercept
		if found := checkHTTPS(t.Context(), d); found.Status != c.want || !strings.Contains(found.Detail, c.says) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
	refused := httptest.NewServer(refusing(403, proxyStatus, "robotsproxy; error=destination_ip_prohibited"))
	defer refused.Close()
	d = doctorFor(t, refused.URL)
	if found := checkHTTPS(t.Context(), d); found.Status != cli.StatusOK || !strings.Contains(found.Detail, "--site HOST") {
		t.Errorf("refused: %+v", found)
	}
	d.flags.site = "site.example"
	if found := checkSite(t.Context(), d); len(found) != 1 || found[0].Status != cli.StatusWarn {
		t.Errorf("a site that is refused: %+v", found)
	}
}

// The CA that a proxy shows at its own address, against the one of this machine.
func TestDoctorServedCA(t *testing.T) {
	other, forget, err := newUntrustedCA()
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	state := t.TempDir()
	own, err := mitm.LoadOrCreate(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		apart  bool
		served *mitm.Authority
		want   cli.Status
		says   string
		key    bool
	}{
		{"the same", false, own, cli.StatusOK, "valid until", true},
		{"not the one on disk", false, other, cli.StatusFail, "the running proxy uses another CA", true},
		{"another machine's", true, other, cli.StatusOK, "/ca.pem, SHA-256", false},
		{"this machine's, by another name", true, own, cli.StatusOK, state, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server", proxyName)
			if r.URL.Path == "/ca.pem" {
				w.Write(c.served.CertPEM())
			}
		}))
		d := doctorFor(t, server.URL)
		d.ca, d.authority, d.remote, d.cfg.StateDir = nil, nil, c.apart, state
		if found := checkProxy(t.Context(), d); found.Status != cli.StatusOK {
			t.Errorf("%s: %+v", c.name, found)
		}
		found := checkCA(t.Context(), d)
		if found.Status != c.want || !strings.Contains(found.Detail, c.says) || (d.authority != nil) != c.key {
			t.Errorf("%s: %+v", c.name, found)
		}
		if !c.key { // then no client can be tried; nobody trusts this one
			if found := checkTrust(t.Context(), d); len(found) != 2 || found[0].Status != cli.StatusFail || found[1].Status != cli.StatusSkip {
				t.Errorf("%s: trust: %+v", c.name, found)
			}
		}
		server.Close()
	}
}

func TestDoctorTLSListener(t *testing.T) {
	server := httptest.NewTLSServer(refusing(400, proxyStatus, "robotsproxy"))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	d := doctorFor(t, server.URL)
	if found := checkProxy(t.Context(), d); found.Status != cli.StatusFail || !strings.Contains(found.Hint, "listen_tls") {
		t.Errorf("%+v", found)
	}
}

func TestSamePlace(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", "127.0.0.1:8081", false},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"0.0.0.0:8080", "127.0.0.1:8080", true},
		{":8080", "127.0.0.1:8080", true},
		{"[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true},
		{"0.0.0.0:8080", "192.0.2.1:8080", false},
		{"192.0.2.1:8080", "192.0.2.2:8080", false},
		{"192.0.2.1", "192.0.2.1", false},
	} {
		if got := sameListener(t.Context(), c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}

// A listener on all addresses is requested, and shown, at an address that leads to it.
func TestAskable(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", "[::]:8080": "[::1]:8080",
		"127.0.0.1:8080": "127.0.0.1:8080", "proxy.example:8080": "proxy.example:8080", "[2001:db8::1]:8080": "[2001:db8::1]:8080",
	} {
		if got := dialableAddress(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}

// What a hostile proxy says does not reach the terminal, nor all the memory.
func TestDoctorHostileProxy(t *testing.T) {
	endless := listenAs(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
				return
			}
		}
	})
	if found := checkHTTP(t.Context(), doctorFor(t, "http://"+endless)); found.Status != cli.StatusFail {
		t.Errorf("endless: %+v", found)
	}
	loud := listenAs(t, func(c net.Conn) {
		var head [4096]byte
		c.Read(head[:])
		io.WriteString(c, "HTTP/1.1 403 \x1b[2Jno\r\nContent-Length: 0\r\nProxy-Status: "+strings.Repeat("x", 50_000)+"\r\n\r\n")
	})
	var out strings.Builder
	found := checkHTTP(t.Context(), doctorFor(t, "http://"+loud))
	if err := cli.NewDiagnosisPrinter(&out, false, "").Add(found); err != nil || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), `\x1b[2J`) || out.Len() > 1000 {
		t.Errorf("%q, %v", out.String(), err)
	}
}
