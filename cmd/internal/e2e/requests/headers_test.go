package requests

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// ask sends a request, given by its lines, over the scheme and reads the response.
func ask(t *testing.T, p *e2e.Proxy, o *e2e.Origin, scheme, path string, header ...string) e2e.Result {
	t.Helper()
	w, target := p.Dial(t), o.URL("http", path)
	if scheme == "https" {
		w, target = p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name), path
	}
	w.Send(t, append([]string{"GET " + target + " HTTP/1.1", "Host: " + o.Hostport(scheme)}, header...)...)
	return w.Receive(t, http.MethodGet)
}

// lastPage returns the newest page request of the scheme.
func lastPage(t *testing.T, o *e2e.Origin, scheme string) e2e.Hit {
	t.Helper()
	pages := o.Pages(scheme)
	if len(pages) == 0 {
		t.Fatal("nothing arrived")
	}
	return pages[len(pages)-1]
}

// Eight clients send no User-Agent. Go must not add its own.
func TestNoUserAgentStaysNone(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "noagent", "User-agent: Go-http-client\nDisallow: /\n\nUser-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		if got := ask(t, p, o, scheme, "/a"); got.Status != http.StatusOK {
			t.Fatalf("%s: %v %s", scheme, got, got.Body)
		}
		if got, there := lastPage(t, o, scheme).Header["User-Agent"]; there {
			t.Errorf("%s: User-Agent %q was added", scheme, got)
		}
		for _, h := range o.Arrivals(scheme) {
			if strings.HasPrefix(h.Header.Get("User-Agent"), "Go-http-client") {
				t.Errorf("%s %s arrived with User-Agent %q", scheme, h.Path, h.Header.Get("User-Agent"))
			}
		}
		if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/a")); r.UserAgent != "" || r.Group != "*" {
			t.Errorf("%s: user_agent %q, group %q", scheme, r.UserAgent, r.Group)
		}
		e2e.WantOwn(t, ask(t, p, o, scheme, "/private"), http.StatusForbidden, "http_request_denied")
	}
}

// RFC 9110 7.6.1: fields for the next hop are removed in both directions.
func TestHopByHopHeaders(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "hop", "")
	o.Handle("/a", func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"Connection": "X-Origin-Hop, keep-alive", "X-Origin-Hop": "1", "Keep-Alive": "timeout=5", "Proxy-Connection": "keep-alive",
			"Proxy-Authenticate": "Basic", "Upgrade": "h2c", "X-End": "kept",
		} {
			w.Header().Set(name, value)
		}
		w.Write([]byte("a"))
	})
	p := e2e.StartProxy(t, e2e.Unpaced)
	hops := []string{"X-Hop", "X-Other-Hop", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Upgrade", "Trailer", "X-Origin-Hop"}
	for _, scheme := range e2e.Schemes {
		got := ask(t, p, o, scheme, "/a", "Connection: X-Hop, keep-alive", "Connection: x-other-hop, TE, Upgrade", "X-Hop: 1", "X-Other-Hop: 1",
			"Keep-Alive: 300", "TE: deflate, trailers", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic c2VjcmV0", "Upgrade: h2c",
			"X-End: kept", "Cookie: a=1", "Referer: http://r.test/")
		if got.Status != http.StatusOK || string(got.Body) != "a" {
			t.Fatalf("%s: %v", scheme, got)
		}
		arrived := lastPage(t, o, scheme).Header
		for _, name := range hops {
			if v, there := arrived[name]; there {
				t.Errorf("%s: %s: %q arrived at the origin", scheme, name, v)
			}
			if v, there := got.Header[name]; there {
				t.Errorf("%s: %s: %q arrived at the client", scheme, name, v)
			}
		}
		if strings.Contains(strings.Join(arrived["Connection"], ","), "op") {
			t.Errorf("%s: Connection: %q arrived", scheme, arrived["Connection"])
		}
		for name, want := range map[string]string{"X-End": "kept", "Te": "trailers", "Cookie": "a=1", "Referer": "http://r.test/"} {
			if arrived.Get(name) != want {
				t.Errorf("%s: %s arrived as %q", scheme, name, arrived.Get(name))
			}
		}
		if got.Header.Get("X-End") != "kept" || got.Header.Get("Proxy-Authenticate") != "" {
			t.Errorf("%s: header at the client %v", scheme, got.Header)
		}
		for where, h := range map[string]http.Header{"origin": arrived, "client": got.Header} {
			if !strings.HasPrefix(h.Get("Via"), "1.1 ") || !strings.Contains(h.Get("Via"), "robotsproxy") {
				t.Errorf("%s: Via at the %s is %q", scheme, where, h.Get("Via"))
			}
		}
		for _, name := range []string{"X-Forwarded-For", "Forwarded", "Proxy-Status"} {
			if v := arrived.Get(name) + got.Header.Get(name); v != "" {
				t.Errorf("%s: %s: %q was added", scheme, name, v)
			}
		}
	}
	// Connection headers of an origin would break an HTTP/2 stream.
	if got := e2e.Get(t, p.Client(t, true), o.URL("https", "/a")); got.Status != http.StatusOK || got.Proto != "HTTP/2.0" {
		t.Errorf("over HTTP/2: %s %v", got.Proto, got)
	}
}

// The proxy's own listeners cannot be requested, by any address or name, nor by a
// redirect of robots.txt.
func TestOwnListenersAreRefused(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": []string{"127.0.0.0/8", "0.0.0.0/8", "::/0"}}))
	name, _ := e2e.NewName("itself")
	e2e.Names.Point(name, netip.MustParseAddr("127.0.0.1"))
	_, listen, _ := net.SplitHostPort(p.Listen)
	_, admin, _ := net.SplitHostPort(p.Admin)
	asked := 0
	for _, host := range []string{"127.0.0.1", name, "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "[::]"} {
		for _, port := range []string{listen, admin} {
			authority := host + ":" + port
			for _, lines := range [][]string{
				{"GET http://" + authority + "/healthz HTTP/1.1", "Host: " + authority},
				{"GET http://" + authority + "/metrics HTTP/1.1", "Host: " + authority},
				{"GET https://" + authority + "/ HTTP/1.1", "Host: " + authority},
				{"CONNECT " + authority + " HTTP/1.1", "Host: " + authority},
			} {
				w := p.Dial(t)
				w.Send(t, lines...)
				got := w.Receive(t, http.MethodGet)
				asked++
				if e2e.WantOwn(t, got, http.StatusForbidden, "destination_ip_prohibited"); t.Failed() {
					t.Fatalf("that was %s", lines[0])
				}
			}
		}
	}
	records := e2e.ReadAudit(t, p.Audit)
	if len(records) != asked {
		t.Errorf("%d records of %d requests", len(records), asked) // no request came from the proxy itself
	}
	for _, r := range records {
		e2e.WantBlocked(t, r, "address", http.StatusForbidden)
	}
	o := e2e.NewOrigin(t, "leads-to-admin", "")
	o.Handle("/robots.txt", http.RedirectHandler("http://"+p.Admin+"/healthz", http.StatusFound).ServeHTTP)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	e2e.WantOwn(t, e2e.Get(t, p.Client(t, false), o.URL("http", "/a")), http.StatusForbidden, "http_request_denied")
	e2e.WantBlocked(t, e2e.OnlyRecord(t, p.Audit, o.URL("http", "/a")), "unreachable", http.StatusForbidden)
}

// A loop through another hop is detected by Via in the first round: that hop sends its
// requests back to the proxy.
func TestLoopThroughAnotherHop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		loops []string
		want  int // number of requests at the hop
	}{
		{"a page", []string{"/a"}, 2},                        // robots.txt, then the page
		{"robots.txt too", []string{"/a", "/robots.txt"}, 1}, // the fetch, which the proxy recognises when it returns
	} {
		t.Run(c.name, func(t *testing.T) {
			p := e2e.StartProxy(t, e2e.Unpaced)
			hop := e2e.NewOrigin(t, "hop", "")
			again := p.Client(t, false)
			for _, path := range c.loops {
				hop.Handle(path, func(w http.ResponseWriter, r *http.Request) {
					back, err := http.NewRequestWithContext(r.Context(), r.Method, hop.URL("http", r.URL.Path), nil)
					if err != nil {
						t.Error(err)
						return
					}
					back.Header = r.Header.Clone()
					resp, err := again.Transport.RoundTrip(back)
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					w.Header()["Proxy-Status"] = resp.Header["Proxy-Status"]
					w.WriteHeader(resp.StatusCode)
					io.Copy(w, resp.Body)
				})
			}
			got := e2e.Get(t, p.Client(t, false), hop.URL("http", "/a"))
			if len(c.loops) == 1 {
				passedOn := []string{`robotsproxy; error=proxy_loop_detected; details="loop"`, "robotsproxy; received-status=502"} // added by the hop, and by the proxy where the loop began
				if status := got.Header["Proxy-Status"]; got.Status != http.StatusBadGateway || !slices.Equal(status, passedOn) {
					t.Errorf("%d %q", got.Status, status)
				}
			} else {
				e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
			}
			if n := len(hop.Arrivals("http")); n != c.want {
				t.Errorf("%d requests arrived at the hop, want %d: %+v", n, c.want, hop.Arrivals("http"))
			}
			loops := 0
			for _, r := range e2e.ReadAudit(t, p.Audit) {
				if r.Reason == "loop" {
					loops++
				}
			}
			if loops != 1 {
				t.Errorf("%d loops are recorded, want 1", loops)
			}
		})
	}
}

// Via identifies the proxies that a message has passed: the same message does not pass
// twice, whatever way it took.
func TestOwnViaIsRefused(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "again", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		ask(t, p, o, scheme, "/a")
		via := lastPage(t, o, scheme).Header.Get("Via")
		got := ask(t, p, o, scheme, "/a", "Via: 1.0 fred, "+via)
		if token, _ := e2e.ProxyStatus(t, got.Header); got.Status < 400 || token == "" {
			t.Errorf("%s: with a Via of its own (%s): %v", scheme, via, got)
		}
		if n := len(o.Pages(scheme)); n != 1 {
			t.Errorf("%s: %d pages arrived, want 1", scheme, n)
		}
	}
}

// A chain of proxies is not a loop, and each proxy adds to Via.
func TestViaOfOthersIsKept(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "via", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	if got := ask(t, p, o, "http", "/a", "Via: 1.0 fred, 1.1 p.example.net"); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	via := strings.Join(lastPage(t, o, "http").Header["Via"], ", ")
	if !strings.HasPrefix(via, "1.0 fred, 1.1 p.example.net, 1.1 ") || !strings.Contains(via, "robotsproxy") {
		t.Errorf("Via is %q", via)
	}
}

// The bytes of the target pass unchanged: they are neither cleaned nor decoded.
func TestTargetIsUntouched(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "target", "")
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		for _, path := range []string{"/a//b/../c/./d", "/%7Euser/%2f%2F/a%20b", "/a;p=1?q=%41+b&&c=d?e", "/?", "/a%00b", "/%E4%BD%A0", "/*"} {
			ask(t, p, o, scheme, path)
			if got := lastPage(t, o, scheme).Path; got != path {
				t.Errorf("%s: %s arrived as %s", scheme, path, got)
			}
		}
	}
}
