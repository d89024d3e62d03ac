package proxy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/parenttest"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// parents are upstream proxies that all know the hosts below example.com: ofAll of Options.Parent, and those of entries. The
// name server knows only direct.example.com and paths.example.com.
type parents struct {
	ofAll, socks, plain *parenttest.Parent
	urls                map[string]*url.URL
}

func startParents(t *testing.T) *parents {
	t.Helper()
	names := map[string]string{}
	for _, host := range []string{"all", "socks", "plain", "direct", "broken", "paths"} {
		names[host+".example.com"] = "127.0.0.1"
	}
	p := &parents{ofAll: &parenttest.Parent{Names: names}, socks: &parenttest.Parent{Names: names}, plain: &parenttest.Parent{Names: names}}
	at := func(scheme, host string) *url.URL { return &url.URL{Scheme: scheme, Host: host} }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				p.socks.ServeSocks(c)
			}()
		}
	}()
	ofAll, plain := httptest.NewServer(p.ofAll), httptest.NewServer(p.plain)
	t.Cleanup(ofAll.Close)
	t.Cleanup(plain.Close)
	p.urls = map[string]*url.URL{
		"": at("http", ofAll.Listener.Addr().String()), "socks": at("socks5", l.Addr().String()), "plain": at("http", plain.Listener.Addr().String()),
		"broken": at("http", testkit.DeadEnd(t, "127.0.0.1")), "direct": nil,
	}
	return p
}

// setup returns a proxy that uses the upstream proxies.
func (p *parents) setup(of setup) setup {
	of.egressOptions = func(o *egress.Options) { o.Parent, o.Parents = p.urls[""], p.urls }
	of.policyOptions = entries(
		policy.Host{Match: "socks.example.com", Parent: "socks"}, policy.Host{Match: "plain.example.com", Parent: "plain"},
		policy.Host{Match: "broken.example.com", Parent: "broken"},
		policy.Host{Match: "paths.example.com", Paths: []string{"/api/"}, Parent: "plain"},
		policy.Host{Match: "paths.example.com", Parent: "direct"}, policy.Host{Match: "direct.example.com", Parent: "direct"},
	)
	return of
}

// askedOf returns the distinct requests that an upstream proxy got, sorted, as the method and the target.
func askedOf(p *parenttest.Parent) (all []string) {
	for _, r := range p.Requests() {
		method, _, _ := strings.Cut(r.Form, " ")
		all = append(all, method+" "+r.Target)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func wantAsked(t *testing.T, name string, p *parenttest.Parent, want ...string) {
	t.Helper()
	if got := askedOf(p); !slices.Equal(got, want) {
		t.Errorf("the upstream proxy %s got %q, want %q", name, got, want)
	}
}

// TestParentOfEntries checks that each host is reached through the upstream proxy of its entry alone, robots.txt included.
func TestParentOfEntries(t *testing.T) {
	t.Parallel()
	for _, route := range []route{routes[0], routes[1], routes[4]} {
		t.Run(route.name, func(t *testing.T) {
			s := route.twoAddresses(t, hello)
			s.names.Point("direct.example.com.", "127.0.0.1")
			s.names.Point("paths.example.com.", "127.0.0.1")
			p := startParents(t)
			r := start(t, p.setup(s.setup(route, pace.Limits{})))
			c := route.client(r)
			for _, host := range []string{"all", "socks", "plain", "direct", "paths"} {
				if got := s.get(t, c, host+".example.com", "/page"); !strings.HasPrefix(got, "200") {
					t.Errorf("%s: %s", host, got)
				}
				if got := s.get(t, c, host+".example.com", "/private"); !strings.HasPrefix(got, "403") {
					t.Errorf("%s: a disallowed page: %s", host, got)
				}
			}
			if got := s.get(t, c, "paths.example.com", "/api/1"); !strings.HasPrefix(got, "200") {
				t.Errorf("an entry with paths: %s", got)
			}
			at := func(host string) string { return s.hostport(host + ".example.com") }
			wantAsked(t, "for socks", p.socks, "name "+at("socks"))
			if route.tls {
				wantAsked(t, "for all", p.ofAll, "CONNECT "+at("all"))
				wantAsked(t, "for plain", p.plain, "CONNECT "+at("paths"), "CONNECT "+at("plain"))
			} else {
				wantAsked(t, "for all", p.ofAll, "GET http://"+at("all")+"/page", "GET http://"+at("all")+"/robots.txt")
				wantAsked(t, "for plain", p.plain,
					"GET http://"+at("paths")+"/api/1", "GET http://"+at("plain")+"/page", "GET http://"+at("plain")+"/robots.txt")
			}
			wantPages(t, s.near, "all/page", "socks/page", "plain/page", "direct/page", "paths/page", "paths/api/1")
			files := 0
			for _, path := range s.near.paths() {
				if path == "/robots.txt" {
					files++
				}
			}
			if files != 5 {
				t.Errorf("%d fetches of robots.txt arrived, want one for each host: %q", files, s.near.paths())
			}
		})
	}
}

// TestParentOfPassThroughTunnels checks that a tunnel which is passed through takes the upstream proxy of the host's entry, and its
// robots.txt does.
func TestParentOfPassThroughTunnels(t *testing.T) {
	t.Parallel()
	s := route{tls: true}.twoAddresses(t, hello)
	p := startParents(t)
	passThrough := p.setup(s.setup(route{}, pace.Limits{}))
	passThrough.change = func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } }
	r := start(t, passThrough)
	at := s.hostport("socks.example.com")
	if resp := r.send("CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n"); resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s", resp.Status, resp.Header.Get("Proxy-Status"))
	}
	if got := p.socks.Requests(); len(got) != 2 {
		t.Errorf("%d tunnels, want one for robots.txt and one for the client: %q", len(got), got)
	}
	wantAsked(t, "for socks", p.socks, "name "+at)
	wantAsked(t, "for all", p.ofAll)
}

// TestBrokenParentOfAnEntry checks that nothing takes another way if the upstream proxy of an entry fails.
func TestBrokenParentOfAnEntry(t *testing.T) {
	t.Parallel()
	for _, route := range []route{routes[0], routes[1]} {
		for _, monitor := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s monitor=%t", route.name, monitor), func(t *testing.T) {
				s := route.twoAddresses(t, hello)
				s.names.Point("broken.example.com.", "127.0.0.1")
				p := startParents(t)
				of := p.setup(s.setup(route, pace.Limits{}))
				of.change = func(o *proxy.Options) { o.Monitor, o.PerAddress = monitor, !monitor }
				r := start(t, of)
				if got := s.get(t, route.client(r), "broken.example.com", "/page"); !strings.HasPrefix(got, "502") && !strings.Contains(got, "Bad Gateway") {
					t.Error(got)
				}
				rec := r.records.last(t, 1)
				if err := fmt.Sprint(rec.Err, rec.Decision.Err); rec.Status != http.StatusBadGateway || !strings.Contains(err, p.urls["broken"].Host) {
					t.Errorf("status %d, %s", rec.Status, err)
				}
				if !monitor && rec.Decision.Reason != policy.ReasonParent {
					t.Errorf("reason %q", rec.Decision.Reason)
				}
				wantAsked(t, "for all", p.ofAll)
				if got := s.near.paths(); len(got) > 0 {
					t.Errorf("arrived: %q", got)
				}
			})
		}
	}
}

// TestNamesOfTheUpstreamProxy checks that names which mean the upstream proxy's own host are refused only where there is one.
func TestNamesOfTheUpstreamProxy(t *testing.T) {
	t.Parallel()
	s := routes[0].twoAddresses(t, hello)
	s.names.Point("metadata.goog.", "127.0.0.1")
	s.names.Point("instance-data.", "127.0.0.1")
	p := startParents(t)
	of := p.setup(s.setup(routes[0], pace.Limits{}))
	of.policyOptions = entries(policy.Host{Match: "metadata.goog", Parent: "direct"}, policy.Host{Match: "instance-data", Parent: "socks"})
	c := start(t, of).client(false)
	for host, want := range map[string]string{"metadata.goog": "200", "instance-data": "502 Bad Gateway robotsproxy; error=dns_error"} {
		if got := s.get(t, c, host, "/page"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	wantAsked(t, "for socks", p.socks)
}

// TestPaceOfParents checks that only hosts without an upstream proxy are paced by their address, in the explanation too. The last
// host gets no slot for its robots.txt.
func TestPaceOfParents(t *testing.T) {
	t.Parallel()
	s := routes[0].twoAddresses(t, hello)
	s.names.Point("direct.example.com.", "127.0.0.1")
	s.names.Point("paths.example.com.", "127.0.0.1")
	p := startParents(t)
	r := start(t, p.setup(s.setup(routes[0], oneRequest)))
	c := r.client(false)
	for _, visit := range []struct{ host, want, key string }{
		{"socks.example.com", "200", "socks.example.com"}, {"plain.example.com", "200", "plain.example.com"},
		{"direct.example.com", "200", "127.0.0.1"}, {"all.example.com", "200", "all.example.com"}, {"paths.example.com", "429", "paths.example.com"},
	} {
		if got := s.get(t, c, visit.host, "/page"); !strings.HasPrefix(got, visit.want) {
			t.Errorf("%s: %s, want %s", visit.host, got, visit.want)
		}
		o, err := robots.ParseOrigin("http", s.hostport(visit.host))
		testkit.Must(t, err)
		q := policy.Request{Client: "127.0.0.1", Method: http.MethodGet, Target: robots.Target{Origin: o, PathQuery: "/page"}}
		if d, _ := r.handler.Explain(t.Context(), q); d.Pace.Key != visit.key {
			t.Errorf("%s is paced as %s, want %s", visit.host, d.Pace.Key, visit.key)
		}
	}
}

// TestArchiveOfParents checks that the archive has the address of an origin only if the connection led to the origin.
func TestArchiveOfParents(t *testing.T) {
	t.Parallel()
	s := routes[0].twoAddresses(t, hello)
	s.names.Point("direct.example.com.", "127.0.0.1")
	s.names.Point("paths.example.com.", "127.0.0.1")
	p := startParents(t)
	a, dir := openArchive(t, nil)
	of := p.setup(s.setup(routes[0], pace.Limits{}))
	of.change, of.fetchArchive = func(o *proxy.Options) { o.Archive = a }, a
	r := start(t, of)
	want := map[string]string{}
	for host, address := range map[string]string{"all": "", "socks": "", "plain": "", "direct": "127.0.0.1", "paths": "127.0.0.1"} {
		s.get(t, r.client(false), host+".example.com", "/page")
		for _, path := range []string{"/page", "/robots.txt"} {
			want["http://"+s.hostport(host+".example.com")+path] = address
		}
	}
	s.get(t, r.client(false), "paths.example.com", "/api/1")
	want["http://"+s.hostport("paths.example.com")+"/api/1"] = ""
	r.records.last(t, 6)
	testkit.Must(t, a.Close())
	for page, address := range addresses(t, dir) {
		if address != want[page] {
			t.Errorf("%s has the address %q, want %q", page, address, want[page])
		}
		delete(want, page)
	}
	if len(want) > 0 {
		t.Errorf("not archived: %v", want)
	}
}

// addresses returns the address of each URL in an archive.
func addresses(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	readArchive(t, dir, func(rec *warc.Record) {
		if kind := rec.Type(); kind == "response" || kind == "revisit" {
			all[rec.TargetURI()] = rec.Get("WARC-IP-Address")
		}
	})
	return all
}
