package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// behind creates a Client that can reach origins only through p: it allows only public
// addresses, and its own resolver knows no names.
func behind(t *testing.T, p *fakeParent, ca *authority) *Client {
	t.Helper()
	return newClient(t, Options{Parent: p.url(), Roots: ca.pool, Resolver: newNames(t, nil).Addr()})
}

// noSecret checks that a message does not contain the credentials.
func noSecret(t *testing.T, text string) {
	t.Helper()
	for _, form := range []string{parentPassword, url.QueryEscape(parentPassword), url.PathEscape(parentPassword), "s3cr", basicCredentials[6:]} {
		if strings.Contains(text, form) {
			t.Errorf("the password is in %q", text)
		}
	}
}

// eachParent runs f with an upstream proxy of each kind, with and without credentials.
func eachParent(t *testing.T, f func(t *testing.T, p *fakeParent, ca *authority)) {
	for _, kind := range parentKinds {
		for _, locked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s locked=%t", kind, locked), func(t *testing.T) {
				ca := newAuthority(t)
				f(t, startParent(t, kind, ca, locked), ca)
			})
		}
	}
}

// want returns the expected request to the upstream proxy: a tunnel, or a page in
// absolute form.
func (p *fakeParent) want(o robots.Origin, path string) ask {
	switch {
	case p.scheme == "socks5" && p.locked:
		return ask{Form: "name", Target: o.Addr(), Auth: parentUser + ":" + parentPassword}
	case p.scheme == "socks5":
		return ask{Form: "name", Target: o.Addr()}
	}
	a := ask{Form: "CONNECT HTTP/1.1", Target: o.Addr()}
	if o.Scheme == "http" && path != "" {
		a.Form, a.Target = "GET HTTP/1.1", o.String()+path
	}
	if p.locked {
		a.Auth = basicCredentials
	}
	return a
}

// RFC 9112 3.2.2 and RFC 9110 9.3.6: absolute form for http, a tunnel for https. SOCKS5
// has only tunnels. Connections are kept in all cases.
func TestParentPages(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		page := func(w http.ResponseWriter, r *http.Request) {
			for name := range r.Header {
				if strings.HasPrefix(name, "Proxy-") {
					t.Errorf("%s reached the origin", name)
				}
			}
			hello(w, r)
		}
		d := behind(t, p, ca)
		for _, o := range []*origin{serve(t, page), serve(t, page, ca.leaf(t, "origin.test", later()))} {
			before, conns := len(p.Requests()), p.accepted.Load()
			for range 3 {
				if resp, body, err := get(t, d, o.as("origin.test").String()+"/page?q=1"); err != nil || body != "hello" || resp.StatusCode != 200 {
					t.Fatalf("%q, %v", body, err)
				}
			}
			want := []ask{p.want(o.as("origin.test"), "/page?q=1")}
			if o.Scheme == "http" && p.scheme != "socks5" {
				want = append(want, want[0], want[0])
			}
			if got := p.Requests()[before:]; !slices.Equal(got, want) {
				t.Errorf("%s: the parent was asked %q, want %q", o.Scheme, got, want)
			}
			if n := p.accepted.Load() - conns; n != 1 {
				t.Errorf("%s: %d connections to the parent, want 1", o.Scheme, n)
			}
		}
	})
}

// robots.txt is requested in the same way.
func TestParentRobots(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		d := behind(t, p, ca)
		client, err := fetch.New(fetch.Options{Sender: fetch.Unpaced(d)})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []*origin{serve(t, hello), serve(t, hello, ca.leaf(t, "origin.test", later()))} {
			before := len(p.Requests())
			a := client.Fetch(t.Context(), fetch.Request{Origin: o.as("origin.test"), UserAgent: "FooBot"})
			if a.Err != nil || a.Status != 200 || string(a.Body) != "hello" || !a.Connected {
				t.Fatalf("%+v", a)
			}
			if got, want := p.Requests()[before:], []ask{p.want(o.as("origin.test"), "/robots.txt")}; !slices.Equal(got, want) {
				t.Errorf("the parent was asked %q, want %q", got, want)
			}
		}
	})
}

func TestParentReachThenRoundTripIsOneConnection(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		d := behind(t, p, ca)
		for _, o := range []*origin{serve(t, hello), serve(t, hello, ca.leaf(t, "origin.test", later()))} {
			conns := p.accepted.Load()
			for range 3 {
				if err := d.At(netip.Addr{}).Reach(t.Context(), o.as("origin.test")); err != nil {
					t.Fatal(err)
				}
			}
			ahead := int64(1)
			if o.Scheme == "http" && p.scheme != "socks5" {
				ahead = 0 // such requests go to the upstream proxy unchanged
			}
			if n := p.accepted.Load() - conns; n != ahead {
				t.Errorf("%s: %d connections by Reach, want %d", o.Scheme, n, ahead)
			}
			if _, body, err := get(t, d, o.as("origin.test").String()); err != nil || body != "hello" {
				t.Fatalf("%q, %v", body, err)
			}
			if n := p.accepted.Load() - conns; n != 1 {
				t.Errorf("%s: %d connections, want 1", o.Scheme, n)
			}
		}
	})
}

func TestParentDial(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		o, l := listen(t, "https", "127.0.0.1")
		eachConn(t, l, func(c net.Conn) {
			said, _ := io.ReadAll(c) // until the client has closed its half
			fmt.Fprintf(c, "you said %s", said)
		})
		d := behind(t, p, ca)
		conn, err := d.At(netip.Addr{}).Dial(t.Context(), "origin.test", o.Port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, spliced := conn.(*socket.Conn); spliced != (p.scheme != "https") {
			t.Errorf("a %T", conn)
		}
		io.WriteString(conn, "ping")
		if err := socket.CloseWrite(conn); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "you said ping" {
			t.Errorf("%q, %v", got, err)
		}
		if got, want := p.Requests(), []ask{p.want(o.as("origin.test"), "")}; !slices.Equal(got, want) {
			t.Errorf("the parent was asked %q, want %q", got, want)
		}
	})
}

// Addresses are sent as addresses: RFC 1928 4, and with brackets in CONNECT.
func TestParentAddresses(t *testing.T) {
	for _, kind := range parentKinds {
		ca := newAuthority(t)
		p := startParent(t, kind, ca, false)
		p.Status = map[string]int{"http": 502, "https": 502, "socks5": 4}[kind]
		d := behind(t, p, ca)
		for host, target := range map[string]string{"8.8.8.8": "8.8.8.8:443", "2606:4700::1111": "[2606:4700::1111]:443"} {
			before := len(p.Requests())
			if err := dialOnce(t, d, host, 443); err == nil {
				t.Error("a refused tunnel was made")
			}
			if got := p.Requests()[before:]; len(got) != 1 || got[0].Target != target || kind == "socks5" && got[0].Form != "address" {
				t.Errorf("%s: the parent was asked %q, want %s", kind, got, target)
			}
		}
	}
}

// CONNECT has a Via field, so that loops are detected (RFC 9110 7.6.3), and no other
// field about the client.
func TestParentHeadOfConnect(t *testing.T) {
	ca := newAuthority(t)
	p := startParent(t, "http", ca, false)
	o := serve(t, hello)
	d := behind(t, p, ca)
	if err := dialOnce(t, d, "origin.test", o.Port); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(p.Heads()), fmt.Sprintf("[map[Via:[1.1 %s]]]", d.Pseudonym()); got != want {
		t.Errorf("CONNECT had %s, want %s", got, want)
	}
	if other := newClient(t, Options{}); d.Pseudonym() == other.Pseudonym() || d.Pseudonym() == "" {
		t.Errorf("two proxies are called %q", d.Pseudonym())
	}
}

// RFC 6455 4.1: a WebSocket uses a tunnel, also with http.
func TestParentUpgrade(t *testing.T) {
	ca := newAuthority(t)
	p := startParent(t, "http", ca, true)
	o := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	d := behind(t, p, ca)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.as("origin.test").String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	resp, err := d.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := p.Requests(); resp.StatusCode != 101 || len(got) != 1 || got[0].Form != "CONNECT HTTP/1.1" {
		t.Errorf("%s, and the parent was asked %q", resp.Status, got)
	}
}

// Bytes that arrive right behind the upstream proxy's response belong to the origin.
func TestParentSpeaksAhead(t *testing.T) {
	for name, first := range map[string]string{
		"behind the answer": "HTTP/1.1 200 OK\r\n\r\nSSH-2.0-x",
		"behind a 103":      "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nSSH-2.0-x",
	} {
		t.Run(name, func(t *testing.T) {
			p := saying(t, "http", first)
			d := newClient(t, Options{Parent: p})
			conn, err := d.At(netip.Addr{}).Dial(t.Context(), "origin.test", 443)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var b [9]byte
			for i := range 3 { // also in small pieces
				if _, err := io.ReadFull(conn, b[3*i:3*i+3]); err != nil {
					t.Fatal(err)
				}
			}
			if string(b[:]) != "SSH-2.0-x" {
				t.Errorf("%q", b)
			}
			if err := socket.CloseWrite(conn); err != nil {
				t.Error(err)
			}
			if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
				t.Errorf("%q, %v", rest, err)
			}
		})
	}
}

// saying is an upstream proxy that sends a fixed text, whatever it receives, and then
// waits for the other side to close.
func saying(t *testing.T, scheme, part string) *url.URL {
	o, l := listen(t, "http", "127.0.0.1")
	eachConn(t, l, func(c net.Conn) {
		c.Read(make([]byte, 1024))
		io.WriteString(c, part)
		if part == "" {
			return
		}
		io.Copy(io.Discard, c)
	})
	return &url.URL{Scheme: scheme, Host: o.Addr(), User: url.UserPassword(parentUser, parentPassword)}
}

func TestParentAfterClose(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		d := behind(t, p, ca)
		if _, _, err := get(t, d, serve(t, hello).as("origin.test").String()); err != nil {
			t.Fatal(err)
		}
		conns := p.accepted.Load()
		d.Close()
		for _, scheme := range []string{"http", "https"} {
			if _, _, err := get(t, d, scheme+"://origin.test:8080"); !errors.Is(err, net.ErrClosed) {
				t.Errorf("RoundTrip = %v", err)
			}
		}
		if err := dialOnce(t, d, "origin.test", 443); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Dial = %v", err)
		}
		if p.accepted.Load() != conns {
			t.Error("the parent was connected to")
		}
	})
}
