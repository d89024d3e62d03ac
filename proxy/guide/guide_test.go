package guide

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

func newPage(t *testing.T, change func(*Options)) (*Page, []byte) {
	t.Helper()
	ca, _ := testca.New(t, time.Now().AddDate(1, 0, 0))
	o := Options{CAPEM: ca, Ready: func() error { return nil }, Version: "v1.2.3"}
	if change != nil {
		change(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p, ca
}

// ask requests a path on a connection to 192.0.2.1:8080.
func ask(p *Page, path, host, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at)))
	return w
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestPaths(t *testing.T) {
	p, ca := newPage(t, nil)
	block, _ := pem.Decode(ca)
	for _, c := range []struct {
		path, accept string
		status       int
		contentType  string
		file         string
		body         string // how the body starts
	}{
		{"/", "*/*", 200, "text/plain; charset=utf-8", "", "robotsproxy v1.2.3: this is a proxy"},
		{"/", "", 200, "text/plain; charset=utf-8", "", "robotsproxy v1.2.3: this is a proxy"},
		{"/", browser, 200, "text/html; charset=utf-8", "", "<!DOCTYPE html>"},
		{"/ca.pem", browser, 200, "application/x-x509-ca-cert", "robotsproxy-ca.pem", string(ca)},
		{"/ca.der", browser, 200, "application/x-x509-ca-cert", "robotsproxy-ca.crt", string(block.Bytes)},
		{"/proxy.pac", "*/*", 200, "application/x-ns-proxy-autoconfig", "proxy.pac", "//"},
		{"/robots.txt", "*/*", 200, "text/plain; charset=utf-8", "", "User-agent: *\nDisallow: /\n"},
		{"/favicon.ico", "image/*", 404, "", "", ""},
	} {
		t.Run(c.path+" "+c.accept, func(t *testing.T) {
			if !p.Knows(c.path) {
				t.Error("unknown path")
			}
			w := ask(p, c.path, "proxy.example:8080", c.accept)
			h := w.Result().Header
			if w.Code != c.status || h.Get("Content-Type") != c.contentType || !strings.HasPrefix(w.Body.String(), c.body) {
				t.Errorf("%d %v\n%.200s", w.Code, h, w.Body)
			}
			if got := h.Get("Content-Disposition"); c.file != "" && got != `inline; filename="`+c.file+`"` {
				t.Errorf("Content-Disposition: %s", got)
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin"} {
				if h.Get(name) != want {
					t.Errorf("%s: %q", name, h.Get(name))
				}
			}
		})
	}
	for _, path := range []string{"", "/x", "//", "/ca.pem/", "/CA.PEM"} {
		if p.Knows(path) {
			t.Errorf("%q is known", path)
		}
	}
}

// TestPageIsOneFile checks that the page loads nothing and has no dead links (CSP Level 3).
func TestPageIsOneFile(t *testing.T) {
	p, _ := newPage(t, nil)
	w := ask(p, "/", "proxy.example:8080", browser)
	csp, html := w.Result().Header.Get("Content-Security-Policy"), w.Body.String()
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(html)
	if style == nil {
		t.Fatal("no style")
	}
	sum := sha256.Sum256([]byte(style[1]))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if csp != want {
		t.Errorf("%s, want %s", csp, want)
	}
	for _, never := range []string{"<script", "<img", "<link", "<iframe", "<form", " style=", " onload", "src=", "url(", "@import", "http-equiv"} {
		if strings.Contains(html, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		id, anchor := strings.CutPrefix(link[1], "#")
		if anchor && !strings.Contains(html, ` id="`+id+`"`) || !anchor && !p.Knows(link[1]) {
			t.Errorf("a dead link to %q", link[1])
		}
	}
}

func TestPageDescribesTheConfiguration(t *testing.T) {
	for _, c := range []struct {
		name        string
		change      func(*Options)
		want, never []string
	}{
		{"default", nil, []string{"http://p.example:8080", "answers 403", "/ca.pem", "v1.2.3"}, []string{"run by", "monitor mode", "https://p.example", "passed through"}},
		{"an operator", func(o *Options) { o.Operator = "<b>ops</b>@example.org" }, []string{"ops"}, nil},
		{"TLS", func(o *Options) { o.TLS = true }, []string{"https://p.example:8080"}, []string{"http://p.example"}},
		{"HTTPS passed through", func(o *Options) { o.Passthrough = true }, []string{"passed through"}, []string{"/ca.pem", "/ca.der", "--cacert"}},
		{"monitor", func(o *Options) { o.Monitor = true }, []string{"monitor mode"}, []string{"answers 403"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := newPage(t, c.change)
			for accept, text := range map[string]string{browser: "page", "*/*": "text"} {
				got := ask(p, "/", "p.example:8080", accept).Body.String()
				joined := strings.Join(strings.Fields(got), " ")
				for _, want := range c.want {
					if !strings.Contains(joined, want) {
						t.Errorf("the %s lacks %q:\n%s", text, want, got)
					}
				}
				for _, never := range c.never {
					if strings.Contains(joined, never) {
						t.Errorf("the %s has %q", text, never)
					}
				}
				if accept == browser && strings.Contains(got, "<b>") {
					t.Error("the operator is not escaped")
				}
			}
		})
	}
}

func TestPageHasTheFingerprint(t *testing.T) {
	p, ca := newPage(t, nil)
	block, _ := pem.Decode(ca)
	want := Fingerprint(block.Bytes)
	if !regexp.MustCompile(`^([0-9A-F]{2}:){31}[0-9A-F]{2}$`).MatchString(want) {
		t.Errorf("fingerprint %q", want)
	}
	for _, accept := range []string{browser, "*/*"} {
		got := ask(p, "/", "p.example:8080", accept).Body.String()
		if !strings.Contains(got, want) || !strings.Contains(got, time.Now().AddDate(1, 0, 0).UTC().Format(time.DateOnly)) {
			t.Errorf("no fingerprint or no end:\n%s", got)
		}
		if strings.Contains(got, "not valid now") {
			t.Error("said to have expired")
		}
	}
	old, _ := testca.New(t, time.Now().Add(-time.Hour))
	p, _ = newPage(t, func(o *Options) { o.CAPEM = old })
	if got := ask(p, "/", "p.example:8080", browser).Body.String(); !strings.Contains(got, "not valid now") {
		t.Error("not said to have expired")
	}
}

// TestHostileHosts checks that the page shows the Host only if it is a host and a port.
func TestHostileHosts(t *testing.T) {
	p, _ := newPage(t, nil)
	for _, c := range []struct{ host, shown string }{
		{"proxy.example:3128", "proxy.example:3128"},
		{"PROXY.Example:3128", "proxy.example:3128"},
		{"proxy.example", "proxy.example:80"},
		{"[2001:db8::1]:3128", "[2001:db8::1]:3128"},
		{"", ""},
		{"<script>alert(1)</script>", ""},
		{"x\"><b>:80", ""},
		{"x'+alert(1)+':80", ""},
		{"a.example:80; PROXY evil.example:80", ""},
		{"a.example:80\nDIRECT", ""},
		{"a.example:99999", ""},
		{"a.example:0", ""},
		{"user@a.example:80", ""},
		{"a.example/evil:80", ""},
		{"$(reboot):80", ""},
		{"`reboot`:80", ""},
		{"{{.Version}}:80", ""},
		{strings.Repeat("a", 300) + ":80", ""},
		{"\u202eexample.com:80", ""},
		{"\x1b[2J:80", ""},
	} {
		want := c.shown
		if want == "" {
			want = "192.0.2.1:8080"
		}
		for path, accept := range map[string]string{"/": browser, "/?": "*/*", "/proxy.pac": "*/*"} {
			w := ask(p, path, c.host, accept)
			got := w.Body.String()
			if w.Code != http.StatusOK || !strings.Contains(got, want) {
				t.Errorf("%q at %s: %d, no %s", c.host, path, w.Code, want)
			}
			if c.shown == "" && c.host != "" && strings.Contains(got, c.host) {
				t.Errorf("%q is at %s", c.host, path)
			}
			for name, values := range w.Result().Header {
				if c.host != "" && strings.Contains(strings.Join(values, ""), c.host) {
					t.Errorf("%q is in %s", c.host, name)
				}
			}
		}
	}
}

// TestUnknownAddress checks that the page names no address if the proxy's address is unknown.
func TestUnknownAddress(t *testing.T) {
	p, _ := newPage(t, nil)
	for _, path := range []string{"/", "/proxy.pac"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "?"
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "FindProxyForURL") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestNew(t *testing.T) {
	for name, o := range map[string]Options{
		"nothing":     {},
		"no PEM":      {CAPEM: []byte("none")},
		"a key":       {CAPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})},
		"invalid DER": {CAPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPACOfInvalidAddress(t *testing.T) {
	for _, proxy := range []string{
		"", "proxy.example", "proxy.example:", ":8080", "proxy.example:0", "proxy.example:65536", "proxy.example:http",
		"http://proxy.example:8080", "https://", "https://proxy.example", "proxy.example:8080/", "a@proxy.example:8080",
		`x";return "DIRECT:1`, "a.example:1; DIRECT", "a b:1", "a\n:1", "::1:8080", "[::1]", "a:1:2", "\\:1", "'a':1",
	} {
		if got := PAC(proxy); got != nil {
			t.Errorf("%q: %s", proxy, got)
		}
	}
}

// TestPAC runs the script with Node.
func TestPAC(t *testing.T) {
	testkit.Long(t, "a real peer")
	node, err := exec.LookPath("node")
	if err != nil {
		testkit.Missing(t, "node")
	}
	rows := []struct{ proxy, host, want string }{
		{"proxy.example:8080", "example.com", "PROXY proxy.example:8080"},
		{"PROXY.example:8080", "example.com", "PROXY proxy.example:8080"},
		{"[::1]:8080", "example.com", "PROXY [::1]:8080"},
		{"https://proxy.example:8443", "example.com", "HTTPS proxy.example:8443"},
		{"proxy.example:8080", "wiki", "PROXY proxy.example:8080"},
		{"proxy.example:8080", "10.0.0.1", "PROXY proxy.example:8080"},
		{"proxy.example:8080", "127.evil.example", "PROXY proxy.example:8080"},
		{"proxy.example:8080", "127.0.0.1.evil.example", "PROXY proxy.example:8080"},
		{"proxy.example:8080", "localhost.evil.example", "PROXY proxy.example:8080"},
		{"proxy.example:8080", "evillocalhost", "PROXY proxy.example:8080"},
		{"proxy.example:8080", "localhost", "DIRECT"},
		{"proxy.example:8080", "LOCALHOST", "DIRECT"},
		{"proxy.example:8080", "a.localhost", "DIRECT"},
		{"proxy.example:8080", "127.1.2.3", "DIRECT"},
		{"proxy.example:8080", "::1", "DIRECT"},
	}
	var script strings.Builder
	for _, c := range rows {
		fmt.Fprintf(&script, "(function() {\n%s\nconsole.log(FindProxyForURL('http://%s/', '%[2]s'))\n})();\n", PAC(c.proxy), c.host)
	}
	out, err := exec.Command(node, "-e", script.String()).CombinedOutput()
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(got) != len(rows) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, c := range rows {
		if got[i] != c.want {
			t.Errorf("%s by %s: %s, want %s", c.host, c.proxy, got[i], c.want)
		}
	}
}
