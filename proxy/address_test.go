package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress/dnstest"
	"robotsproxy/proxy/egress/ftptest"
	"robotsproxy/robots/testkit"
)

// oneRequest allows one request in a period longer than any test and refuses the next request immediately.
var oneRequest = pace.Limits{PerSecond: 0.001, Burst: 1, MaxConcurrent: 9, MaxWait: time.Millisecond, MaxQueue: 9}

// twoAddresses is a pair of servers on one port of two addresses; several names resolve to the first.
type twoAddresses struct {
	near, far *site
	names     *dnstest.Server
	scheme    string
	port      string
}

func (w route) twoAddresses(t testing.TB, pages http.HandlerFunc) *twoAddresses {
	t.Helper()
	s := &twoAddresses{scheme: "http"}
	if w.tls {
		s.scheme = "https"
	}
	near, far := testkit.ListenTwice(t, "127.0.0.1", "127.0.0.2")
	_, port, _ := net.SplitHostPort(near.Addr().String())
	s.port = port
	s.near, s.far = w.serveOn(t, near, rules, pages), w.serveOn(t, far, rules, pages)
	var err error
	s.names, err = dnstest.Start(map[string][][]string{
		"one.example.com.": {{"127.0.0.1"}}, "two.example.com.": {{"127.0.0.1"}}, "three.example.com.": {{"127.0.0.1"}},
		"far.example.com.": {{"127.0.0.2"}},
	})
	testkit.Must(t, err)
	t.Cleanup(s.names.Close)
	return s
}

func (s *twoAddresses) setup(w route, l pace.Limits) setup {
	return setup{front: w.front, origins: []*httptest.Server{s.near.Server}, limits: l, names: s.names}
}

func (s *twoAddresses) hostport(host string) string { return net.JoinHostPort(host, s.port) }

// get requests a URL and returns the status, with the error text of Proxy-Status for responses made by
// the proxy. A client whose CONNECT fails returns its own error text.
func (s *twoAddresses) get(t testing.TB, c *http.Client, host, path string) string {
	t.Helper()
	resp, _, err := get(c, s.scheme+"://"+s.hostport(host)+path)
	if err != nil {
		return err.Error()
	}
	return resp.Status + " " + resp.Header.Get("Proxy-Status")
}

// pagesOf returns the requests that reached s, except those for robots.txt, each with its Host.
func pagesOf(s *site) (pages []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if host, _, _ := strings.Cut(r.Host, "."); r.URL.Path != "/robots.txt" {
			pages = append(pages, host+r.URL.Path)
		}
	}
	return pages
}

func wantPages(t testing.TB, s *site, want ...string) {
	t.Helper()
	if got := pagesOf(s); !slices.Equal(got, want) {
		t.Errorf("requests at %s: %q, want %q", s.host(), got, want)
	}
}

// TestPerAddress checks that hosts at one address share a rate and hosts at different addresses do not.
func TestPerAddress(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			s := route.twoAddresses(t, hello)
			c := route.client(start(t, s.setup(route, oneRequest)))
			for _, visit := range []struct{ host, want string }{
				{"one.example.com", "200"}, {"two.example.com", "429"}, {"three.example.com", "429"}, {"127.0.0.1", "429"}, {"far.example.com", "200"},
			} {
				if got := s.get(t, c, visit.host, "/page"); !strings.HasPrefix(got, visit.want) {
					t.Errorf("%s: %s, want %s", visit.host, got, visit.want)
				}
			}
			wantPages(t, s.near, "one/page")
			wantPages(t, s.far, "far/page")
		})
	}
}

func TestPerAddressInMonitorMode(t *testing.T) {
	t.Parallel()
	route := routes[0]
	s := route.twoAddresses(t, hello)
	monitored := s.setup(route, oneRequest)
	monitored.change = func(o *proxy.Options) { o.Monitor = true }
	c := route.client(start(t, monitored))
	for _, host := range []string{"one.example.com", "two.example.com", "one.example.com"} {
		if got := s.get(t, c, host, "/page"); !strings.HasPrefix(got, "200") {
			t.Errorf("%s: %s", host, got)
		}
	}
}

// TestPerAddressOfPassThroughTunnels checks that passed-through tunnels share the rate of their address.
func TestPerAddressOfPassThroughTunnels(t *testing.T) {
	t.Parallel()
	route := route{tls: true}
	s := route.twoAddresses(t, hello)
	passThrough := s.setup(route, oneRequest)
	passThrough.change = func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } }
	r := start(t, passThrough)
	for _, visit := range []struct {
		host string
		want int
	}{{"one.example.com", 200}, {"two.example.com", 429}, {"far.example.com", 200}} {
		at := s.hostport(visit.host)
		if resp := r.send("CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n"); resp.StatusCode != visit.want {
			t.Errorf("%s: %s, want %d", visit.host, resp.Status, visit.want)
		}
	}
}

// TestPerAddressOfFTP checks that FTP servers share the rate of their address.
func TestPerAddressOfFTP(t *testing.T) {
	t.Parallel()
	server := &ftptest.Server{Files: map[string]string{"robots.txt": rules, "a.txt": "0123456789"}}
	testkit.Must(t, server.Start())
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Addr())
	route := routes[0]
	s := route.twoAddresses(t, hello)
	r := start(t, s.setup(route, oneRequest))
	for _, visit := range []struct {
		url  string
		want int
	}{
		{"ftp://one.example.com:" + port + "/a.txt", 200}, {"ftp://two.example.com:" + port + "/a.txt", 429},
		{"http://" + s.hostport("three.example.com") + "/page", 429}, {"http://" + s.hostport("far.example.com") + "/page", 200},
	} {
		if resp := r.send("GET " + visit.url + " HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != visit.want {
			t.Errorf("%s: %s, want %d", visit.url, resp.Status, visit.want)
		}
	}
	if got := server.Lines("RETR"); !slices.Equal(got, []string{"RETR robots.txt", "RETR a.txt"}) {
		t.Errorf("arrived: %q", got)
	}
}

// TestSharedPaceBacksOff checks that the hosts at one address, or of one domain, share its rate but not its back-off.
func TestSharedPaceBacksOff(t *testing.T) {
	t.Parallel()
	for _, per := range []string{"address", "domain"} {
		t.Run(per, func(t *testing.T) {
			route := routes[0]
			s := route.twoAddresses(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "100")
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			busy := s.setup(route, pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 9})
			busy.policyOptions = func(o *policy.Options) { o.PerDomain = per == "domain" }
			busy.change = func(o *proxy.Options) { o.BackOff, o.PerAddress = true, per == "address" }
			c := route.client(start(t, busy))
			for _, visit := range []struct{ host, want string }{
				{"one.example.com", "503"}, {"two.example.com", "503"}, {"one.example.com", "429"}, {"two.example.com", "429"}, {"three.example.com", "503"},
				{"far.example.com", "503"},
			} {
				if got := s.get(t, c, visit.host, "/page"); !strings.HasPrefix(got, visit.want) {
					t.Errorf("%s: %s, want %s", visit.host, got, visit.want)
				}
			}
			wantPages(t, s.near, "one/page", "two/page", "three/page")
		})
	}
}

// TestPerAddressWhenDNSChanges checks that no connection to the previous address is reused.
func TestPerAddressWhenDNSChanges(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			s := route.twoAddresses(t, hello)
			c := route.client(start(t, s.setup(route, oneRequest)))
			move := func(addr, path, want string) {
				t.Helper()
				s.names.Point("one.example.com.", addr)
				if got := s.get(t, c, "one.example.com", path); !strings.HasPrefix(got, want) {
					t.Errorf("%s at %s: %s, want %s", path, addr, got, want)
				}
			}
			move("127.0.0.1", "/1", "200")
			move("127.0.0.2", "/2", "200")
			move("127.0.0.1", "/3", "429")
			move("127.0.0.2", "/4", "429")
			wantPages(t, s.near, "one/1")
			wantPages(t, s.far, "one/2")
		})
	}
}

// TestPerAddressWhenDNSChangesWhileWaiting checks that a request goes to the address whose slot it
// waited for, even if its name resolves to another address by then.
func TestPerAddressWhenDNSChangesWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, route := range []route{routes[0], {name: "plain by h2", h2: true, front: withHTTP2}} {
		t.Run(route.name, func(t *testing.T) {
			began, release := make(chan struct{}, 2), make(chan struct{})
			s := route.twoAddresses(t, func(http.ResponseWriter, *http.Request) {
				began <- struct{}{}
				<-release
			})
			alone := oneRequest
			alone.PerSecond, alone.MaxConcurrent, alone.MaxWait = 1e6, 1, time.Minute
			c := route.client(start(t, s.setup(route, alone)))
			done := make(chan string)
			for _, path := range []string{"/1", "/2"} {
				before := s.names.Asked("one.example.com.")
				go func() { done <- s.get(t, c, "one.example.com", path) }()
				if path == "/1" {
					<-began
					continue
				}
				testkit.Eventually(t, "the name is looked up", func() bool { return s.names.Asked("one.example.com.") > before })
			}
			s.names.Point("one.example.com.", "127.0.0.2")
			close(release)
			for range 2 {
				if got := <-done; !strings.HasPrefix(got, "200") {
					t.Error(got)
				}
			}
			wantPages(t, s.near, "one/1", "one/2")
			wantPages(t, s.far)
		})
	}
}

// TestPerAddressOfWaitingTunnels checks the same for tunnels, intercepted or passed through.
func TestPerAddressOfWaitingTunnels(t *testing.T) {
	t.Parallel()
	for name, passThrough := range map[string]bool{"intercepted": false, "passed through": true} {
		t.Run(name, func(t *testing.T) {
			began, release := make(chan struct{}), make(chan struct{})
			s := route{tls: true}.twoAddresses(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/held" {
					close(began)
					<-release
				}
			})
			alone := s.setup(route{}, pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 9})
			alone.private = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
			alone.change = func(o *proxy.Options) {
				o.PassThrough = func(host string) bool { return passThrough && host == "one.example.com" }
			}
			r := start(t, alone)
			connect := "CONNECT " + s.hostport("one.example.com") + " HTTP/1.1\r\nHost: " + s.hostport("one.example.com") + "\r\n\r\n"
			if passThrough { // robots.txt is fetched before the wait
				r.send(connect)
			}
			held := make(chan string)
			go func() { held <- s.get(t, r.client(false), "two.example.com", "/held") }()
			<-began
			before := s.names.Asked("one.example.com.")
			conn, br := r.dial()
			_, err := io.WriteString(conn, connect)
			testkit.Must(t, err)
			testkit.Eventually(t, "the name is looked up", func() bool { return s.names.Asked("one.example.com.") > before })
			s.names.Point("one.example.com.", "127.0.0.2") // a forbidden address
			testkit.Must(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
			if _, err := br.Peek(1); err == nil {
				t.Error("the tunnel did not wait for a slot")
			}
			testkit.Must(t, conn.SetReadDeadline(time.Now().Add(testkit.Patience)))
			close(release)
			if got := <-held; !strings.HasPrefix(got, "200") {
				t.Error(got)
			}
			resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
			testkit.Must(t, err)
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s %s", resp.Status, resp.Header.Get("Proxy-Status"))
			}
		})
	}
}

// TestPerAddressRefusesForbiddenAddress covers a name that starts to resolve to a forbidden address.
func TestPerAddressRefusesForbiddenAddress(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			s := route.twoAddresses(t, hello)
			guarded := s.setup(route, pace.Limits{})
			guarded.private = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
			r := start(t, guarded)
			c := route.client(r)
			if got := s.get(t, c, "one.example.com", "/1"); !strings.HasPrefix(got, "200") {
				t.Error(got)
			}
			s.names.Point("one.example.com.", "127.0.0.2")
			got := s.get(t, c, "one.example.com", "/2") // in the open tunnel, if there is one
			if !strings.HasPrefix(got, "502") || !strings.Contains(got, "dns_error") {
				t.Error(got)
			}
			if rec := r.records.of(t, policy.ReasonAddress); !rec.Blocked() || rec.Status != 502 {
				t.Errorf("record: %+v", rec)
			}
			wantPages(t, s.near, "one/1")
			if got := s.far.paths(); got != nil {
				t.Errorf("the forbidden address saw %q", got)
			}
		})
	}
}

// TestPerAddressFallsBackToTheNextAddress covers a name with an address where nothing listens.
func TestPerAddressFallsBackToTheNextAddress(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			s := route.twoAddresses(t, hello)
			s.names.Point("one.example.com.", "127.0.0.3", "127.0.0.1")
			c := route.client(start(t, s.setup(route, pace.Limits{})))
			for range 3 {
				if got := s.get(t, c, "one.example.com", "/"); !strings.HasPrefix(got, "200") {
					t.Errorf("%s", got)
				}
			}
		})
	}
}

// TestPerAddressOfUnknownName checks that a failed lookup gets the same response as a failed dial.
func TestPerAddressOfUnknownName(t *testing.T) {
	t.Parallel()
	route := routes[0]
	s := route.twoAddresses(t, hello)
	r := start(t, s.setup(route, pace.Limits{}))
	for _, request := range []string{"CONNECT none.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://none.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		resp := r.send(request)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadGateway || !strings.Contains(resp.Header.Get("Proxy-Status"), "dns_error") || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %v %s", resp.Status, resp.Header, body)
		}
	}
}

// TestNamesOfForbiddenAddressesAreNotTold: a client cannot tell a name whose addresses are forbidden from one that does not
// exist, whether it asks for it or a robots.txt redirects there.
func TestNamesOfForbiddenAddressesAreNotTold(t *testing.T) {
	t.Parallel()
	names, err := dnstest.Start(nil)
	testkit.Must(t, err)
	defer names.Close()
	names.Point("internal.example.com.", "127.0.0.2")
	r := start(t, setup{names: names, private: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	_, port, _ := net.SplitHostPort(serve(t, false, "", hello).host())
	var answers []string
	for _, name := range []string{"internal.example.com", "missing0.example.com"} { // as long as each other
		redirects := httptest.NewServer(http.RedirectHandler("http://"+name+":"+port+"/robots.txt", http.StatusFound))
		defer redirects.Close()
		for _, ask := range []string{"GET http://" + name + ":" + port + "/x", "GET http://" + name + ":" + port + "/x", "CONNECT " + name + ":443", "GET " + redirects.URL + "/y"} {
			resp := r.send(ask + " HTTP/1.1\r\nHost: x\r\n\r\n")
			body, err := io.ReadAll(resp.Body)
			testkit.Must(t, err)
			text := fmt.Sprint(resp.Status, resp.Header["Proxy-Status"], resp.Header["Retry-After"], string(body))
			for _, own := range []string{name, strings.TrimPrefix(redirects.URL, "http://")} {
				text = strings.ReplaceAll(text, own, "NAME")
			}
			if strings.Contains(text, "127.0.0.2") || strings.Contains(text, ":53") {
				t.Errorf("an address is told: %s", text)
			}
			answers = append(answers, regexp.MustCompile(`(?m)^id: .*$|fetched: .*$`).ReplaceAllString(text, ""))
		}
	}
	for i, one := range answers[:len(answers)/2] {
		if other := answers[len(answers)/2+i]; one != other {
			t.Errorf("the answers differ: %s\n%s", one, other)
		}
	}
}
