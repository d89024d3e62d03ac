package egress

import (
	"net/http"
	"net/netip"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestMade checks that both addresses of a connection are compared.
func TestMade(t *testing.T) {
	from := make(chan string, 1)
	o := serve(t, func(_ http.ResponseWriter, r *http.Request) { from <- r.RemoteAddr })
	d := newClient(t, Options{AllowPrivate: loopback})
	if _, _, err := get(t, d, o.String()); err != nil {
		t.Fatal(err)
	}
	local, remote := netip.MustParseAddrPort(<-from), netip.AddrPortFrom(netip.MustParseAddr(o.Host), o.Port)
	successor, err := New(Options{AllowPrivate: loopback, Previous: d})
	testkit.Must(t, err)
	t.Cleanup(successor.Close)
	check := func(local, remote netip.AddrPort, want bool) {
		t.Helper()
		for name, c := range map[string]*Client{"the client": d, "its successor": successor} {
			if got := c.Made(local, remote); got != want {
				t.Errorf("%s: Made(%s, %s) = %t, want %t", name, local, remote, got, want)
			}
		}
	}
	check(local, remote, true)
	check(local, netip.AddrPortFrom(remote.Addr(), remote.Port()-1), false)
	check(local, netip.MustParseAddrPort("198.18.1.0:80"), false)
	check(remote, local, false)
	d.CloseIdle()
	check(local, remote, false)
}
