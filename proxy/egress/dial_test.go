package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots/testkit"
)

func dialOnce(t *testing.T, d *Client, host string, port uint16) error {
	t.Helper()
	conn, err := d.At(netip.Addr{}).Dial(t.Context(), host, port)
	if err == nil {
		conn.Close()
	}
	return err
}

// Spellings that some resolvers take for loopback are never dialled, whether the resolver
// or the socket interprets them.
func TestForbiddenSpellings(t *testing.T) {
	spellings := []string{
		"127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1",
		"127.0.0.1.", "localhost", "localhost.", "0", "0.0.0.0", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::", "::127.0.0.1",
		"[::1]", "127.0.0.1%lo", "::1%lo", "fe80::1%lo", "rebound.test", "six.test", "mapped.test", "",
	}
	o, _ := listen(t, "http", "127.0.0.1")
	answers := map[string][][]string{"six.test.": {{"::1"}}, "mapped.test.": {{"64:ff9b::7f00:1"}}}
	for _, s := range spellings {
		if name := strings.TrimSuffix(s, ".") + "."; answers[name] == nil {
			answers[name] = [][]string{{"127.0.0.1"}}
		}
	}
	ours := newClient(t, Options{Resolver: newNames(t, answers).Addr()})
	systems := newClient(t, Options{DialTimeout: 5 * time.Second})
	for _, s := range spellings {
		t.Run(s, func(t *testing.T) {
			if err := dialOnce(t, ours, s, o.Port); !errors.Is(err, ErrForbiddenAddr) && !isNotFound(err) {
				t.Errorf("Dial = %v", err)
			}
			if err := ours.At(netip.Addr{}).Reach(t.Context(), o.as(s)); err == nil {
				t.Error("Reach went there")
			}
			if strings.HasSuffix(s, ".test") {
				return // only the test asks this server
			}
			if err := dialOnce(t, systems, s, o.Port); err == nil {
				t.Error("the system's resolver led there")
			}
			if s != "" && !strings.ContainsAny(s, ":%") {
				if _, _, err := get(t, ours, "http://"+net.JoinHostPort(s, itoa(o.Port))+"/"); err == nil {
					t.Error("RoundTrip went there")
				}
			}
		})
	}
	if n := o.accepted.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

func isNotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

func TestDialName(t *testing.T) {
	allowed, l := listen(t, "http", "127.0.0.1")
	go l.Accept()
	wantNobody(t, net.JoinHostPort("127.0.0.2", itoa(allowed.Port)))
	n := newNames(t, map[string][][]string{
		"mixed.test.":   {{"127.0.0.2", "10.1.2.3", "127.0.0.1", "fd00::1"}},
		"private.test.": {{"127.0.0.2", "10.1.2.3", "fd00::1"}},
		"refused.test.": {{"127.0.0.2", "127.0.0.3"}},
		"empty.test.":   {{}},
	})
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: prefixes("127.0.0.1/32", "127.0.0.3/32")})

	t.Run("public and private: the public one", func(t *testing.T) {
		conn, err := d.At(netip.Addr{}).Dial(t.Context(), "mixed.test", allowed.Port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, ok := conn.(*socket.Conn); !ok {
			t.Errorf("a %T cannot be spliced", conn)
		}
		if got := conn.RemoteAddr().String(); got != allowed.Addr() {
			t.Errorf("connected to %s", got)
		}
	})
	t.Run("private alone", func(t *testing.T) {
		if err := dialOnce(t, d, "private.test", allowed.Port); !errors.Is(err, ErrForbiddenAddr) {
			t.Errorf("Dial = %v", err)
		}
	})
	t.Run("the allowed one's error counts", func(t *testing.T) {
		err := dialOnce(t, d, "refused.test", allowed.Port)
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || errors.Is(err, ErrForbiddenAddr) {
			t.Errorf("Dial = %v", err)
		}
	})
	t.Run("an error has each address once", func(t *testing.T) {
		for host, at := range map[string]string{"127.0.0.3": "", "refused.test": fmt.Sprintf("127.0.0.3:%d: ", allowed.Port)} {
			want := fmt.Sprintf("dial %s:%d: %sconnect: connection refused", host, allowed.Port, at)
			if err := dialOnce(t, d, host, allowed.Port); err == nil || err.Error() != want {
				t.Errorf("Dial = %v, want %s", err, want)
			}
		}
	})
	t.Run("no addresses", func(t *testing.T) {
		var dns *net.DNSError
		if err := dialOnce(t, d, "empty.test", allowed.Port); !errors.As(err, &dns) {
			t.Errorf("Dial = %v", err)
		}
	})
	t.Run("no such name", func(t *testing.T) {
		if err := dialOnce(t, d, "unknown.test", allowed.Port); !isNotFound(err) {
			t.Errorf("Dial = %v", err)
		}
	})
}

// wantNobody listens on an address, where no connection may arrive until the test ends.
func wantNobody(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	testkit.Must(t, err)
	t.Cleanup(func() {
		defer l.Close()
		testkit.Must(t, l.(*net.TCPListener).SetDeadline(time.Unix(1, 0)))
		if _, err := l.Accept(); err == nil {
			t.Error("a connection arrived at the forbidden address")
		}
	})
}

// DNS rebinding: only the address that is dialled counts, whatever the name meant before.
func TestDialRebound(t *testing.T) {
	o := serve(t, hello)
	n := newNames(t, map[string][][]string{"rebound.test.": {{"127.0.0.1"}, {"127.0.0.2"}}})
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: prefixes("127.0.0.1/32")})
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.as("rebound.test")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(t, d, o.as("rebound.test").String()); err != nil {
		t.Errorf("on the connection that stands: %v", err)
	}
	if err := dialOnce(t, d, "rebound.test", o.Port); !errors.Is(err, ErrForbiddenAddr) {
		t.Errorf("Dial = %v", err)
	}
	d.CloseIdle()
	if _, _, err := get(t, d, o.as("rebound.test").String()); !errors.Is(err, ErrForbiddenAddr) {
		t.Errorf("RoundTrip = %v", err)
	}
}

// The last guard works alone: it refuses an address that reached the socket without a
// check.
func TestControlGuardsTheSocket(t *testing.T) {
	o, _ := listen(t, "http", "127.0.0.1")
	d := newClient(t, Options{})
	conn, err := d.dialSerial(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")}, o.Port)
	if !errors.Is(err, ErrForbiddenAddr) || conn != nil {
		t.Errorf("inTurn = %v, %v", conn, err)
	}
}

func TestDialBothFamilies(t *testing.T) {
	o, l := listen(t, "http", "127.0.0.1")
	defer l.Close()
	n := newNames(t, map[string][][]string{"dual.test.": {{"::1", "127.0.0.1"}}})
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: prefixes("127.0.0.0/8", "::1/128")})
	// Nobody listens on ::1, or this machine has no IPv6.
	if err := dialOnce(t, d, "dual.test", o.Port); err != nil {
		t.Errorf("Dial = %v", err)
	}
	l.Close()
	if err := dialOnce(t, d, "dual.test", o.Port); err == nil || errors.Is(err, ErrForbiddenAddr) {
		t.Errorf("nobody there: Dial = %v", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // a DNS server that never replies
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// Do not check for goroutine leaks: package net keeps an abandoned DNS query for five
	// seconds.
	d, err := New(Options{Resolver: silent.LocalAddr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		var b [512]byte
		silent.ReadFrom(b[:]) // the query has arrived
		cancel(nil)
	}()
	if conn, err := d.At(netip.Addr{}).Dial(ctx, "slow.test", 80); err == nil || conn != nil {
		t.Errorf("Dial = %v, %v", conn, err)
	}
	short, err := New(Options{Resolver: silent.LocalAddr().String(), DialTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	_, err = short.At(netip.Addr{}).Dial(t.Context(), "slow.test", 80)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("Dial = %v, want a timeout", err)
	}
	silent.Close()
	if _, err := d.At(netip.Addr{}).Dial(t.Context(), "refused.test", 80); err == nil || !strings.Contains(err.Error(), "lookup refused.test on "+silent.LocalAddr().String()) {
		t.Errorf("Dial = %v, which does not name the resolver that was asked", err)
	}
}

// TestNoTimeLeft: if a request's own time ends, the origin is not blamed.
func TestNoTimeLeft(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // a DNS server that never replies
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	d, err := New(Options{Resolver: silent.LocalAddr().String()}) // no check for goroutine leaks, as above
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://slow.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.RoundTrip(r)
		cancel()
		if _, held := errors.AsType[*RetryError](err); err == nil || held {
			t.Errorf("RoundTrip = %v", err)
		}
	}
}

func TestDialAfterClose(t *testing.T) {
	d := newClient(t, Options{AllowPrivate: loopback})
	o := serve(t, hello)
	d.Close()
	if err := dialOnce(t, d, o.Host, o.Port); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial = %v", err)
	}
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Reach = %v", err)
	}
	if _, _, err := get(t, d, o.String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("RoundTrip = %v", err)
	}
}

// TestNameServerIgnoresIPv6: the IPv4 addresses of a name are used if its name server never answers for
// IPv6 (RFC 8305 3).
func TestNameServerIgnoresIPv6(t *testing.T) {
	n := newNames(t, map[string][][]string{"half.test.": {{"127.0.0.1"}}})
	n.WithholdIPv6("half.test.")
	o := serve(t, hello)
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: loopback})
	if _, body, err := get(t, d, o.as("half.test").String()); body != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if n := n.Asked("half.test."); n != 2 {
		t.Errorf("A was requested %d times, want 2", n)
	}
}
