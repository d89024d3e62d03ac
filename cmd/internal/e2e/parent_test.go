package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/proxy/egress/parenttest"
)

const (
	parentUser     = "house"
	parentPassword = "s3cr3t/@"
)

// A parent is a proxy that stands between the one under test and the origins.
// It wants credentials, and knows the origins' names.
type parent struct {
	*parenttest.Parent
	url *url.URL
}

// newParent starts a parent of a kind: http, https or socks5.
func newParent(t testing.TB, kind string, origins ...*origin) *parent {
	t.Helper()
	p := &parent{Parent: &parenttest.Parent{User: parentUser, Password: parentPassword, Names: map[string]string{}}}
	for _, o := range origins {
		p.Names[o.Name] = o.addr()
	}
	s := httptest.NewUnstartedServer(p)
	t.Cleanup(s.Close)
	switch kind {
	case "socks5":
		go func() {
			for {
				c, err := s.Listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					p.ServeSocks(c)
				}()
			}
		}()
	case "https":
		s.TLS = &tls.Config{Certificates: []tls.Certificate{trusted(t).leaf(t, "parent.test", time.Now().Add(time.Hour))}}
		s.StartTLS()
	default:
		s.Start()
	}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	names.point("parent.test", netip.MustParseAddr("127.0.0.1"))
	p.url = &url.URL{Scheme: kind, Host: net.JoinHostPort("parent.test", port), User: url.UserPassword(parentUser, parentPassword)}
	return p
}

// log is what it was asked so far, in a fixed order and each once.
func (p *parent) log() (asked []string) {
	for _, a := range p.Asked() {
		method, _, _ := strings.Cut(a.Form, " ")
		if method == "name" {
			method = "CONNECT"
		}
		asked = append(asked, method+" "+a.Target)
	}
	slices.Sort(asked)
	return slices.Compact(asked)
}

// Behind a parent all goes through it, whatever its kind: robots.txt, pages,
// and tunnels that are not opened. The proxy itself may reach no origin.
func TestParent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http", "https", "socks5"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			open, closed := newOrigin(t, "behind", "User-agent: *\nDisallow: /private\n"), newOrigin(t, "sealed", "")
			for _, o := range []*origin{open, closed} {
				o.handle("/page", textPage("text/plain", "a page"))
			}
			up := newParent(t, kind, open, closed)
			p := startProxy(t, outOfTheWay.with(settings{
				"egress.parent": up.url.String(), "egress.allow_private": []string{}, "tls.tunnel": []string{closed.Name}, "log.level": "debug",
			}))
			client, sealed := p.client(t, false), p.client(t, false)
			trustOrigins(t, sealed)
			for _, scheme := range []string{"http", "https"} {
				if got := get(t, client, open.url(scheme, "/page")); got.Status != 200 || string(got.Body) != "a page" {
					t.Errorf("%s: %d %s", scheme, got.Status, got.Body)
				}
				got := get(t, client, open.url(scheme, "/private"))
				wantOwn(t, got, http.StatusForbidden, "http_request_denied")
				wantNames(t, got, "/private", 2, "*", open.url(scheme, "/robots.txt"))
			}
			if got := get(t, sealed, closed.url("https", "/page")); string(got.Body) != "a page" {
				t.Errorf("in a tunnel: %d %s", got.Status, got.Body)
			}
			want := []string{"CONNECT " + open.hostport("https"), "CONNECT " + closed.hostport("https")}
			if kind == "socks5" {
				want = append(want, "CONNECT "+open.hostport("http"))
			} else {
				want = append(want, "GET "+open.url("http", "/page"), "GET "+open.url("http", "/robots.txt"))
			}
			slices.Sort(want)
			if got := up.log(); !slices.Equal(got, want) {
				t.Errorf("the parent was asked %q, want %q", got, want)
			}
			curlThrough(t, p, open)
			sealed.CloseIdleConnections()
			awaitRecord(t, p.audit, closed.hostport("https"))
			wantBehind(t, p, up, open, closed)
		})
	}
}

// curlThrough fetches by a client that people use.
func curlThrough(t *testing.T, p *proxy, o *origin) {
	t.Run("curl", func(t *testing.T) {
		argv := peers[0].need(t)
		for i, got := range peers[0].fetch(t, argv, p.env(t), []string{o.url("http", "/page"), o.url("https", "/page"), o.url("https", "/private")}) {
			if want := []int{200, 200, 403}[i]; got.Status != want {
				t.Errorf("%d: %v, want %d", i, got, want)
			}
		}
	})
}

// wantBehind holds it all against what may never be: a connection past the
// parent, or its credentials anywhere but at the parent.
func wantBehind(t *testing.T, p *proxy, up *parent, origins ...*origin) {
	t.Helper()
	arrived := 0
	for _, o := range origins {
		arrived += o.connections()
		for _, h := range append(o.arrivals("http"), o.arrivals("https")...) {
			if h.Header.Get("Proxy-Authorization") != "" || h.Path == "/private" {
				t.Errorf("arrived: %+v", h)
			}
		}
	}
	if dialed := up.Dialed(); arrived != dialed || arrived == 0 {
		t.Errorf("%d connections at the origins, %d of the parent's", arrived, dialed)
	}
	wantNoPassword(t, p)
}

// wantNoPassword looks for the parent's password in all that the proxy writes.
func wantNoPassword(t *testing.T, p *proxy) {
	t.Helper()
	records, err := os.ReadFile(p.audit)
	if err != nil {
		t.Fatal(err)
	}
	shown := command(t, "config", "show", "-c", p.config).want(t, 0)
	for name, text := range map[string]string{"the log": p.stderr.String(), "the audit": string(records), "config show": shown.stdout} {
		for _, form := range []string{"s3cr", base64.StdEncoding.EncodeToString([]byte(parentUser + ":" + parentPassword))} {
			if strings.Contains(text, form) {
				t.Errorf("the password is in %s:\n%s", name, text)
			}
		}
	}
}

// A parent that does not take us is nobody's answer: no 407 reaches a client,
// and no robots.txt counts as missing for it.
func TestParentRefusesUs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http", "https", "socks5"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, "unreached", "")
			up := newParent(t, kind, o)
			up.url.User = url.UserPassword("stranger", parentPassword)
			p := startProxy(t, outOfTheWay.with(settings{"egress.parent": up.url.String(), "egress.allow_private": []string{}}))
			for range 2 { // nothing is remembered of it
				got := get(t, p.client(t, false), o.url("http", "/page"))
				wantOwn(t, got, http.StatusBadGateway, "destination_unavailable")
				if !strings.Contains(string(got.Body), "egress.parent") {
					t.Errorf("it does not say where to look:\n%s", got.Body)
				}
				w := p.dial(t)
				w.send(t, "CONNECT "+o.hostport("https")+" HTTP/1.1", "Host: "+o.hostport("https"))
				wantOwn(t, w.receive(t, http.MethodConnect), http.StatusBadGateway, "destination_unavailable")
			}
			if n := o.connections(); n != 0 {
				t.Errorf("%d connections at the origin", n)
			}
			for _, r := range readAudit(t, p.audit) {
				if r.Status != http.StatusBadGateway || !strings.Contains(r.Error, "parent.test") {
					t.Errorf("record %+v", r)
				}
			}
			wantNoPassword(t, p)
		})
	}
}

// A proxy whose parent is itself notices it at once, for a tunnel too.
func TestParentIsTheProxy(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "loop", "")
	listen := net.JoinHostPort("127.0.0.1", itoa(freePort(t)))
	for _, mode := range []string{"enforce", "monitor"} {
		p := startProxy(t, outOfTheWay.with(settings{"listen": listen, "mode": mode, "egress.parent": "http://" + listen, "tls.tunnel": []string{o.Name}}))
		p.listen = listen
		if got := get(t, p.client(t, false), o.url("http", "/page")); got.Status < 400 {
			t.Errorf("%s: http: %d", mode, got.Status)
		}
		w := p.dial(t)
		w.send(t, "CONNECT "+o.hostport("https")+" HTTP/1.1", "Host: "+o.hostport("https"))
		wantOwn(t, w.receive(t, http.MethodConnect), http.StatusBadGateway, "destination_unavailable")
		loops := 0
		for _, r := range readAudit(t, p.audit) {
			if r.Reason == "loop" {
				loops++
			}
		}
		if loops == 0 {
			t.Errorf("%s: no loop is recorded", mode)
		}
		p.end(t)
	}
	if n := o.connections(); n != 0 {
		t.Errorf("%d connections at the origin", n)
	}
}
