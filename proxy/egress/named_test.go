package egress

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// TestThrough: the Client of each name has the way of that name, whatever the way without a name, and the same limits, pseudonym
// and counts.
func TestThrough(t *testing.T) {
	ca := newAuthority(t)
	of := map[string]*fakeParent{"": startParent(t, "http", ca, true), "socks": startParent(t, "socks5", ca, true), "secure": startParent(t, "https", ca, false)}
	plain, secure := serve(t, hello), serve(t, hello, ca.leaf(t, "origin.test", later()))
	names := newNames(t, map[string][][]string{"origin.test.": {{"127.0.0.1"}}, "forbidden.test.": {{"10.0.0.1"}}})
	for name, o := range map[string]Options{
		"without a parent": {}, "with a parent": {Parent: of[""].url()},
		"with an environment": {Environment: Environment{HTTP: of[""].url().String(), HTTPS: of[""].url().String()}},
	} {
		t.Run(name, func(t *testing.T) {
			o.AllowPrivate, o.Roots, o.Resolver, o.OneAddress = loopback, ca.pool, names.Addr(), true
			o.Parents = map[string]*url.URL{"socks": of["socks"].url(), "secure": of["secure"].url(), "same": of[""].url(), "direct": nil}
			d := newClient(t, o)
			if d.Through("") != d {
				t.Error("without a name it is another Client")
			}
			for _, via := range []string{"socks", "secure", "same", "direct"} {
				d := d.Through(via)
				for _, o := range []robots.Origin{plain.as("origin.test"), secure.as("origin.test")} {
					before := map[string]int{}
					for name, p := range of {
						before[name] = len(p.Requests())
					}
					if _, body, err := get(t, d, o.String()+"/page"); err != nil || body != "hello" {
						t.Errorf("%s: %s: %q, %v", via, o, body, err)
					}
					for name, p := range of {
						var want []ask
						if name == via || name == "" && via == "same" {
							want = []ask{p.want(o, "/page")}
						}
						if got := p.Requests()[before[name]:]; !slices.Equal(got, want) {
							t.Errorf("%s: the upstream proxy %q was asked %q, want %q", via, name, got, want)
						}
					}
					if got, want := d.Direct(o), via == "direct"; got != want {
						t.Errorf("%s: %s is reached directly: %t", via, o, got)
					}
					if at, err := d.Address(t.Context(), o); err != nil || at.IsValid() != (via == "direct") {
						t.Errorf("%s: %s has the address %v, %v", via, o, at, err)
					}
				}
				if _, _, err := get(t, d, "http://origin.test:25/"); !errors.Is(err, ErrForbiddenPort) {
					t.Errorf("%s: a forbidden port: %v", via, err)
				}
				if _, _, err := get(t, d, "http://10.0.0.1/"); !errors.Is(err, ErrForbiddenAddr) {
					t.Errorf("%s: a forbidden address: %v", via, err)
				}
			}
			if _, _, err := get(t, d.Through("direct"), "http://forbidden.test/"); !errors.Is(err, ErrForbiddenAddr) {
				t.Errorf("a name with a forbidden address: %v", err)
			}
			for _, via := range []string{"socks", "secure", "same", "direct"} {
				other := d.Through(via)
				if other.Pseudonym() != d.Pseudonym() || other.Stats().Origins.Open != d.Stats().Origins.Open || other.made != d.made {
					t.Errorf("%s: the pseudonym, the counts or the connections are its own", via)
				}
			}
			if s := d.Stats(); s.Origins.Dialed[OutcomeOK] == 0 || s.Parent.Dialed[OutcomeOK] == 0 {
				t.Errorf("counted: %+v", s)
			}
		})
	}
}

// TestThroughUnknown: a name that is not known is no way past the upstream proxies.
func TestThroughUnknown(t *testing.T) {
	o := serve(t, hello)
	d := newClient(t, Options{AllowPrivate: loopback, Parents: map[string]*url.URL{"direct": nil}}).Through("other")
	if _, _, err := get(t, d, o.String()); err == nil {
		t.Error("a page came")
	}
	if err := d.Check(o.Host, o.Port); err == nil {
		t.Error("Check permits it")
	}
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err == nil {
		t.Error("Reach permits it")
	}
	if conn, err := d.At(netip.Addr{}).Dial(t.Context(), o.Host, o.Port); err == nil {
		conn.Close()
		t.Error("Dial permits it")
	}
	if n := o.accepted.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

// TestThroughFails: an upstream proxy that fails is an error, not a reason to take another way, and the failure counts for no other.
func TestThroughFails(t *testing.T) {
	o := serve(t, hello)
	dead := deadEnd(t, "http")
	d := newClient(t, Options{AllowPrivate: loopback, Parents: map[string]*url.URL{
		"dead": {Scheme: "http", Host: dead.Addr(), User: url.UserPassword(parentUser, parentPassword)},
		"mute": {Scheme: "socks5", Host: dead.Addr(), User: url.UserPassword(parentUser, parentPassword)},
	}})
	for _, via := range []string{"dead", "mute"} {
		for _, u := range []string{o.String(), strings.Replace(o.String(), "http:", "https:", 1)} {
			_, _, err := get(t, d.Through(via), u)
			if !errors.Is(err, ErrParent) || !strings.Contains(err.Error(), dead.Addr()) {
				t.Errorf("%s: %s: %v", via, u, err)
			}
			noSecret(t, err.Error())
		}
	}
	if n := o.accepted.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
	if _, body, err := get(t, d, o.String()); err != nil || body != "hello" {
		t.Errorf("without an upstream proxy: %q, %v", body, err)
	}
}

// TestThroughShares: names of one upstream proxy that is also Options.Parent share its connections; CloseIdle and Close end those of
// all names.
func TestThroughShares(t *testing.T) {
	ca := newAuthority(t)
	p, other := startParent(t, "http", ca, false), startParent(t, "http", ca, false)
	o := serve(t, hello)
	d := newClient(t, Options{Parent: p.url(), Parents: map[string]*url.URL{"same": p.url(), "other": other.url()}})
	if d.Through("same") != d {
		t.Error("two Clients for one upstream proxy")
	}
	page := o.as("origin.test").String()
	for range 2 {
		_, _, err := get(t, d.Through("other"), page)
		testkit.Must(t, err)
	}
	if n := other.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	d.CloseIdle()
	<-other.hung
	_, _, err := get(t, d.Through("other"), page)
	testkit.Must(t, err)
	d.Close()
	<-other.hung
	if _, _, err := get(t, d.Through("other"), page); err == nil {
		t.Error("a page after Close")
	}
}

// TestBadParents: what is no upstream proxy is an error, which names it without its password.
func TestBadParents(t *testing.T) {
	for _, u := range []*url.URL{{}, {Scheme: "ftp", Host: "h", User: url.UserPassword("we", "s3cr")}, {Scheme: "http", Host: "h", User: url.UserPassword("a:b", "s3cr")}} {
		d, err := New(Options{Parents: map[string]*url.URL{"direct": nil, "the third": u}})
		if err == nil {
			d.Close()
			t.Errorf("%s is an upstream proxy", u)
			continue
		}
		noSecret(t, err.Error())
		if !strings.HasPrefix(err.Error(), "egress: upstream proxy: ") || !strings.HasSuffix(err.Error(), " (the third)") {
			t.Error(err)
		}
	}
}

// TestFTPThroughAName: both connections of FTP take the way of the name.
func TestFTPThroughAName(t *testing.T) {
	server, p := startFTP(t), startParent(t, "socks5", newAuthority(t), false)
	_, port, _ := strings.Cut(server.Addr(), ":")
	d := newClient(t, Options{Parents: map[string]*url.URL{"socks": p.url()}, Resolver: newNames(t, nil).Addr()})
	resp, body, err := get(t, d.Through("socks"), "ftp://origin.test:"+port+"/a.txt")
	if err != nil || resp.StatusCode != http.StatusOK || body != "0123456789" {
		t.Errorf("%v %q %v", resp, body, err)
	}
	if got := p.Requests(); len(got) != 2 {
		t.Errorf("the upstream proxy was asked %q", got)
	}
}
