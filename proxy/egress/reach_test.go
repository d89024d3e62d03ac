package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

func TestReachThenRoundTripIsOneConnection(t *testing.T) {
	ca := newAuthority(t)
	cert := ca.leaf(t, "127.0.0.1", later())
	tests := []struct {
		name  string
		o     *origin
		speak string
	}{
		{"http", serve(t, hello), "HTTP/1.1"},
		{"https without HTTP/2", serveOver(t, hello, &tls.Config{Certificates: []tls.Certificate{cert}}), "HTTP/1.1"},
		{"https", serve(t, hello, cert), "HTTP/2.0"},
	}
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 { // the second and third call find that it was reached
				if err := d.At(netip.Addr{}).Reach(t.Context(), tt.o.Origin); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				resp, body, err := get(t, d, tt.o.String()+"/")
				if err != nil || body != "hello" {
					t.Fatalf("%q, %v", body, err)
				}
				if resp.Proto != tt.speak {
					t.Errorf("spoke %s, want %s", resp.Proto, tt.speak)
				}
			}
			if err := d.At(netip.Addr{}).Reach(t.Context(), tt.o.Origin); err != nil {
				t.Fatal(err)
			}
			if n := tt.o.accepted.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

func TestRoundTripCountsAsReached(t *testing.T) {
	o := serve(t, hello)
	d := newClient(t, Options{AllowPrivate: loopback})
	if _, _, err := get(t, d, o.String()); err != nil {
		t.Fatal(err)
	}
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
		t.Fatal(err)
	}
	if n := o.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestReachIsShared(t *testing.T) {
	ca := newAuthority(t)
	o := serve(t, hello, ca.leaf(t, "127.0.0.1", later()))
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := o.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestReachVerifies(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	n := newNames(t, map[string][][]string{"origin.test.": {{"127.0.0.1"}}})
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool, Resolver: n.Addr()})
	isA := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	expired := func(err error) bool {
		var invalid x509.CertificateInvalidError
		return errors.As(err, &invalid) && invalid.Reason == x509.Expired
	}
	tests := []struct {
		name string
		leaf tls.Certificate
		host string
		want func(error) bool // nil: reached
	}{
		{"good", ca.leaf(t, "origin.test", later()), "origin.test", nil},
		{"good, address", ca.leaf(t, "127.0.0.1", later()), "127.0.0.1", nil},
		{"untrusted", stranger.leaf(t, "origin.test", later()), "origin.test", isA(new(x509.UnknownAuthorityError))},
		{"expired", ca.leaf(t, "origin.test", time.Now().Add(-time.Hour)), "origin.test", expired},
		{"another name", ca.leaf(t, "other.test", later()), "origin.test", isA(new(x509.HostnameError))},
		{"address: another name is none of ours", ca.leaf(t, "other.test", later()), "127.0.0.1", nil},
		{"address: another name, untrusted", stranger.leaf(t, "other.test", later()), "127.0.0.1", isA(new(x509.HostnameError))},
		{"address: untrusted", stranger.leaf(t, "127.0.0.1", later()), "127.0.0.1", isA(new(x509.UnknownAuthorityError))},
		{"address: expired", ca.leaf(t, "other.test", time.Now().Add(-time.Hour)), "127.0.0.1", expired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := serve(t, hello, tt.leaf)
			err := d.At(netip.Addr{}).Reach(t.Context(), o.as(tt.host))
			if (tt.want == nil) != (err == nil) || err != nil && !tt.want(err) {
				t.Fatalf("Reach = %v", err)
			}
			var verification *tls.CertificateVerificationError
			if err != nil && !errors.As(err, &verification) {
				t.Errorf("the chain of %v has lost crypto/tls's type", err)
			}
			if err == nil {
				return
			}
			_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
			if !strings.Contains(err.Error(), "the certificate of "+o.as(tt.host).Addr()) || strings.Contains(err.Error(), "egress.extra_ca") != unknown {
				t.Errorf("%v: it does not say whose certificate it is, and what to do", err)
			}
			// A failure is not remembered in this case, and a request fails as well.
			if err := d.At(netip.Addr{}).Reach(t.Context(), o.as(tt.host)); err == nil {
				t.Error("reached at the second try")
			}
			if _, _, err := get(t, d, o.as(tt.host).String()); !tt.want(err) {
				t.Errorf("RoundTrip = %v", err)
			}
		})
	}
}

// A handshake that is not complete does not count as a connection.
func TestReachDuringAHandshake(t *testing.T) {
	o, l := listen(t, "https", "127.0.0.1")
	d := newClient(t, Options{AllowPrivate: loopback, TLSTimeout: 200 * time.Millisecond})
	first := make(chan error, 1)
	go func() { first <- d.At(netip.Addr{}).Reach(t.Context(), o.Origin) }()
	conn, err := l.Accept() // and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, err := range []error{d.At(netip.Addr{}).Reach(t.Context(), o.Origin), <-first} {
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, errNotTLS) {
			t.Errorf("Reach = %v, want a timeout", err)
		}
	}
}

func TestReachAlert(t *testing.T) {
	n := newNames(t, map[string][][]string{"origin.test.": {{"127.0.0.1"}}})
	d := newClient(t, Options{AllowPrivate: loopback, Resolver: n.Addr()})
	o, l := listen(t, "https", "127.0.0.1")
	noName := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("whose?") }}
	answering(t, o, l, func(c net.Conn) { tls.Server(c, noName).HandshakeContext(t.Context()) }) // it sends an alert
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
		t.Errorf("an address, and no name to send: %v", err)
	}
	var op *net.OpError
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.as("origin.test")); !errors.As(err, &op) || op.Op != "remote error" {
		t.Errorf("a name: %v", err)
	}
}

func TestReachOfNoTLS(t *testing.T) {
	banner := func(t *testing.T) *origin { // like ssh: sends first, then closes
		o, l := listen(t, "https", "127.0.0.1")
		return answering(t, o, l, func(c net.Conn) { io.WriteString(c, "SSH-2.0-test\r\n") })
	}
	mute := func(t *testing.T) *origin {
		o, l := listen(t, "https", "127.0.0.1")
		return answering(t, o, l, func(net.Conn) {})
	}
	plain := func(t *testing.T) *origin {
		o := serve(t, hello)
		o.Scheme = "https"
		return o
	}
	for name, start := range map[string]func(*testing.T) *origin{"plain HTTP": plain, "a banner": banner, "hangs up": mute} {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			d := newClient(t, Options{AllowPrivate: loopback})
			for range 3 {
				if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
					t.Fatal(err)
				}
			}
			if n := o.accepted.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
			if _, _, err := get(t, d, o.String()); err == nil {
				t.Error("an https request went through")
			}
		})
	}
}

// answering passes each connection to f and then closes it.
func answering(t *testing.T, o *origin, l net.Listener, f func(net.Conn)) *origin {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return o
}

// Reach without TLS sends nothing, so that its connection can be used with TLS and without.
func TestConnectionOfReachIsUsed(t *testing.T) {
	ca := newAuthority(t)
	for name, o := range map[string]*origin{
		"with TLS": serve(t, hello, ca.leaf(t, "127.0.0.1", later())), "without TLS": serve(t, hello),
	} {
		d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
		for range 2 {
			if err := d.At(netip.Addr{}).Reach(t.Context(), robots.Origin{Scheme: "http", Host: o.Host, Port: o.Port}); err != nil {
				t.Fatal(err)
			}
			if _, body, err := get(t, d, o.String()); err != nil || body != "hello" {
				t.Fatalf("%s: %q, %v", name, body, err)
			}
		}
		if n := o.accepted.Load(); n != 1 {
			t.Errorf("%s: %d connections, want 1", name, n)
		}
		if got := d.Stats().Origins; got.Open != 1 || got.Dialed[OutcomeOK] != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestReachRefused(t *testing.T) {
	o := deadEnd(t, "http")
	d := newClient(t, Options{AllowPrivate: loopback})
	for _, scheme := range []string{"http", "https"} {
		o.Scheme = scheme
		err := d.At(netip.Addr{}).Reach(t.Context(), o)
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" {
			t.Errorf("%s: Reach = %v", scheme, err)
		}
		if strings.Count(err.Error(), "dial "+o.Addr()) != 1 {
			t.Errorf("%s: wrapped more than once: %v", scheme, err)
		}
	}
	if err := d.At(netip.Addr{}).Reach(t.Context(), robots.Origin{}); err == nil {
		t.Error("the zero Origin was reached")
	}
	if err := d.At(netip.Addr{}).Reach(t.Context(), robots.Origin{Scheme: "https", Host: "10.0.0.1", Port: 443}); !errors.Is(err, ErrForbiddenAddr) {
		t.Errorf("a forbidden address: %v", err)
	}
}

// A caller that leaves returns at once and does not disturb the others.
func TestReachCallerLeaves(t *testing.T) {
	ca := newAuthority(t)
	o, l := listen(t, "https", "127.0.0.1")
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(t.Context())
	left, stays := make(chan error, 1), make(chan error, 1)
	go func() { left <- d.At(netip.Addr{}).Reach(ctx, o.Origin) }()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { stays <- d.At(netip.Addr{}).Reach(t.Context(), o.Origin) }()
	leave(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Errorf("the caller that left got %v", err)
	}
	server := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, o.Host, later())}})
	if err := server.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := <-stays; err != nil {
		t.Errorf("the caller that stayed got %v", err)
	}
	if n := o.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A kept connection that the origin closes is noticed and never used.
func TestWarmConnectionClosedByPeer(t *testing.T) {
	ca := newAuthority(t)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			o, l := listen(t, scheme, "127.0.0.1")
			if scheme == "https" {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, o.Host, later())}})
			}
			first := make(chan net.Conn, 1)
			ln := &firstTaken{Listener: l, first: first}
			s := &http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: time.Minute}
			go s.Serve(ln)
			t.Cleanup(func() { s.Close() })
			d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
				t.Fatal(err)
			}
			d.pool.mu.Lock()
			kept := slices.Clone(d.pool.idle[key{endpoint: endpoint{Origin: o.Origin}}])
			d.pool.mu.Unlock()
			if len(kept) != 1 {
				t.Fatal("no connection is kept")
			}
			watch := kept[0].watch
			(<-first).Close()
			<-watch.done
			if _, body, err := get(t, d, o.String()); err != nil || body != "hello" {
				t.Fatalf("%q, %v", body, err)
			}
			if n := o.accepted.Load(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

// firstTaken completes the handshake of the first connection and passes it to the test.
// The server gets the others.
type firstTaken struct {
	net.Listener
	once  sync.Once
	first chan net.Conn
}

func (l *firstTaken) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	taken := false
	l.once.Do(func() {
		taken = true
		if secure, ok := c.(*tls.Conn); ok {
			secure.Handshake()
		}
		l.first <- c
	})
	if taken {
		return l.Listener.Accept()
	}
	return c, nil
}

// Requests without a tunnel are not sent either to an origin that could not be reached.
func TestRoundTripLeavesTheUnreachableAlone(t *testing.T) {
	o := deadEnd(t, "http")
	o.Host = "site.test"
	resolver := newNames(t, map[string][][]string{"site.test.": {{"127.0.0.1"}}})
	d := newClient(t, Options{AllowPrivate: loopback, Resolver: resolver.Addr()})
	for i := range 3 {
		_, _, err := get(t, d, o.String())
		if again, ok := errors.AsType[*RetryError](err); !ok || time.Until(again.At) <= 0 {
			t.Errorf("try %d: %v", i, err)
		}
	}
	if n := resolver.Asked("site.test."); n != 1 {
		t.Errorf("tried %d times, want once", n)
	}
}

// TestOldFailure checks that an attempt to connect does not count against the origin if a later one has succeeded
// meanwhile.
func TestOldFailure(t *testing.T) {
	o := serve(t, hello)
	d := newClient(t, Options{AllowPrivate: loopback})
	began, fail := make(chan struct{}), make(chan struct{})
	attempts := 0 // one after the other
	d.tunnel = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		if attempts++; attempts == 1 {
			close(began)
			<-fail
			return nil, errors.New("no reply")
		}
		return d.dialTCP(ctx, host, port, netip.Addr{})
	}
	old := make(chan error)
	go func() {
		_, _, err := get(t, d, o.String())
		old <- err
	}()
	<-began
	if _, _, err := get(t, d, o.String()); err != nil {
		t.Fatal(err)
	}
	close(fail)
	if err := <-old; err == nil {
		t.Fatal("the first attempt succeeded")
	}
	d.CloseIdle() // so that the next request needs a connection
	if _, _, err := get(t, d, o.String()); err != nil {
		t.Errorf("after a connection and an older failure: %v", err)
	}
}

// TestStaleConnectionOfReach checks that a request gets another connection if the one that ReachTCP made is dead.
func TestStaleConnectionOfReach(t *testing.T) {
	ca := newAuthority(t)
	o, l := listen(t, "https", "127.0.0.1")
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	testkit.Must(t, d.At(netip.Addr{}).ReachTCP(t.Context(), o.Origin))
	first, err := l.Accept()
	testkit.Must(t, err)
	go func() { // resets the connection when something arrives
		first.Read(make([]byte, 1))
		first.(*net.TCPConn).SetLinger(0)
		first.Close()
	}()
	serveOn(t, o, l, hello, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
	if _, body, err := get(t, d, o.String()); body != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}
