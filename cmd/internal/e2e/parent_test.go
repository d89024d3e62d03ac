package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	parentUser     = "house"
	parentPassword = "s3cr3t/@"
)

// A parent is a proxy that stands between the one under test and the origins.
// It wants credentials, knows the origins' names, and notes what it is asked.
type parent struct {
	url *url.URL

	mu     sync.Mutex // guards what follows
	addrs  map[string]string
	asked  []string // "CONNECT host:port", "GET http://…"
	dialed int      // connections to origins
}

// newParent starts a parent of a kind: http, https or socks5.
func newParent(t testing.TB, kind string, origins ...*origin) *parent {
	t.Helper()
	p := &parent{addrs: map[string]string{}}
	for _, o := range origins {
		p.addrs[o.Name] = o.addr()
	}
	var at string
	if kind == "socks5" {
		at = p.listenSocks(t)
	} else {
		s := httptest.NewUnstartedServer(http.HandlerFunc(p.serveHTTP))
		if kind == "https" {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{trusted(t).leaf(t, "parent.test", time.Now().Add(time.Hour))}}
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		at = s.Listener.Addr().String()
	}
	_, port, _ := net.SplitHostPort(at)
	names.point("parent.test", netip.MustParseAddr("127.0.0.1"))
	p.url = &url.URL{Scheme: kind, Host: net.JoinHostPort("parent.test", port), User: url.UserPassword(parentUser, parentPassword)}
	return p
}

func (p *parent) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, what)
}

// log is what it was asked so far, in a fixed order and each once.
func (p *parent) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.asked)))
}

// dial goes to an origin that it knows.
func (p *parent) dial(_ context.Context, _, hostport string) (net.Conn, error) {
	host, port, _ := net.SplitHostPort(hostport)
	p.mu.Lock()
	addr := p.addrs[host]
	p.dialed++
	p.mu.Unlock()
	if addr == "" {
		return nil, errors.New("no such host")
	}
	return net.Dial("tcp", net.JoinHostPort(addr, port))
}

func (p *parent) serveHTTP(w http.ResponseWriter, r *http.Request) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(parentUser+":"+parentPassword))
	if r.Header.Get("Proxy-Authorization") != want {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	p.note(r.Method + " " + r.RequestURI)
	if r.Method != http.MethodConnect {
		forward := httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
			Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true, DisableCompression: true},
		}
		forward.ServeHTTP(w, r)
		return
	}
	origin, err := p.dial(r.Context(), "tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	join(client, origin)
}

// join copies both ways until one side ends, and closes both.
func join(a, b net.Conn) {
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(a, b)
		a.Close()
	})
	io.Copy(b, a)
	b.Close()
	up.Wait()
}

// listenSocks serves RFC 1928 with the user and password of RFC 1929, to names alone.
func (p *parent) listenSocks(t testing.TB) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serveSocks(c)
		}
	}()
	return l.Addr().String()
}

func (p *parent) serveSocks(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	octets := func(n int) string {
		b := make([]byte, n)
		io.ReadFull(in, b)
		return string(b)
	}
	field := func() string { return octets(int(octets(1)[0])) }
	if octets(1) != "\x05" || !strings.Contains(field(), "\x02") {
		c.Write([]byte{5, 0xff})
		return
	}
	c.Write([]byte{5, 2})
	if octets(1); field() != parentUser || field() != parentPassword {
		c.Write([]byte{1, 1})
		return
	}
	c.Write([]byte{1, 0})
	if octets(4) != "\x05\x01\x00\x03" {
		c.Write([]byte{5, 7, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	target := net.JoinHostPort(field(), itoa(int(binary.BigEndian.Uint16([]byte(octets(2))))))
	p.note("CONNECT " + target)
	origin, err := p.dial(context.Background(), "tcp", target)
	if err != nil {
		c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	join(c, origin)
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
	up.mu.Lock()
	if arrived != up.dialed || arrived == 0 {
		t.Errorf("%d connections at the origins, %d of the parent's", arrived, up.dialed)
	}
	up.mu.Unlock()
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
