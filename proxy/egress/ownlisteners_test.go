package egress

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestOwnListeners(t *testing.T) {
	everything := prefixes("0.0.0.0/0", "::/0")
	here := interfaceAddr(t)
	for _, c := range []struct {
		name, own, target string
		refused           bool
	}{
		{"itself", "127.0.0.1:8080", "127.0.0.1:8080", true},
		{"IPv4-mapped", "127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", true},
		{"a mapped listener", "[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true},
		{"another port", "127.0.0.1:8080", "127.0.0.1:8081", false},
		{"another address", "127.0.0.1:8080", "127.0.0.2:8080", false},
		{"0.0.0.0 connects to this host", "127.0.0.1:8080", "0.0.0.0:8080", true},
		{":: connects to this host", "[::1]:8080", "[::]:8080", true},
		{"IPv6", "[::1]:8080", "[::1]:8080", true},
		{"a zone does not hide it", "[fe80::1%eth0]:8080", "[fe80::1]:8080", true},
		{"on all addresses: loopback", "0.0.0.0:8080", "127.0.0.1:8080", true},
		{"on all addresses: any loopback", "0.0.0.0:8080", "127.9.9.9:8080", true},
		{"on all addresses of IPv6: IPv4 loopback", "[::]:8080", "127.0.0.1:8080", true},
		{"on all addresses: IPv6 loopback", "[::]:8080", "[::1]:8080", true},
		{"on all addresses: 0.0.0.0", "[::]:8080", "0.0.0.0:8080", true},
		{"on all addresses: an interface's", "0.0.0.0:8080", netip.AddrPortFrom(here, 8080).String(), true},
		{"on all addresses: somebody else's", "0.0.0.0:8080", "8.8.8.8:8080", false},
		{"on all addresses: another port", "0.0.0.0:8080", "127.0.0.1:8081", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := newGuard(everything, nil, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort(c.own)}, false)
			if err != nil {
				t.Fatal(err)
			}
			target := netip.MustParseAddrPort(c.target)
			for way, err := range map[string]error{
				"check":   g.check(target.Addr().String(), target.Port()),
				"control": g.control(t.Context(), "tcp", c.target, nil),
			} {
				if errors.Is(err, ErrOwnListener) != c.refused || errors.Is(err, ErrForbiddenAddr) != c.refused {
					t.Errorf("%s: %v", way, err)
				}
			}
		})
	}
}

// interfaceAddr returns an address of this host, or loopback if it has no other.
func interfaceAddr(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("127.0.0.1")
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			addr = p.Addr()
		}
	}
	return addr
}

// No connection reaches the listener: by a name, by a redirect or by a tunnel.
func TestOwnListenerIsNeverDialled(t *testing.T) {
	o, _ := listen(t, "http", "127.0.0.1")
	n := newNames(t, map[string][][]string{"itself.test.": {{"127.0.0.1"}}})
	d := newClient(t, Options{Resolver: n.Addr(), AllowPrivate: loopback, Own: []netip.AddrPort{netip.MustParseAddrPort(o.Addr())}})
	for _, host := range []string{"127.0.0.1", "itself.test", "localhost"} {
		if err := dialOnce(t, d, host, o.Port); !errors.Is(err, ErrOwnListener) {
			t.Errorf("Dial %s = %v", host, err)
		}
		if err := d.At(netip.Addr{}).Reach(t.Context(), o.as(host)); !errors.Is(err, ErrOwnListener) {
			t.Errorf("Reach %s = %v", host, err)
		}
		if _, _, err := get(t, d, o.as(host).String()); !errors.Is(err, ErrOwnListener) {
			t.Errorf("RoundTrip %s = %v", host, err)
		}
	}
	if n := o.accepted.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

func TestOwnListenersAreChecked(t *testing.T) {
	for _, own := range []netip.AddrPort{{}, netip.AddrPortFrom(netip.Addr{}, 80), netip.MustParseAddrPort("127.0.0.1:0")} {
		if _, err := New(Options{Own: []netip.AddrPort{own}}); err == nil || !strings.Contains(err.Error(), "to listen on") {
			t.Errorf("New with %v = %v", own, err)
		}
	}
}
