package requests

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
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/proxy/egress/parenttest"
)

const (
	parentUser     = "corp"
	parentPassword = "s3cr3t/@"
)

// A parent is an upstream proxy between the proxy under test and the origins. It requires
// credentials and resolves the origins' names.
type parent struct {
	*parenttest.Parent
	url *url.URL
}

// newParent starts an upstream proxy of a kind: http, https or socks5.
func newParent(t testing.TB, kind string, origins ...*e2e.Origin) *parent {
	t.Helper()
	p := &parent{Parent: &parenttest.Parent{User: parentUser, Password: parentPassword, Names: map[string]string{}}}
	for _, o := range origins {
		p.Names[o.Name] = o.Addr()
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
		s.TLS = &tls.Config{Certificates: []tls.Certificate{e2e.Trusted(t).Leaf(t, "parent.test", time.Now().Add(time.Hour))}}
		s.StartTLS()
	default:
		s.Start()
	}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	e2e.Names.Point("parent.test", netip.MustParseAddr("127.0.0.1"))
	p.url = &url.URL{Scheme: kind, Host: net.JoinHostPort("parent.test", port), User: url.UserPassword(parentUser, parentPassword)}
	return p
}

// log returns the distinct requests so far, sorted.
func (p *parent) log() (asked []string) {
	for _, a := range p.Requests() {
		method, _, _ := strings.Cut(a.Form, " ")
		if method == "name" {
			method = "CONNECT"
		}
		asked = append(asked, method+" "+a.Target)
	}
	slices.Sort(asked)
	return slices.Compact(asked)
}

// With an upstream proxy everything goes through it, whatever its kind: robots.txt,
// pages, and tunnels that are passed through. The proxy itself can reach no origin.
func TestParent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http", "https", "socks5"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			open, closed := e2e.NewOrigin(t, "behind", "User-agent: *\nDisallow: /private\n"), e2e.NewOrigin(t, "sealed", "")
			for _, o := range []*e2e.Origin{open, closed} {
				o.Handle("/page", e2e.TextPage("text/plain", "a page"))
			}
			up := newParent(t, kind, open, closed)
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{
				"egress.parent": up.url.String(), "egress.allow_private": []string{}, "tls.tunnel": []string{closed.Name}, "log.level": "debug",
			}))
			client, sealed := p.Client(t, false), p.Client(t, false)
			e2e.TrustOrigins(t, sealed)
			for _, scheme := range []string{"http", "https"} {
				if got := e2e.Get(t, client, open.URL(scheme, "/page")); got.Status != 200 || string(got.Body) != "a page" {
					t.Errorf("%s: %d %s", scheme, got.Status, got.Body)
				}
				got := e2e.Get(t, client, open.URL(scheme, "/private"))
				e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
				e2e.WantNames(t, got, "/private", 2, "*", open.URL(scheme, "/robots.txt"))
			}
			if got := e2e.Get(t, sealed, closed.URL("https", "/page")); string(got.Body) != "a page" {
				t.Errorf("in a tunnel: %d %s", got.Status, got.Body)
			}
			want := []string{"CONNECT " + open.Hostport("https"), "CONNECT " + closed.Hostport("https")}
			if kind == "socks5" {
				want = append(want, "CONNECT "+open.Hostport("http"))
			} else {
				want = append(want, "GET "+open.URL("http", "/page"), "GET "+open.URL("http", "/robots.txt"))
			}
			slices.Sort(want)
			if got := up.log(); !slices.Equal(got, want) {
				t.Errorf("the parent was asked %q, want %q", got, want)
			}
			curlThrough(t, p, open)
			sealed.CloseIdleConnections()
			e2e.AwaitRecord(t, p.Audit, closed.Hostport("https"))
			wantBehind(t, p, up, open, closed)
		})
	}
}

// curlThrough fetches with curl through the proxy.
func curlThrough(t *testing.T, p *e2e.Proxy, o *e2e.Origin) {
	t.Run("curl", func(t *testing.T) {
		argv := e2e.Peers[0].Need(t)
		for i, got := range e2e.Peers[0].Fetch(t, argv, p.Env(t), []string{o.URL("http", "/page"), o.URL("https", "/page"), o.URL("https", "/private")}) {
			if want := []int{200, 200, 403}[i]; got.Status != want {
				t.Errorf("%d: %v, want %d", i, got, want)
			}
		}
	})
}

// wantBehind checks that no connection bypassed the upstream proxy, and that its
// credentials reached nobody else.
func wantBehind(t *testing.T, p *e2e.Proxy, up *parent, origins ...*e2e.Origin) {
	t.Helper()
	arrived := 0
	for _, o := range origins {
		arrived += o.Connections()
		for _, h := range append(o.Arrivals("http"), o.Arrivals("https")...) {
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

// wantNoPassword searches everything that the proxy has written for the password of the
// upstream proxy.
func wantNoPassword(t *testing.T, p *e2e.Proxy) {
	t.Helper()
	records, err := os.ReadFile(p.Audit)
	if err != nil {
		t.Fatal(err)
	}
	shown := e2e.Command(t, "config", "show", "-c", p.Config).Want(t, 0)
	for name, text := range map[string]string{"the log": p.Stderr.String(), "the audit": string(records), "config show": shown.Stdout} {
		for _, form := range []string{"s3cr", base64.StdEncoding.EncodeToString([]byte(parentUser + ":" + parentPassword))} {
			if strings.Contains(text, form) {
				t.Errorf("the password is in %s:\n%s", name, text)
			}
		}
	}
}

// If the upstream proxy rejects the proxy's credentials, its 407 reaches no client, and
// no robots.txt counts as missing.
func TestParentRefusesUs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http", "https", "socks5"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "unreached", "")
			up := newParent(t, kind, o)
			up.url.User = url.UserPassword("stranger", parentPassword)
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.parent": up.url.String(), "egress.allow_private": []string{}}))
			for range 2 { // the failure is not remembered
				got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
				e2e.WantOwn(t, got, http.StatusBadGateway, "destination_unavailable")
				if !strings.Contains(string(got.Body), "egress.parent") {
					t.Errorf("it does not say where to look:\n%s", got.Body)
				}
				w := p.Dial(t)
				w.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.1", "Host: "+o.Hostport("https"))
				e2e.WantOwn(t, w.Receive(t, http.MethodConnect), http.StatusBadGateway, "destination_unavailable")
			}
			if n := o.Connections(); n != 0 {
				t.Errorf("%d connections at the origin", n)
			}
			for _, r := range e2e.ReadAudit(t, p.Audit) {
				if r.Status != http.StatusBadGateway || !strings.Contains(r.Error, "parent.test") {
					t.Errorf("record %+v", r)
				}
			}
			wantNoPassword(t, p)
		})
	}
}

// A proxy whose upstream proxy is itself detects that at once, also for a tunnel.
func TestParentIsTheProxy(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "loop", "")
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(e2e.FreePort(t)))
	for _, mode := range []string{"enforce", "monitor"} {
		p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"listen": listen, "mode": mode, "egress.parent": "http://" + listen, "tls.tunnel": []string{o.Name}}))
		p.Listen = listen
		if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page")); got.Status < 400 {
			t.Errorf("%s: http: %d", mode, got.Status)
		}
		w := p.Dial(t)
		w.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.1", "Host: "+o.Hostport("https"))
		e2e.WantOwn(t, w.Receive(t, http.MethodConnect), http.StatusBadGateway, "destination_unavailable")
		loops := 0
		for _, r := range e2e.ReadAudit(t, p.Audit) {
			if r.Reason == "loop" {
				loops++
			}
		}
		if loops == 0 {
			t.Errorf("%s: no loop is recorded", mode)
		}
		p.End(t)
	}
	if n := o.Connections(); n != 0 {
		t.Errorf("%d connections at the origin", n)
	}
}
