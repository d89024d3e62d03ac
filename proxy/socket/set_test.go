package socket

import (
	"net/netip"
	"testing"
)

// TestSetIgnoresTheZone checks that a Set finds the address of a remote end with a zone, as a socket of tproxy has it.
func TestSetIgnoresTheZone(t *testing.T) {
	var s Set
	local := netip.MustParseAddrPort("[fe80::2]:1")
	pair := addrPair{local, netip.MustParseAddrPort("[fe80::1]:80")}
	s.count(pair, 1)
	if !s.Has(local, netip.MustParseAddrPort("[fe80::1%eth0]:80")) {
		t.Error("not found")
	}
	s.count(pair, -1)
	if s.Has(local, pair.remote) || len(s.open) > 0 {
		t.Error("still there after its end")
	}
}
