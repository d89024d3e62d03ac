package runner

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestPrintDirectConnections(t *testing.T) {
	address := netip.MustParseAddrPort("192.0.2.7:443")
	for _, c := range []struct {
		name string
		add  map[directPair]int
		want string
	}{
		{"none", nil, ""},
		{"the most connections first", map[directPair]int{
			{program: "curl", to: address}:                                          1,
			{program: "python3", to: netip.MustParseAddrPort("[2001:db8::1]:8443")}: 3,
			{program: "chrome", to: address, udp: true}:                             2,
		}, `robotsproxy: went past the proxy: python3 to [2001:db8::1]:8443 (at least 3 connections)
robotsproxy: went past the proxy: chrome to 192.0.2.7:443 over UDP (at least 2 connections)
robotsproxy: went past the proxy: curl to 192.0.2.7:443 (at least 1 connection)
`},
		{"names that are not printable", map[directPair]int{
			{program: "a\x1b[2J\n", to: address}: 3, {program: "", to: address}: 2, {program: "x to y", to: address}: 1,
		}, `robotsproxy: went past the proxy: "a\x1b[2J\n" to 192.0.2.7:443 (at least 3 connections)
robotsproxy: went past the proxy: "" to 192.0.2.7:443 (at least 2 connections)
robotsproxy: went past the proxy: "x to y" to 192.0.2.7:443 (at least 1 connection)
`},
	} {
		var conns directConns
		for d, n := range c.add {
			for range n {
				conns.add(d)
			}
		}
		var b strings.Builder
		conns.print(&b)
		if b.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, b.String(), c.want)
		}
	}
}

// TestDirectConnectionsAreBounded: programs and addresses beyond the bounds are counted together.
func TestDirectConnectionsAreBounded(t *testing.T) {
	var conns directConns
	for i := range 2 * maxDirect {
		conns.add(directPair{program: fmt.Sprint("p", i), to: netip.MustParseAddrPort("192.0.2.7:443")})
	}
	if len(conns.counts) != maxDirect {
		t.Errorf("%d are counted apart", len(conns.counts))
	}
	var b strings.Builder
	conns.print(&b)
	want := fmt.Sprintf("robotsproxy: and at least %d more connections\n", 2*maxDirect-directShown)
	if lines := strings.Count(b.String(), "\n"); lines != directShown+1 || !strings.HasSuffix(b.String(), want) {
		t.Errorf("%d lines, want the last one to be %s%s", lines, want, b.String())
	}
}
