package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const secret = "a-token-of-24-characters"

// Without a token, requests with a foreign name in Host are refused (DNS rebinding).
func TestNoTokenRequiresLocalName(t *testing.T) {
	f := newFixture(t)
	for host, status := range map[string]int{
		"localhost": 200, "LocalHost:8081": 200, "localhost.": 200, "a.localhost:9": 200, "127.0.0.1": 200, "127.0.0.1:8081": 200,
		"[::1]:8081": 200, "[::1]": 200, "::1": 200, "192.0.2.7:1": 200, "localhost:": 200,
		"evil.test": 421, "evil.test:8081": 421, "localhost.evil.test": 421, "127.0.0.1.evil.test": 421, "xlocalhost": 421,
		"127.1": 421, "0x7f000001": 421, "2130706433": 421, "[::1": 421, "[localhost]x": 421, "127.0.0.1:x": 421, "": 421, " localhost": 421,
		"localhost:8081:1": 421, "127.0.0.1@evil.test": 421, "localhost\x00": 421,
	} {
		for _, target := range []string{"/api/v1/series", "/healthz", "/metrics", "/"} {
			got := f.do("GET", target, "", "Host", host).Code
			if target == "/metrics" || target == "/" {
				if (got == 421) != (status == 421) {
					t.Errorf("Host %q: %d for %s", host, got, target)
				}
			} else if got != status {
				t.Errorf("Host %q: %d for %s, want %d", host, got, target, status)
			}
		}
	}
	// An absolute request target overrides Host (RFC 9112 3.2.2).
	if got := f.do("GET", "http://evil.test/api/v1/series", ""); got.Code != 421 {
		t.Errorf("%d", got.Code)
	}
	old := newLoopbackRequest("GET", "/healthz", "")
	old.Host, old.ProtoMajor, old.ProtoMinor = "", 1, 0
	w := httptest.NewRecorder()
	if f.http.Handler.ServeHTTP(w, old); w.Code != 200 {
		t.Errorf("HTTP/1.0 without a name: %d", w.Code)
	}
}

// A configuration that listens beyond loopback has a token. If it had none, all requests would
// be refused.
func TestNoTokenRequiresLoopback(t *testing.T) {
	f := newFixture(t)
	for _, at := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8081}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, nil} {
		r := newLoopbackRequest("GET", "/api/v1/series", "")
		w := httptest.NewRecorder()
		f.http.Handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at)))
		if w.Code != http.StatusForbidden {
			t.Errorf("%v: %d", at, w.Code)
		}
	}
}

func TestTokenIsRequired(t *testing.T) {
	for _, c := range []struct {
		name, target string
		header       []string
		status       int
	}{
		{"health needs none", "/healthz", nil, 200},
		{"nor does readiness", "/readyz", nil, 200},
		{"nor health by another name", "/healthz", []string{"Host", "proxy.example"}, 200},
		{"nor the login", "/login", nil, 200},
		{"the API", "/api/v1/series", nil, 401},
		{"metrics", "/metrics", nil, 401},
		{"metrics, of a browser", "/metrics", []string{"Accept", "text/html"}, 401},
		{"pages", "/", nil, 401},
		{"what is not there", "/nothing", nil, 401},
		{"not below /healthz", "/healthz/../api/v1/series", nil, 401},
		{"not below /static/", "/static/../api/v1/series", nil, 401},
		{"with it", "/api/v1/series", []string{"Authorization", "Bearer " + secret}, 200},
		{"the scheme is of no case (RFC 9110 11.1)", "/api/v1/series", []string{"Authorization", "bearer  " + secret}, 200},
		{"by any name", "/api/v1/series", []string{"Authorization", "Bearer " + secret, "Host", "proxy.example"}, 200},
		{"metrics with it", "/metrics", []string{"Authorization", "Bearer " + secret}, 200},
		{"another", "/api/v1/series", []string{"Authorization", "Bearer " + secret + "x"}, 401},
		{"a part", "/api/v1/series", []string{"Authorization", "Bearer " + secret[1:]}, 401},
		{"none behind the scheme", "/api/v1/series", []string{"Authorization", "Bearer "}, 401},
		{"the scheme alone", "/api/v1/series", []string{"Authorization", "Bearer"}, 401},
		{"another scheme", "/api/v1/series", []string{"Authorization", "Basic " + secret}, 401},
		{"no scheme", "/api/v1/series", []string{"Authorization", secret}, 401},
		{"as a cookie", "/api/v1/series", []string{"Cookie", cookieName + "=" + secret}, 401},
		{"in the address", "/api/v1/series?token=" + secret, nil, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, withToken(secret), func(o *Options) { o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) })
			got := f.do("GET", c.target, "", c.header...)
			if got.Code != c.status {
				t.Fatalf("%d, want %d", got.Code, c.status)
			}
			if c.status != 401 {
				return
			}
			if p := decode[problemDetails](t, got, 401); p.Status != 401 || p.Title != "Unauthorized" || p.Detail == "" {
				t.Errorf("%+v", p)
			}
			if ch := got.Header().Get("WWW-Authenticate"); !strings.HasPrefix(ch, "Bearer ") {
				t.Errorf("WWW-Authenticate: %s", ch)
			}
		})
	}
}

func TestBrowserIsRedirectedToLogin(t *testing.T) {
	f := newFixture(t, withToken(secret))
	for target, want := range map[string]string{
		"/": "/login", "/hosts?q=a&sort=b": "/login?next=%2Fhosts%3Fq%3Da%26sort%3Db", "//evil.test/": "/login", "/%5Cevil.test": "/login?next=%2F%255Cevil.test",
	} {
		for _, header := range [][]string{{"Accept", "text/html,*/*;q=0.8"}, {"Sec-Fetch-Mode", "navigate"}} {
			got := f.do("GET", "http://127.0.0.1:8081"+target, "", header...)
			if got.Code != http.StatusSeeOther || got.Header().Get("Location") != want {
				t.Errorf("%s: %d to %s, want %s", target, got.Code, got.Header().Get("Location"), want)
			}
		}
	}
	if got := f.do("GET", "/api/v1/series", "", "Accept", "text/html"); got.Code != 401 {
		t.Errorf("the API: %d", got.Code)
	}
	if got := f.do("POST", "/reload", "", "Accept", "text/html"); got.Code != 401 {
		t.Errorf("a form: %d", got.Code)
	}
}

// login posts the login form and returns the response and the cookie.
func (f *fixture) login(token, next string, header ...string) (*httptest.ResponseRecorder, *http.Cookie) {
	form := url.Values{"token": {token}, "next": {next}}.Encode()
	w := f.do("POST", "/login", form, append([]string{"Content-Type", "application/x-www-form-urlencoded"}, header...)...)
	for _, c := range w.Result().Cookies() {
		return w, c
	}
	return w, nil
}

func TestLoginSetsCookie(t *testing.T) {
	f := newFixture(t, withToken(secret))
	w, c := f.login(secret+" ", "/hosts?q=a") // with a space, as people paste it
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/hosts?q=a" || c == nil {
		t.Fatalf("%d to %s, %v", w.Code, w.Header().Get("Location"), c)
	}
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.Domain != "" || c.MaxAge != int(sessionLifetime.Seconds()) {
		t.Errorf("%+v", c)
	}
	if strings.Contains(c.Value, secret) {
		t.Error("the cookie has the token in it")
	}
	if got := f.statusWithCookie(c.Value); got != 200 {
		t.Fatalf("with the cookie: %d", got)
	}
	if got := f.do("GET", "/login?next=/x", "", "Cookie", c.String()); got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/x" {
		t.Errorf("who is logged in has nothing to do there: %d", got.Code)
	}
	for i := range c.Value {
		forged := []byte(c.Value)
		forged[i] ^= 1
		if got := f.statusWithCookie(string(forged)); got != 401 {
			t.Errorf("byte %d changed: %d", i, got)
		}
	}
	if got := newFixture(t, withToken(secret)).statusWithCookie(c.Value); got != 401 {
		t.Errorf("of another process: %d", got)
	}
}

// statusWithCookie sends a request with a session cookie among other cookies, and returns the
// status.
func (f *fixture) statusWithCookie(cookie string) (status int) {
	return f.do("GET", "/api/v1/series", "", "Cookie", "other=1; "+cookieName+"=forged; "+cookieName+"="+cookie).Code
}

// A session ends when it expires, when the token changes or by logout.
func TestSessionEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := secret
		f := newFixture(t, func(o *Options) { o.Token = func() string { return token } })
		_, c := f.login(secret, "/")
		_, again := f.login(secret, "/")
		if again.Value == c.Value {
			t.Error("two sessions have one cookie")
		}
		token = "another-token-of-some-length"
		if got := f.statusWithCookie(c.Value); got != 401 {
			t.Errorf("after another token: %d", got)
		}
		token = secret
		<-time.After(sessionLifetime - 2*time.Second)
		if got := f.statusWithCookie(c.Value); got != 200 {
			t.Errorf("before its end: %d", got)
		}
		if got := f.do("POST", "/logout", "", "Cookie", again.String(), "Sec-Fetch-Site", "same-origin"); got.Code != http.StatusSeeOther || got.Result().Cookies()[0].MaxAge >= 0 {
			t.Errorf("logout: %d %v", got.Code, got.Result().Cookies())
		}
		if got := f.statusWithCookie(again.Value); got != 401 {
			t.Errorf("after the logout, from a copy: %d", got)
		}
		if got := f.statusWithCookie(c.Value); got != 200 {
			t.Errorf("another session after it: %d", got)
		}
		<-time.After(3 * time.Second)
		if got := f.statusWithCookie(c.Value); got != 401 {
			t.Errorf("after its end: %d", got)
		}
	})
}

// When no more revoked sessions can be remembered, all sessions are revoked.
func TestRevokedSessionsAreBounded(t *testing.T) {
	s := newSessions()
	now := time.Now()
	kept := s.create(secret, now)
	var first string
	for i := range maxRevoked {
		cookie := s.create(secret, now)
		if i == 0 {
			first = cookie
		}
		s.revoke(cookie, secret, now)
	}
	if len(s.revoked) != maxRevoked || !s.valid(kept, secret, now) {
		t.Fatalf("%d", len(s.revoked))
	}
	s.revoke(s.create(secret, now), secret, now)
	if len(s.revoked) != 0 || s.valid(kept, secret, now) || s.valid(first, secret, now) {
		t.Error("a session goes on, or one is ended no more")
	}
	if cookie := s.create(secret, now); !s.valid(cookie, secret, now) {
		t.Error("nobody can log in")
	}
}

func TestCookieIsSecureOverTLS(t *testing.T) {
	f := newFixture(t, withToken(secret))
	r := newLoopbackRequest("POST", "/login", "token="+secret, "Content-Type", "application/x-www-form-urlencoded")
	r.TLS = &tls.ConnectionState{}
	w := httptest.NewRecorder()
	f.http.Handler.ServeHTTP(w, r)
	if c := w.Result().Cookies(); len(c) != 1 || !c[0].Secure {
		t.Errorf("%v", c)
	}
}

func TestLoginRedirectsOnlyLocally(t *testing.T) {
	f := newFixture(t, withToken(secret))
	for _, next := range []string{
		"https://evil.test/", "//evil.test", `/\evil.test`, `\\evil.test`, "javascript:alert(1)", "evil.test", "", "/\t/evil.test", "/a\r\nSet-Cookie: x=y", "/login", "/logout",
		"///evil.test", "http:evil.test", "?x", "/ /\x00",
	} {
		if w, _ := f.login(secret, next); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
			t.Errorf("next %q: %d to %q", next, w.Code, w.Header().Get("Location"))
		}
	}
}

func TestLoginPageShowsError(t *testing.T) {
	f := newFixture(t, withToken(secret))
	w, c := f.login(hostileText, "/x?\"><script>")
	if w.Code != http.StatusUnauthorized || c != nil || !strings.Contains(w.Body.String(), "The token is wrong") {
		t.Fatalf("%d %v:\n%s", w.Code, c, w.Body)
	}
	if strings.Contains(w.Body.String(), "<script>") || !strings.Contains(w.Body.String(), `value="/x?&#34;&gt;&lt;script&gt;"`) {
		t.Errorf("%s", w.Body)
	}
	if w := f.do("POST", "/login", "token="+strings.Repeat("x", maxBody), "Content-Type", "application/x-www-form-urlencoded"); w.Code != http.StatusBadRequest {
		t.Errorf("longer than a form is: %d", w.Code)
	}
	none := newFixture(t)
	if w, c := none.login("", "/x"); w.Code != http.StatusSeeOther || c != nil {
		t.Errorf("without a token there is nothing to log in for: %d %v", w.Code, c)
	}
}

// Wrong tokens do not lock out clients with the right one, such as the operator or a
// metrics scraper.
func TestWrongTokensDoNotLockOut(t *testing.T) {
	f := newFixture(t, withToken(secret))
	for i := range 1000 {
		if got := f.do("GET", "/api/v1/series", "", "Authorization", "Bearer wrong").Code; got != 401 {
			t.Fatalf("wrong token %d: %d", i, got)
		}
	}
	if got := f.do("GET", "/api/v1/series", "", "Authorization", "Bearer "+secret).Code; got != 200 {
		t.Errorf("the right one: %d", got)
	}
	if w, c := f.login(secret, "/"); w.Code != http.StatusSeeOther || c == nil {
		t.Errorf("a login: %d", w.Code)
	}
}

// Pages of other origins can make a browser send any request, with or without the cookie.
func TestCrossOriginRequestsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"no browser", nil, 501},
		{"a page of ours", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:8081"}, 501},
		{"typed in", []string{"Sec-Fetch-Site", "none"}, 501},
		{"a page of ours, in an old browser", []string{"Origin", "http://127.0.0.1:8081"}, 501},
		{"another site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.test"}, 403},
		{"another port of this machine", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:3000"}, 403},
		{"another site, in an old browser", []string{"Origin", "https://evil.test"}, 403},
		{"a page without an origin", []string{"Origin", "null"}, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := false
			f := newFixture(t)
			token := newFixture(t, withToken(secret), func(o *Options) { o.Reload = func(context.Context) error { changed = true; return errors.New("no") } })
			if got := f.do("POST", "/api/v1/reload", "", c.header...).Code; got != c.status {
				t.Errorf("%d, want %d", got, c.status)
			}
			_, cookie := token.login(secret, "/")
			token.do("POST", "/api/v1/reload", "", append(c.header, "Cookie", cookie.String())...)
			if changed == (c.status == 403) {
				t.Errorf("with a cookie: changed %v", changed)
			}
			if w, c2 := f.login(secret, "/", c.header...); c.status == 403 && (w.Code != 403 || c2 != nil) {
				t.Errorf("login: %d", w.Code)
			}
		})
	}
}

func TestSecurityHeaders(t *testing.T) {
	f, guarded := newFixture(t), newFixture(t, withToken(secret))
	for name, got := range map[string]*httptest.ResponseRecorder{
		"health": f.do("GET", "/healthz", ""), "the API": f.do("GET", "/api/v1/", ""), "nothing": f.do("GET", "/nothing", ""),
		"no such endpoint": f.do("GET", "/api/v1/nothing", ""), "a wrong method": f.do("DELETE", "/api/v1/hosts", ""),
		"a wrong Host": f.do("GET", "/", "", "Host", "evil.test"), "no token": guarded.do("GET", "/", ""), "the login": guarded.do("GET", "/login", ""),
		"led to it": guarded.do("GET", "/", "", "Accept", "text/html"), "another origin": f.do("POST", "/api/v1/purge", "", "Origin", "https://evil.test"),
		"OPTIONS *": f.do("OPTIONS", "*", ""), "metrics that are off": f.do("GET", "/metrics", ""),
	} {
		h := got.Header()
		for _, want := range [][2]string{
			{"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
			{"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "same-origin"}, {"Cache-Control", "no-store"},
			{"Cross-Origin-Opener-Policy", "same-origin"}, {"Cross-Origin-Resource-Policy", "same-origin"},
			{"Access-Control-Allow-Origin", ""},
		} {
			if h.Get(want[0]) != want[1] {
				t.Errorf("%s (%d): %s: %q", name, got.Code, want[0], h.Get(want[0]))
			}
		}
	}
}

// TestProxyRequests checks that a client that takes a listener for operators for the proxy is told where the proxy is, with a
// token or without one, and nothing else; and that the listener's own URL as the target is no such request.
func TestProxyRequests(t *testing.T) {
	everywhere := func(o *Options) { o.Proxy = &net.TCPAddr{IP: net.IPv6unspecified, Port: 3128} }
	secure := func(o *Options) { o.ProxyTLS = true }
	for name, c := range map[string]struct {
		change         func(*Options)
		method, target string
		own            bool
		want           string
	}{
		"a URL":                         {method: "GET", target: "http://example.com/metrics", want: "127.0.0.1:8080"},
		"a URL with a port":             {method: "POST", target: "http://example.com:8080/", want: "127.0.0.1:8080"},
		"a path that needs no token":    {method: "GET", target: "http://example.com/healthz", want: "127.0.0.1:8080"},
		"ftp":                           {method: "GET", target: "ftp://example.com/", want: "127.0.0.1:8080"},
		"https":                         {method: "GET", target: "https://example.com:8081/", want: "127.0.0.1:8080"},
		"CONNECT":                       {method: "CONNECT", target: "example.com:443", want: "127.0.0.1:8080"},
		"CONNECT to the listener":       {method: "CONNECT", target: "127.0.0.1:8081", want: "127.0.0.1:8080"},
		"a proxy on all addresses":      {change: everywhere, method: "GET", target: "http://example.com/", want: "127.0.0.1:3128"},
		"a proxy that speaks TLS":       {change: secure, method: "GET", target: "http://example.com/", want: "https://127.0.0.1:8080"},
		"the listener's own URL":        {method: "GET", target: "http://127.0.0.1:8081/readyz", own: true},
		"the listener by another name":  {method: "GET", target: "http://localhost:8081/readyz", own: true},
		"an ordinary request":           {method: "GET", target: "/readyz", own: true},
		"an ordinary request with HEAD": {method: "HEAD", target: "/readyz", own: true},
	} {
		t.Run(name, func(t *testing.T) {
			changes := []func(*Options){func(*Options) {}}
			if c.change != nil {
				changes[0] = c.change
			}
			f, guarded := newFixture(t, changes...), newFixture(t, append(changes, withToken(secret))...)
			for listener, h := range map[string]http.Handler{"admin": f.http.Handler, "admin ": guarded.http.Handler, "metrics": NewMonitor(f.opts).http.Handler} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, newLoopbackRequest(c.method, c.target, ""))
				if c.own {
					if w.Code != http.StatusOK {
						t.Errorf("%s: %d", listener, w.Code)
					}
					continue
				}
				text := "this is the " + strings.TrimSpace(listener) + " listener; the proxy is at " + c.want
				if w.Code != http.StatusMisdirectedRequest || w.Body.String() != "robotsproxy: "+text+"\n" ||
					w.Header().Get("Proxy-Status") != `robotsproxy; error=http_request_error; details="`+text+`"` {
					t.Errorf("%s: %d %v %s", listener, w.Code, w.Header(), w.Body)
				}
			}
		})
	}
}
