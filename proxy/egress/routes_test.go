package egress

import (
	"net/netip"
	"strings"
	"testing"

	"robotsproxy/robots"
)

// TestEnvironment: each scheme has an upstream proxy of its own, and the hosts in NoProxy have none.
func TestEnvironment(t *testing.T) {
	ca := newAuthority(t)
	plain, secure := serve(t, hello), serve(t, hello, ca.leaf(t, "origin.test", later()))
	forHTTP, forHTTPS := startParent(t, "http", ca, true), startParent(t, "socks5", ca, true)
	d := newClient(t, Options{
		Environment:  Environment{HTTP: strings.TrimPrefix(forHTTP.url().String(), "http://"), HTTPS: forHTTPS.url().String(), NoProxy: "other.test, .direct.test"},
		AllowPrivate: loopback, Ports: []PortRange{{1, 65535}}, Roots: ca.pool, OneAddress: true,
		Resolver: newNames(t, map[string][][]string{"a.direct.test.": {{"127.0.0.1"}}}).Addr(),
	})
	atHTTP, atHTTPS := plain.as("origin.test"), secure.as("origin.test")
	direct := plain.as("a.direct.test")
	for _, o := range []robots.Origin{atHTTP, atHTTPS, direct, plain.Origin} {
		if _, body, err := get(t, d, o.String()+"/"); err != nil || body != "hello" {
			t.Errorf("%s: %q, %v", o, body, err)
		}
	}
	conn, err := d.At(netip.Addr{}).Dial(t.Context(), atHTTPS.Host, atHTTPS.Port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	tunnel := atHTTPS
	tunnel.Port = plain.Port // nothing was connected to it yet
	if err := d.At(netip.Addr{}).ReachTCP(t.Context(), tunnel); err != nil {
		t.Error(err)
	}
	if got := forHTTP.Requests(); len(got) != 1 || got[0] != forHTTP.want(atHTTP, "/") {
		t.Errorf("the proxy for http got %+v", got)
	}
	if got := forHTTPS.Requests(); len(got) != 3 || got[0] != forHTTPS.want(atHTTPS, "") || got[1] != got[0] || got[2] != forHTTPS.want(tunnel, "") {
		t.Errorf("the proxy for https got %+v", got)
	}
	for o, want := range map[robots.Origin]bool{
		atHTTP: false, atHTTPS: false, direct: true, plain.Origin: true, // a loopback address
		{Scheme: "https", Host: "localhost", Port: 443}: true, {Scheme: "ftp", Host: "origin.test", Port: 21}: true,
		{Scheme: "https", Host: "other.test", Port: 443}: true, {Scheme: "https", Host: "sub.other.test", Port: 443}: true,
	} {
		if got := d.Direct(o); got != want {
			t.Errorf("%s is reached directly: %v, want %v", o, got, want)
		}
		if addr, err := d.Address(t.Context(), o); !want && (addr.IsValid() || err != nil) {
			t.Errorf("%s has the address %v, %v", o, addr, err)
		}
	}
	if addr := d.KnownAddress("a.direct.test"); addr.String() != "127.0.0.1" {
		t.Errorf("a host without an upstream proxy has the address %v", addr)
	}
	if s := d.Stats(); s.Origins.Dialed[OutcomeOK] == 0 || s.Parent.Dialed[OutcomeOK] == 0 {
		t.Errorf("counted: %+v", s)
	}
}

// TestOneProxyForAllSchemes: the connections to it are shared.
func TestOneProxyForAllSchemes(t *testing.T) {
	ca := newAuthority(t)
	p := startParent(t, "http", ca, false)
	all := p.url().String()
	d := newClient(t, Options{Environment: Environment{HTTP: all, HTTPS: all, FTP: all}})
	if n := len(d.others()); n != 1 {
		t.Errorf("%d clients for one proxy", n)
	}
	if d.Direct(robots.Origin{Scheme: "ftp", Host: "origin.test", Port: 21}) {
		t.Error("ftp has no proxy")
	}
}

// TestBadEnvironment: what is no proxy is an error, not a direct connection, and no error has the password.
func TestBadEnvironment(t *testing.T) {
	for _, text := range []string{
		"http://user:" + parentPassword + "@", "gopher://user:s3cr@proxy.test", "user:s3cr%zz@proxy.test", "http://user:s3cr@proxy.test:0x1", "http://proxy.test/s3cr",
	} {
		for _, e := range []Environment{{HTTP: text}, {HTTPS: text}, {FTP: text}} {
			d, err := New(Options{Environment: e})
			if err == nil {
				d.Close()
				t.Errorf("%s is an upstream proxy", text)
				continue
			}
			noSecret(t, err.Error())
			if strings.Count(err.Error(), "egress: ") > 1 || !strings.HasPrefix(err.Error(), "environment: proxy for ") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}
