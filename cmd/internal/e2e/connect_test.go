package e2e

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

// deadEnd is a name with a port on which nobody listens.
func deadEnd(t testing.TB) string {
	t.Helper()
	name, addr := newName("dead")
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return net.JoinHostPort(name, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// Before a tunnel stands the client can be told what is wrong: the origin is
// dialled first.
func TestConnectFailsBeforeTheTunnel(t *testing.T) {
	t.Parallel()
	stranger, err := newAuthority("nobody's")
	if err != nil {
		t.Fatal(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	unknown := newOriginWith(t, "untrusted", "", func(name string) tls.Certificate { return stranger.leaf(t, name, tomorrow) })
	expired := newOriginWith(t, "expired", "", func(name string) tls.Certificate {
		return trusted(t).leaf(t, name, time.Now().Add(-time.Hour))
	})
	misnamed := newOriginWith(t, "misnamed", "", func(string) tls.Certificate { return trusted(t).leaf(t, "other.test", tomorrow) })
	p := startProxy(t, outOfTheWay)
	for _, c := range []struct{ name, authority, token string }{
		{"nobody listens", deadEnd(t), "destination_unavailable"},
		{"no such name", "nowhere.test:4443", "dns_error"},
		{"untrusted certificate", unknown.hostport("https"), "tls_certificate_error"},
		{"expired certificate", expired.hostport("https"), "tls_certificate_error"},
		{"another name's certificate", misnamed.hostport("https"), "tls_certificate_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := p.dial(t)
			w.send(t, "CONNECT "+c.authority+" HTTP/1.1", "Host: "+c.authority)
			wantOwn(t, w.receive(t, http.MethodConnect), http.StatusBadGateway, c.token)
		})
	}
	for _, o := range []*origin{unknown, expired, misnamed} {
		if n := len(o.arrivals("https")); n != 0 {
			t.Errorf("%s: %d requests arrived", o.Name, n)
		}
	}
	blocked := 0
	for _, r := range readAudit(t, p.audit) {
		if r.Method == http.MethodConnect && r.Status == http.StatusBadGateway && r.Error != "" {
			blocked++
		}
	}
	if blocked != 5 {
		t.Errorf("%d records of refused CONNECTs, want 5", blocked)
	}
}

// The same failures of a plain request: no connection at all is no outcome of robots.txt.
func TestOriginNotThere(t *testing.T) {
	t.Parallel()
	p := startProxy(t, outOfTheWay)
	for authority, token := range map[string]string{deadEnd(t): "destination_unavailable", "nowhere.test:8888": "dns_error"} {
		url := "http://" + authority + "/a"
		got := get(t, p.client(t, false), url)
		r := onlyRecord(t, p.audit, url)
		wantOwn(t, got, http.StatusBadGateway, token)
		if r.Status != http.StatusBadGateway || r.Error == "" {
			t.Errorf("record %+v", r)
		}
	}
}

// What is not a request a proxy can serve gets 400, and no origin hears of it.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "malformed", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	host := o.hostport("http")
	for name, lines := range map[string][]string{
		"origin form to the proxy":  {"GET /a HTTP/1.1", "Host: " + host},
		"unknown scheme":            {"GET gopher://" + host + "/a HTTP/1.1", "Host: " + host},
		"CONNECT without a port":    {"CONNECT " + o.Name + " HTTP/1.1", "Host: " + o.Name},
		"CONNECT with a path":       {"CONNECT http://" + host + "/a HTTP/1.1", "Host: " + host},
		"CONNECT with port 0":       {"CONNECT " + o.Name + ":0 HTTP/1.1", "Host: " + o.Name},
		"user information":          {"GET http://user:secret@" + host + "/a HTTP/1.1", "Host: " + host},
		"asterisk":                  {"OPTIONS * HTTP/1.1", "Host: " + host},
		"no request at all":         {"nonsense"},
		"header without a colon":    {"GET http://" + host + "/a HTTP/1.1", "Host: " + host, "nonsense"},
		"two lengths that disagree": {"POST http://" + host + "/a HTTP/1.1", "Host: " + host, "Content-Length: 1", "Content-Length: 2"},
		"a port that is too large":  {"GET http://" + o.Name + ":99999/a HTTP/1.1", "Host: " + o.Name},
	} {
		w := p.dial(t)
		w.send(t, lines...)
		if got := w.receive(t, http.MethodGet); got.Status != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400\n%s", name, got.Status, got.Body)
		}
	}
	if n := len(o.arrivals("http")) + len(o.arrivals("https")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// A request inside a tunnel is for the host of the tunnel, or for nobody.
func TestForeignInnerHost(t *testing.T) {
	t.Parallel()
	o, other := newOrigin(t, "inner", ""), newOrigin(t, "victim", "")
	for _, each := range []*origin{o, other} {
		each.handle("/a", textPage("text/plain", "a"))
	}
	p := startProxy(t, outOfTheWay)
	for name, lines := range map[string][]string{
		"Host of another":         {"GET /a HTTP/1.1", "Host: " + other.hostport("https")},
		"another port":            {"GET /a HTTP/1.1", "Host: " + o.Name + ":1"},
		"absolute URL of another": {"GET https://" + other.hostport("https") + "/a HTTP/1.1", "Host: " + o.hostport("https")},
	} {
		w := p.connect(t, o.hostport("https")).secure(t, p, o.Name)
		w.send(t, lines...)
		if got := w.receive(t, http.MethodGet); got.Status != http.StatusMisdirectedRequest {
			t.Errorf("%s: %d, want 421\n%s", name, got.Status, got.Body)
		}
	}
	w := p.connect(t, o.hostport("https")).secure(t, p, o.Name)
	w.send(t, "CONNECT "+other.hostport("https")+" HTTP/1.1", "Host: "+other.hostport("https"))
	if got := w.receive(t, http.MethodGet); got.Status < 400 {
		t.Errorf("a CONNECT inside a tunnel: %d", got.Status)
	}
	w = p.connect(t, o.hostport("https")).secure(t, p, o.Name)
	w.send(t, "GET /a HTTP/1.1", "Host: "+strings.ToUpper(o.hostport("https")))
	if got := w.receive(t, http.MethodGet); got.Status != http.StatusOK {
		t.Errorf("the tunnel's own host in capitals: %d\n%s", got.Status, got.Body)
	}
	if n := len(other.arrivals("https")); n != 0 {
		t.Errorf("%d requests arrived at the other host", n)
	}
}

// Clients that speak plain HTTP inside a tunnel are judged like all others.
func TestPlainInsideConnect(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "inside", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	argv := []string{curl, "-q", "--proxytunnel"}
	got := fetchByCurl(t, argv, p.env(t), []string{o.url("http", "/a"), o.url("http", "/private")})
	if got[0].Status != http.StatusOK || string(got[0].Body) != "a" {
		t.Errorf("allowed: %v", got[0])
	}
	wantOwn(t, got[1], http.StatusForbidden, "http_request_denied")
	onlyRecord(t, p.audit, o.url("http", "/private"))
	if n := len(o.pages("http")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
}

// A client may also ask the proxy itself for https: it is served over TLS to the origin.
func TestHTTPSWithoutConnect(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "clear", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	w := p.dial(t)
	w.send(t, "GET "+o.url("https", "/a")+" HTTP/1.1", "Host: "+o.hostport("https"))
	if got := w.receive(t, http.MethodGet); got.Status != http.StatusOK || string(got.Body) != "a" {
		t.Errorf("allowed: %v", got)
	}
	w.send(t, "GET "+o.url("https", "/private")+" HTTP/1.1", "Host: "+o.hostport("https"))
	wantOwn(t, w.receive(t, http.MethodGet), http.StatusForbidden, "http_request_denied")
	wantPolite(t, o, "https", 1, 0)
}

// Python's CONNECT is HTTP/1.0 without Host and User-Agent: the inner request is what counts.
func TestOldConnect(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "old", "User-agent: OldBot\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	o.handle("/private", textPage("text/plain", "for others"))
	p := startProxy(t, outOfTheWay)
	for _, c := range []struct {
		agent, path string
		status      int
	}{{"OldBot/1.0", "/a", 200}, {"OldBot/1.0", "/private", 403}, {"NewBot/1.0", "/private", 200}} {
		w := p.dial(t)
		w.send(t, "CONNECT "+o.hostport("https")+" HTTP/1.0")
		if got := w.receive(t, http.MethodConnect); got.Status != http.StatusOK {
			t.Fatalf("CONNECT: %v", got)
		}
		w = w.secure(t, p, o.Name)
		w.send(t, "GET "+c.path+" HTTP/1.1", "Host: "+o.hostport("https"), "User-Agent: "+c.agent)
		if got := w.receive(t, http.MethodGet); got.Status != c.status {
			t.Errorf("%s %s: %v, want %d", c.agent, c.path, got, c.status)
		}
	}
}

// curl -0 offers ALPN http/1.0 alone, and wants no chunks and an end.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	body := octets(64 << 10)
	o := newOrigin(t, "ten", "User-agent: *\nDisallow: /private\n")
	o.handle("/chunked", chunkedPage(body, 1000))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		got := fetchByCurl(t, []string{curl, "-q", "-0"}, p.env(t), []string{o.url(scheme, "/chunked"), o.url(scheme, "/private")})
		if got[0].Status != http.StatusOK || digest(got[0].Body) != digest(body) || got[0].Header.Get("Transfer-Encoding") != "" {
			t.Errorf("%s: %v", scheme, got[0])
		}
		wantOwn(t, got[1], http.StatusForbidden, "http_request_denied")
	}
	w := p.connect(t, o.hostport("https")).secure(t, p, o.Name)
	w.send(t, "GET /chunked HTTP/1.0", "Host: "+o.hostport("https"))
	if got := w.receive(t, http.MethodGet); digest(got.Body) != digest(body) {
		t.Errorf("HTTP/1.0 inside a tunnel: %v", got)
	}
	if _, err := w.r.ReadByte(); err != io.EOF {
		t.Errorf("after the answer came %v, want the end of the connection", err)
	}
}

// Without SNI the certificate is for the host of the CONNECT.
func TestNoServerName(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "nosni", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	w := p.connect(t, o.hostport("https"))
	c := tls.Client(&rest{w.Conn, w.r}, &tls.Config{InsecureSkipVerify: true}) // the name is verified below
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := c.ConnectionState().PeerCertificates[0].VerifyHostname(o.Name); err != nil {
		t.Error(err)
	}
}
