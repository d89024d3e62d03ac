package proxy_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

const secret = "mật-khẩu-of-lab-a"

func hashOf(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	testkit.Must(t, err)
	return string(h)
}

// basic returns a Proxy-Authorization line.
func basic(name, password string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password)) + "\r\n"
}

// logBuffer records all log output, so that tests can look for secrets in it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) listen(o *proxy.Options) {
	o.Log = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// wantNoSecret fails if text, which others can read, contains the password.
func wantNoSecret(t testing.TB, where, text string) {
	t.Helper()
	for _, s := range []string{secret, base64.StdEncoding.EncodeToString([]byte("lab-a:" + secret))} {
		if strings.Contains(text, s) {
			t.Errorf("the password is in %s: %s", where, text)
		}
	}
}

var (
	here      = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	elsewhere = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
)

// clientCase is a client's credentials and the expected results of its requests.
type clientCase struct {
	name    string
	clients []policy.Client
	open    bool
	header  string
	status  int    // 200, 403 or 407
	client  string // expected in the record
}

func (c clientCase) run(t *testing.T) {
	plain, secure := serve(t, false, rules, hello), serve(t, true, rules, hello)
	var log logBuffer
	r := start(t, setup{origins: []*httptest.Server{secure.Server}, clients: c.clients, open: c.open, change: log.listen})
	for i, line := range []string{
		"GET " + plain.URL + "/page HTTP/1.1", "GET " + secure.URL + "/page HTTP/1.1", "CONNECT " + secure.host() + " HTTP/1.1",
		"GET http://nowhere.invalid/ HTTP/1.1", "CONNECT 127.0.0.1:25 HTTP/1.1", "GET / HTTP/1.1",
	} {
		if c.status == 200 && i > 2 {
			break // these requests fail for another reason
		}
		if c.status == 200 && strings.HasPrefix(line, "CONNECT") {
			continue // CONNECT writes no record; see TestTunnelKeepsItsClient
		}
		resp := r.send(line + "\r\nHost: x\r\nUser-Agent: FooBot/1.0\r\n" + c.header + "\r\n")
		body, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		rec := r.records.last(t, i+1)
		if resp.StatusCode != c.status || rec.Status != c.status || rec.Request.Client != c.client {
			t.Errorf("%s: %s, want %d; record: status %d, client %q, want %q", line, resp.Status, c.status, rec.Status, rec.Request.Client, c.client)
		}
		wantNoSecret(t, "the record", fmt.Sprintf("%+v", rec))
		wantNoSecret(t, "the answer", fmt.Sprint(resp.Header, string(body)))
		if c.status != 200 {
			wantKeptOut(t, line, resp, &rec)
		}
	}
	wantNoSecret(t, "the log", log.String())
	if seen := append(plain.paths(), secure.paths()...); c.status != 200 && seen != nil {
		t.Errorf("the origins saw %q", seen)
	}
}

// TestClientAccess sends a request in every form. Refused clients cause no request to an origin.
func TestClientAccess(t *testing.T) {
	t.Parallel()
	byPassword := []policy.Client{{Name: "lab-a", PasswordHash: hashOf(t, secret)}}
	byNetwork := []policy.Client{{Name: "lab-a", Networks: here}}
	byBoth := []policy.Client{{Name: "lab-a", Networks: here, PasswordHash: hashOf(t, secret)}}
	right := basic("lab-a", secret)
	for _, c := range []clientCase{
		{"password/right", byPassword, false, right, 200, "lab-a"},
		{"password/right, open", byPassword, true, right, 200, "lab-a"},
		{"password/missing", byPassword, false, "", 407, "127.0.0.1"},
		{"password/missing, open", byPassword, true, "", 200, "127.0.0.1"},
		{"password/wrong", byPassword, false, basic("lab-a", secret+"x"), 407, "127.0.0.1"},
		{"password/wrong, open", byPassword, true, basic("lab-a", secret+"x"), 407, "127.0.0.1"},
		{"password/unknown name", byPassword, false, basic("lab-b", secret), 407, "127.0.0.1"},
		{"password/empty", byPassword, false, basic("lab-a", ""), 407, "127.0.0.1"},
		{"password/73 bytes", byPassword, false, basic("lab-a", strings.Repeat("x", 73)), 407, "127.0.0.1"},
		{"password/malformed", byPassword, false, "Proxy-Authorization: Basic " + secret + "\r\n", 407, "127.0.0.1"},
		{"password/Bearer", byPassword, false, strings.Replace(right, "Basic", "Bearer", 1), 407, "127.0.0.1"},
		{"password/Digest", byPassword, false, "Proxy-Authorization: Digest username=\"lab-a\"\r\n", 407, "127.0.0.1"},
		{"password/twice", byPassword, false, right + right, 407, "127.0.0.1"},
		{"password/for the origin", byPassword, false, strings.TrimPrefix(right, "Proxy-"), 407, "127.0.0.1"},
		{"network/in it", byNetwork, false, "", 200, "lab-a"},
		{"network/in it, with credentials", byNetwork, false, basic("x", "y"), 200, "lab-a"},
		{"network/in another", []policy.Client{{Name: "lab-a", Networks: elsewhere}}, false, "", 403, "127.0.0.1"},
		{"network/in another, open", []policy.Client{{Name: "lab-a", Networks: elsewhere}}, true, "", 200, "127.0.0.1"},
		{"both/right", byBoth, false, right, 200, "lab-a"},
		{"both/missing", byBoth, false, "", 407, "127.0.0.1"},
		{"both/in another network", []policy.Client{{Name: "lab-a", Networks: elsewhere, PasswordHash: hashOf(t, secret)}}, false, right, 403, "127.0.0.1"},
	} {
		t.Run(c.name, c.run)
	}
}

// wantKeptOut checks that the record and the response say why the client was refused.
func wantKeptOut(t *testing.T, line string, resp *http.Response, rec *audit.Record) {
	t.Helper()
	if rec.Decision.Reason != policy.ReasonAuth || !rec.Blocked() || rec.Err == nil || rec.Request.UserAgent != "FooBot/1.0" || rec.Target == "" {
		t.Errorf("%s: record: %+v", line, rec)
	}
	wantChallenge, wantStatus := `Basic realm="robotsproxy", charset="UTF-8"`, `robotsproxy; details="auth"`
	if resp.StatusCode == http.StatusForbidden {
		wantChallenge, wantStatus = "", `robotsproxy; error=http_request_denied; details="auth"`
	}
	if got := resp.Header.Get("Proxy-Authenticate"); got != wantChallenge {
		t.Errorf("%s: Proxy-Authenticate: %s", line, got)
	}
	if got := resp.Header.Get("Proxy-Status"); got != wantStatus {
		t.Errorf("%s: Proxy-Status: %s", line, got)
	}
}

// TestMonitorRefusesUnknownClients checks that monitor mode suspends only robots.txt, not client access.
func TestMonitorRefusesUnknownClients(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{
		clients: []policy.Client{{Name: "lab-a", PasswordHash: hashOf(t, secret)}},
		change:  func(o *proxy.Options) { o.Monitor = true },
	})
	if resp, _, err := get(r.client(false), origin.URL+"/page"); err != nil || resp.StatusCode != 407 {
		t.Errorf("%v %v", resp, err)
	}
	if rec := r.records.last(t, 1); rec.Monitor || rec.Decision.Reason != policy.ReasonAuth {
		t.Errorf("record: %+v", rec)
	}
	if got := origin.paths(); got != nil {
		t.Errorf("the origin saw %q", got)
	}
}

// TestLoginAfterChallenge checks that a client can log in on the connection of the 407 (RFC 9110 11.7.1).
func TestLoginAfterChallenge(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{clients: []policy.Client{{Name: "lab-a", PasswordHash: hashOf(t, secret)}}})
	for _, line := range []string{"GET " + origin.URL + "/page HTTP/1.1", "CONNECT " + origin.host() + " HTTP/1.1"} {
		conn, br := r.dial()
		for _, c := range []struct {
			header string
			status int
		}{{"", 407}, {basic("lab-a", "wrong"), 407}, {basic("lab-a", secret), 200}} {
			io.WriteString(conn, line+"\r\nHost: x\r\n"+c.header+"\r\n")
			asked, _, _ := strings.Cut(line, " ")
			resp, err := http.ReadResponse(br, &http.Request{Method: asked})
			testkit.Must(t, err)
			if resp.StatusCode != c.status {
				t.Fatalf("%s: %s, want %d", line, resp.Status, c.status)
			}
			if asked != http.MethodConnect || c.status != 200 {
				_, err = io.Copy(io.Discard, resp.Body)
				testkit.Must(t, err)
			}
		}
	}
}

// TestTunnelKeepsItsClient checks that credentials inside a tunnel are neither used nor forwarded.
func TestTunnelKeepsItsClient(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := serve(t, route.tls, rules, hello)
			var log logBuffer
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server}, change: log.listen,
				clients: []policy.Client{{Name: "lab-a", PasswordHash: hashOf(t, secret)}},
			})
			r.url.User = url.UserPassword("lab-a", secret)
			c := r.client(route.h2)
			for i, header := range []string{"", strings.TrimSpace(strings.TrimPrefix(basic("lab-a", secret), "Proxy-Authorization: "))} {
				req, err := http.NewRequest(http.MethodGet, origin.URL+fmt.Sprint("/page?", i), nil)
				testkit.Must(t, err)
				if header != "" && route.tls { // the transport itself sets it on plain requests
					req.Header.Set("Proxy-Authorization", header)
					req.Header.Set("X-Other", "kept")
				}
				resp, err := c.Do(req)
				testkit.Must(t, err)
				resp.Body.Close()
				if rec := r.records.last(t, i+1); resp.StatusCode != 200 || rec.Request.Client != "lab-a" {
					t.Errorf("%s, client %q", resp.Status, rec.Request.Client)
				}
			}
			if route.tls && origin.seen[len(origin.seen)-1].Header.Get("X-Other") == "" {
				t.Error("another header was lost")
			}
			for _, seen := range origin.seen {
				wantNoSecret(t, "what arrived", fmt.Sprint(seen.URL, seen.Header))
				if _, ok := seen.Header["Proxy-Authorization"]; ok {
					t.Error("Proxy-Authorization was forwarded")
				}
			}
			wantNoSecret(t, "the log", log.String())
		})
	}
}

// RFC 9110 7.6.1, 11.7.2.
func TestUpgradeForwardsNoCredentials(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	r := start(t, setup{clients: []policy.Client{{Name: "lab-a", PasswordHash: hashOf(t, secret)}}})
	conn, br := r.dial()
	io.WriteString(conn, "GET "+origin.URL+"/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+basic("lab-a", secret)+"\r\n")
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	conn.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	if rec := r.records.last(t, 1); rec.Request.Client != "lab-a" {
		t.Errorf("client %q", rec.Request.Client)
	}
	for _, seen := range origin.seen {
		wantNoSecret(t, "what arrived", fmt.Sprint(seen.Header))
		if _, ok := seen.Header["Proxy-Authorization"]; ok {
			t.Error("Proxy-Authorization was forwarded")
		}
	}
}

// TestConnectOfAStranger checks that the record of a CONNECT whose client is not admitted has what the client has sent, and no
// origin that the proxy has not judged.
func TestConnectOfAStranger(t *testing.T) {
	t.Parallel()
	r := start(t, setup{clients: []policy.Client{{Name: "lab", Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}})
	if resp := r.send("CONNECT Site.test:443 HTTP/1.1\r\nHost: Site.test:443\r\n\r\n"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	if rec := r.records.of(t, policy.ReasonAuth); rec.Request.Origin.Host != "" || rec.Target != "Site.test:443" {
		t.Errorf("origin %q, target %q", rec.Request.Origin.Host, rec.Target)
	}
}
