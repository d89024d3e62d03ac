package requests

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// An error that occurs before a tunnel is established is reported to the client, because
// the proxy connects to the origin first.
func TestConnectFailsBeforeTheTunnel(t *testing.T) {
	t.Parallel()
	stranger, err := e2e.NewAuthority("nobody's")
	if err != nil {
		t.Fatal(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	unknown := e2e.NewOriginWith(t, "untrusted", "", func(name string) tls.Certificate { return stranger.Leaf(t, name, tomorrow) })
	expired := e2e.NewOriginWith(t, "expired", "", func(name string) tls.Certificate {
		return e2e.Trusted(t).Leaf(t, name, time.Now().Add(-time.Hour))
	})
	misnamed := e2e.NewOriginWith(t, "misnamed", "", func(string) tls.Certificate { return e2e.Trusted(t).Leaf(t, "other.test", tomorrow) })
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, c := range []struct{ name, authority, token string }{
		{"nobody listens", e2e.DeadEnd(t), "destination_unavailable"},
		{"no such name", "nowhere.test:4443", "dns_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := p.Dial(t)
			w.Send(t, "CONNECT "+c.authority+" HTTP/1.1", "Host: "+c.authority)
			e2e.WantOwn(t, w.Receive(t, http.MethodConnect), http.StatusBadGateway, c.token)
		})
	}
	// On another port than 443 the client may not speak TLS, so the origin's certificate is seen later.
	for _, o := range []*e2e.Origin{unknown, expired, misnamed} {
		got := e2e.Get(t, p.Client(t, false), o.URL("https", "/"))
		e2e.WantOwn(t, got, http.StatusBadGateway, "tls_certificate_error")
		if n := len(o.Arrivals("https")); n != 0 {
			t.Errorf("%s: %d requests arrived", o.Name, n)
		}
	}
	blocked := 0
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		if r.Method == http.MethodConnect && r.Status == http.StatusBadGateway && r.Error != "" {
			blocked++
		}
	}
	if blocked != 2 {
		t.Errorf("%d records of refused CONNECTs, want 2", blocked)
	}
}

// The same failures of a plain request: a missing connection is not an outcome of
// robots.txt.
func TestOriginNotThere(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	for authority, token := range map[string]string{e2e.DeadEnd(t): "destination_unavailable", "nowhere.test:8888": "dns_error"} {
		url := "http://" + authority + "/a"
		got := e2e.Get(t, p.Client(t, false), url)
		r := e2e.OnlyRecord(t, p.Audit, url)
		e2e.WantOwn(t, got, http.StatusBadGateway, token)
		if r.Status != http.StatusBadGateway || r.Error == "" {
			t.Errorf("record %+v", r)
		}
	}
}

// A request that a proxy cannot forward gets 400, and nothing is sent to an origin.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "malformed", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	host := o.Hostport("http")
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
		w := p.Dial(t)
		w.Send(t, lines...)
		if got := w.Receive(t, http.MethodGet); got.Status != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400\n%s", name, got.Status, got.Body)
		}
	}
	if n := len(o.Arrivals("http")) + len(o.Arrivals("https")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// A request inside a tunnel must be for the host of the tunnel.
func TestForeignInnerHost(t *testing.T) {
	t.Parallel()
	o, other := e2e.NewOrigin(t, "inner", ""), e2e.NewOrigin(t, "victim", "")
	for _, each := range []*e2e.Origin{o, other} {
		each.Handle("/a", e2e.TextPage("text/plain", "a"))
	}
	p := e2e.StartProxy(t, e2e.Unpaced)
	for name, lines := range map[string][]string{
		"Host of another":         {"GET /a HTTP/1.1", "Host: " + other.Hostport("https")},
		"another port":            {"GET /a HTTP/1.1", "Host: " + o.Name + ":1"},
		"absolute URL of another": {"GET https://" + other.Hostport("https") + "/a HTTP/1.1", "Host: " + o.Hostport("https")},
	} {
		w := p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name)
		w.Send(t, lines...)
		if got := w.Receive(t, http.MethodGet); got.Status != http.StatusMisdirectedRequest {
			t.Errorf("%s: %d, want 421\n%s", name, got.Status, got.Body)
		}
	}
	w := p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name)
	w.Send(t, "CONNECT "+other.Hostport("https")+" HTTP/1.1", "Host: "+other.Hostport("https"))
	if got := w.Receive(t, http.MethodGet); got.Status < 400 {
		t.Errorf("a CONNECT inside a tunnel: %d", got.Status)
	}
	w = p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name)
	w.Send(t, "GET /a HTTP/1.1", "Host: "+strings.ToUpper(o.Hostport("https")))
	if got := w.Receive(t, http.MethodGet); got.Status != http.StatusOK {
		t.Errorf("the tunnel's own host in capitals: %d\n%s", got.Status, got.Body)
	}
	if n := len(other.Arrivals("https")); n != 0 {
		t.Errorf("%d requests arrived at the other host", n)
	}
}

// Plain HTTP inside a tunnel is judged like other requests.
func TestPlainInsideConnect(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "inside", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	argv := []string{curl, "-q", "--proxytunnel"}
	got := e2e.FetchByCurl(t, argv, p.Env(t), []string{o.URL("http", "/a"), o.URL("http", "/private")})
	if got[0].Status != http.StatusOK || string(got[0].Body) != "a" {
		t.Errorf("allowed: %v", got[0])
	}
	e2e.WantOwn(t, got[1], http.StatusForbidden, "http_request_denied")
	e2e.OnlyRecord(t, p.Audit, o.URL("http", "/private"))
	if n := len(o.Pages("http")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
}

// A client may also send an https URL to the proxy itself. The proxy uses TLS with the
// origin.
func TestHTTPSWithoutConnect(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "clear", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	w := p.Dial(t)
	w.Send(t, "GET "+o.URL("https", "/a")+" HTTP/1.1", "Host: "+o.Hostport("https"))
	if got := w.Receive(t, http.MethodGet); got.Status != http.StatusOK || string(got.Body) != "a" {
		t.Errorf("allowed: %v", got)
	}
	w.Send(t, "GET "+o.URL("https", "/private")+" HTTP/1.1", "Host: "+o.Hostport("https"))
	e2e.WantOwn(t, w.Receive(t, http.MethodGet), http.StatusForbidden, "http_request_denied")
	e2e.WantPolite(t, o, "https", 1, 0)
}

// Python's CONNECT is HTTP/1.0 without Host and User-Agent: only the inner request is judged.
func TestOldConnect(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "old", "User-agent: OldBot\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	o.Handle("/private", e2e.TextPage("text/plain", "for others"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, c := range []struct {
		agent, path string
		status      int
	}{{"OldBot/1.0", "/a", 200}, {"OldBot/1.0", "/private", 403}, {"NewBot/1.0", "/private", 200}} {
		w := p.Dial(t)
		w.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.0")
		if got := w.Receive(t, http.MethodConnect); got.Status != http.StatusOK {
			t.Fatalf("CONNECT: %v", got)
		}
		w = w.Secure(t, p, o.Name)
		w.Send(t, "GET "+c.path+" HTTP/1.1", "Host: "+o.Hostport("https"), "User-Agent: "+c.agent)
		if got := w.Receive(t, http.MethodGet); got.Status != c.status {
			t.Errorf("%s %s: %v, want %d", c.agent, c.path, got, c.status)
		}
	}
}

// curl -0 offers only http/1.0 in ALPN. Its responses are not chunked and end with the
// connection.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	body := e2e.RandomBytes(64 << 10)
	o := e2e.NewOrigin(t, "ten", "User-agent: *\nDisallow: /private\n")
	o.Handle("/chunked", e2e.ChunkedPage(body, 1000))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		got := e2e.FetchByCurl(t, []string{curl, "-q", "-0"}, p.Env(t), []string{o.URL(scheme, "/chunked"), o.URL(scheme, "/private")})
		if got[0].Status != http.StatusOK || e2e.Digest(got[0].Body) != e2e.Digest(body) || got[0].Header.Get("Transfer-Encoding") != "" {
			t.Errorf("%s: %v", scheme, got[0])
		}
		e2e.WantOwn(t, got[1], http.StatusForbidden, "http_request_denied")
	}
	w := p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name)
	w.Send(t, "GET /chunked HTTP/1.0", "Host: "+o.Hostport("https"))
	if got := w.Receive(t, http.MethodGet); e2e.Digest(got.Body) != e2e.Digest(body) {
		t.Errorf("HTTP/1.0 inside a tunnel: %v", got)
	}
	if _, err := w.R.ReadByte(); err != io.EOF {
		t.Errorf("after the answer came %v, want the end of the connection", err)
	}
}

// Without SNI, the certificate is for the host of the CONNECT.
func TestNoServerName(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "nosni", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	w := p.Connect(t, o.Hostport("https"))
	c := tls.Client(&e2e.BufferedConn{Conn: w.Conn, Reader: w.R}, &tls.Config{InsecureSkipVerify: true}) // the name is verified below
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := c.ConnectionState().PeerCertificates[0].VerifyHostname(o.Name); err != nil {
		t.Error(err)
	}
}
