package egress

import (
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"

	"robotsproxy/proxy/egress/dnstest"
	"robotsproxy/robots"
)

var (
	first  = netip.MustParseAddr("127.0.0.1")
	second = netip.MustParseAddr("127.0.0.2")
	nobody = netip.MustParseAddr("127.0.0.3") // nobody listens there
)

// twins are two origins on one port, at first and second, that record which of them
// received what.
type twins struct {
	first, second *origin
	names         *dnstest.Server // site.test is at first
	roots         *authority
}

// The protocols that are used with an origin.
var spoken = map[string][]string{"http": nil, "https by h1": {"http/1.1"}, "https by h2": {"h2", "http/1.1"}}

func newTwins(t *testing.T, offered []string) *twins {
	t.Helper()
	w := &twins{roots: newAuthority(t)}
	scheme, secure := "http", (*tls.Config)(nil)
	if offered != nil {
		scheme, secure = "https", &tls.Config{Certificates: []tls.Certificate{w.roots.leaf(t, "site.test", later())}, NextProtos: offered}
	}
	answer := func(where string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			io.WriteString(rw, strings.Join([]string{where, r.Host, string(body)}, " "))
		}
	}
	one, two := testkit.ListenTwice(t, first.String(), second.String())
	w.first, one = originAt(t, scheme, one)
	w.second, two = originAt(t, scheme, two)
	serveOn(t, w.first, one, answer("first"), secure)
	serveOn(t, w.second, two, answer("second"), secure)
	w.names = newNames(t, map[string][][]string{"site.test.": {{first.String()}}})
	return w
}

// site is the origin at the name.
func (w *twins) site() robots.Origin { return w.first.as("site.test") }

func (w *twins) client(t *testing.T, o Options) *Client {
	t.Helper()
	o.Resolver, o.Roots, o.OneAddress = w.names.Addr(), w.roots.pool, true
	if o.AllowPrivate == nil {
		o.AllowPrivate = loopback
	}
	return newClient(t, o)
}

// ask sends a request to the site by a Client or a Pinned, and checks where it arrived.
func (w *twins) ask(t *testing.T, sender http.RoundTripper, body string) (where string, err error) {
	t.Helper()
	method, sent := http.MethodGet, io.Reader(http.NoBody)
	if body != "" {
		method, sent = http.MethodPost, io.NopCloser(strings.NewReader(body)) // a body that cannot be sent twice
	}
	r, err := http.NewRequestWithContext(t.Context(), method, w.site().String()+"/page", sent)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := sender.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	where, rest, _ := strings.Cut(string(b), " ")
	if want := w.site().Addr() + " " + body; rest != want {
		t.Errorf("what arrived is %q, want %q", rest, want)
	}
	if asked := resp.Request.URL.Host; asked != w.site().Addr() {
		t.Errorf("the answer is to a request for %s", asked)
	}
	return where, err
}

func address(t *testing.T, d *Client, o robots.Origin) netip.Addr {
	t.Helper()
	at, err := d.Address(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A request that waited for an address is sent there, whatever idle connections to
// another address exist.
func TestWayLeadsToItsAddress(t *testing.T) {
	for name, offered := range spoken {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, offered)
			d := w.client(t, Options{Rebind: time.Nanosecond})
			visit := func(at netip.Addr, body, want string) {
				t.Helper()
				if where, err := w.ask(t, d.At(at), body); where != want || err != nil {
					t.Errorf("arrived at the %s (%v), want the %s", where, err, want)
				}
			}
			if err := d.At(address(t, d, w.site())).Reach(t.Context(), w.site()); err != nil {
				t.Fatal(err)
			}
			before := address(t, d, w.site())
			visit(before, "", "first")
			visit(before, "body", "first")
			w.names.Point("site.test.", second.String())
			after := address(t, d, w.site())
			if before != first || after != second {
				t.Fatalf("bound to %v, then to %v", before, after)
			}
			visit(after, "body", "second")
			visit(before, "", "first") // this connection has waited for it
			visit(after, "", "second")
			visit(netip.Addr{}, "", "second")
			if one, two := w.first.accepted.Load(), w.second.accepted.Load(); one != 1 || two != 1 {
				t.Errorf("%d and %d connections, want one each", one, two)
			}
		})
	}
}

// A connection that waits for its first request is used only for its own address.
func TestWayTakesNoWarmConnectionOfAnother(t *testing.T) {
	for name, offered := range spoken {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, offered)
			d := w.client(t, Options{})
			if err := d.At(netip.Addr{}).Reach(t.Context(), w.site()); err != nil {
				t.Fatal(err)
			}
			if where, err := w.ask(t, d.At(second), ""); where != "second" {
				t.Errorf("arrived at the %s, %v", where, err)
			}
			if where, err := w.ask(t, d.At(first), ""); where != "first" {
				t.Errorf("arrived at the %s, %v", where, err)
			}
			if n := w.first.accepted.Load(); n != 1 {
				t.Errorf("%d connections, want the one that waited", n)
			}
		})
	}
}

// robots.txt is fetched before requests wait. Its connection is the one that the pages
// use, at the address that answered.
func TestFirstFetchBinds(t *testing.T) {
	for name, offered := range spoken {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, offered)
			w.names.Point("site.test.", nobody.String(), second.String(), first.String())
			d := w.client(t, Options{})
			if where, err := w.ask(t, d, ""); where != "second" {
				t.Fatalf("arrived at the %s, %v", where, err)
			}
			if at := address(t, d, w.site()); at != second {
				t.Errorf("bound to %v", at)
			}
			if where, err := w.ask(t, d.At(second), ""); where != "second" {
				t.Errorf("arrived at the %s, %v", where, err)
			}
			if one, two := w.first.accepted.Load(), w.second.accepted.Load(); one != 0 || two != 1 {
				t.Errorf("%d and %d connections, want 0 and 1", one, two)
			}
			if n := w.names.Asked("site.test."); n != 1 {
				t.Errorf("the name was resolved %d times", n)
			}
		})
	}
}

// An address that cannot be dialled fails the requests that wait for it. It counts
// against the host only if the host has no other address.
func TestDeadAddress(t *testing.T) {
	ways := map[string]func(t *testing.T, w *twins, d *Client, at netip.Addr) error{
		"request": func(t *testing.T, w *twins, d *Client, at netip.Addr) error {
			_, err := w.ask(t, d.At(at), "body")
			return err
		},
		"tunnel": func(t *testing.T, w *twins, d *Client, at netip.Addr) error {
			return d.At(at).Reach(t.Context(), w.site())
		},
		"unopened tunnel": func(t *testing.T, w *twins, d *Client, at netip.Addr) error {
			conn, err := d.At(at).Dial(t.Context(), "site.test", w.site().Port)
			if err == nil {
				conn.Close()
			}
			return err
		},
	}
	for name, try := range ways {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, nil)
			w.names.Point("site.test.", nobody.String(), first.String())
			d := w.client(t, Options{})
			at := address(t, d, w.site())
			if at != nobody {
				t.Fatalf("bound to %v", at)
			}
			_, held := errors.AsType[*RetryError](try(t, w, d, at))
			if at = address(t, d, w.site()); held || at != first {
				t.Fatalf("held against the host: %t; bound to %v", held, at)
			}
			if err := try(t, w, d, at); err != nil {
				t.Errorf("at the one that lives: %v", err)
			}
		})
		t.Run(name+", all dead", func(t *testing.T) {
			w := newTwins(t, nil)
			w.names.Point("site.test.", nobody.String(), "127.0.0.4")
			d := w.client(t, Options{})
			var held []bool
			for range 2 {
				err := try(t, w, d, address(t, d, w.site()))
				_, retry := errors.AsType[*RetryError](err)
				held = append(held, retry)
				if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
					t.Errorf("%v", err)
				}
			}
			if name != "unopened tunnel" && !slices.Equal(held, []bool{false, true}) {
				t.Errorf("held against the host: %v", held)
			}
		})
	}
}

// TestDeadAddressOfRobotsTxt: the fetch of robots.txt does not wait for the next attempt.
func TestDeadAddressOfRobotsTxt(t *testing.T) {
	w := newTwins(t, nil)
	w.names.Point("site.test.", nobody.String(), first.String())
	d := w.client(t, Options{})
	address(t, d, w.site())
	if where, err := w.ask(t, d, ""); where != "first" {
		t.Errorf("arrived at the %s, %v", where, err)
	}
}

// A change of the name after the check does not matter. The address in the request is
// checked again at the socket.
func TestWayIsGuarded(t *testing.T) {
	w := newTwins(t, nil)
	only := Options{AllowPrivate: prefixes("127.0.0.1/32")}
	bound := w.client(t, only)
	address(t, bound, w.site())
	only.Rebind = time.Nanosecond
	moved := w.client(t, only)
	address(t, moved, w.site())
	w.names.Point("site.test.", second.String())
	if where, err := w.ask(t, bound.At(address(t, bound, w.site())), ""); where != "first" {
		t.Errorf("bound: arrived at the %s, %v", where, err)
	}
	for range 2 { // it is not remembered for the host
		if at, err := moved.Address(t.Context(), w.site()); !errors.Is(err, ErrForbiddenAddr) || at.IsValid() {
			t.Errorf("resolved anew: %v, %v", at, err)
		}
	}
	way := bound.At(second)
	_, asked := w.ask(t, way, "")
	_, dialled := way.Dial(t.Context(), "site.test", w.site().Port)
	bound.CloseIdle()
	for what, err := range map[string]error{"Send": asked, "Dial": dialled, "Reach": w.client(t, only).At(second).Reach(t.Context(), w.site())} {
		if !errors.Is(err, ErrForbiddenAddr) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := w.second.accepted.Load(); n != 0 {
		t.Errorf("%d connections arrived at the forbidden address", n)
	}
}

// A request to change protocols (RFC 6455 4.1) also goes to its address.
func TestWayOfAnUpgrade(t *testing.T) {
	w := newTwins(t, []string{"h2", "http/1.1"})
	d := w.client(t, Options{})
	address(t, d, w.site())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.site().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}})
	resp, err := d.At(second).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := w.second.accepted.Load(); n != 1 || resp.ProtoMajor != 1 {
		t.Errorf("%d connections arrived there, %s", n, resp.Proto)
	}
}

// The same for addresses with colons.
func TestWayIPv6(t *testing.T) {
	ca := newAuthority(t)
	six, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	six.Close()
	o, l := listen(t, "https", "::1")
	serveOn(t, o, l, hello, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "six.test", later())}, NextProtos: []string{"h2"}})
	n := newNames(t, map[string][][]string{"six.test.": {{"::1"}}})
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: prefixes("::1/128"), Roots: ca.pool, OneAddress: true})
	for range 2 {
		if _, body, err := get(t, d, o.as("six.test").String()); body != "hello" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
	}
	if n := o.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if at := address(t, d, o.as("six.test")); at != netip.IPv6Loopback() {
		t.Errorf("bound to %v", at)
	}
}

// The control and data connections of FTP use the same address.
func TestWayOfFTP(t *testing.T) {
	s := startFTP(t)
	n := newNames(t, map[string][][]string{"ftp.test.": {{nobody.String(), first.String()}}})
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: loopback, OneAddress: true})
	_, port, _ := net.SplitHostPort(s.Addr())
	site, err := robots.ParseOrigin("ftp", "ftp.test:"+port)
	if err != nil {
		t.Fatal(err)
	}
	page := func(by http.RoundTripper, path string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := by.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	if at := address(t, d, site); at != nobody {
		t.Fatalf("bound to %v", at)
	}
	if body, err := page(d, "/robots.txt"); err != nil || body != s.Files["robots.txt"] {
		t.Errorf("robots.txt: %q, %v", body, err)
	}
	if at := address(t, d, site); at != first {
		t.Fatalf("bound to %v", at)
	}
	if _, err := page(d.At(nobody), "/a.txt"); err == nil {
		t.Error("went elsewhere")
	}
	if body, err := page(d.At(first), "/a.txt"); err != nil || body != s.Files["a.txt"] {
		t.Errorf("%q, %v", body, err)
	}
}
