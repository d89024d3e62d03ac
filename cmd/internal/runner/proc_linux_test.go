package runner

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

func TestParseSocket(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the lines are those of a little-endian processor")
	}
	const rest = " 00000000:00000000 00:00000000 00000000  1000        0 "
	for _, c := range []struct {
		name, line string
		want       socketLine
		leaves     bool // over TCP
		udpLeaves  bool
	}{
		{"connected", "  12: 0200A8C0:C350 070200C0:01BB 01" + rest + "4711 1 0000000000000000 20 4 30 10 -1",
			socketLine{netip.MustParseAddrPort("192.168.0.2:50000"), netip.MustParseAddrPort("192.0.2.7:443"), 1, 4711}, true, true},
		{"another port", "   0: 0200A8C0:C350 070200C0:1F90 01" + rest + "1",
			socketLine{netip.MustParseAddrPort("192.168.0.2:50000"), netip.MustParseAddrPort("192.0.2.7:8080"), 1, 1}, true, false},
		{"name server", "   0: 0200A8C0:C350 070200C0:0035 01" + rest + "1",
			socketLine{netip.MustParseAddrPort("192.168.0.2:50000"), netip.MustParseAddrPort("192.0.2.7:53"), 1, 1}, false, false},
		{"loopback", "   0: 0100007F:C350 0500007F:01BB 01" + rest + "1",
			socketLine{netip.MustParseAddrPort("127.0.0.1:50000"), netip.MustParseAddrPort("127.0.0.5:443"), 1, 1}, false, false},
		{"listening", "   0: 00000000:1F90 00000000:0000 0A" + rest + "1",
			socketLine{netip.MustParseAddrPort("0.0.0.0:8080"), netip.MustParseAddrPort("0.0.0.0:0"), stateListen, 1}, false, false},
		{"closed by its process", "   0: 0200A8C0:C350 070200C0:01BB 06 00000000:00000000 03:000010F5 00000000     0        0 0 3",
			socketLine{netip.MustParseAddrPort("192.168.0.2:50000"), netip.MustParseAddrPort("192.0.2.7:443"), 6, 0}, false, false},
		{"IPv6", "   1: B80D0120000000000000000001000000:C350 B80D0120000000000000000002000000:01BB 01" + rest + "9",
			socketLine{netip.MustParseAddrPort("[2001:db8::1]:50000"), netip.MustParseAddrPort("[2001:db8::2]:443"), 1, 9}, true, true},
		{"IPv6 loopback", "   1: 00000000000000000000000001000000:C350 00000000000000000000000001000000:01BB 01" + rest + "9",
			socketLine{netip.MustParseAddrPort("[::1]:50000"), netip.MustParseAddrPort("[::1]:443"), 1, 9}, false, false},
		{"IPv4 in IPv6", "   1: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:01BB 01" + rest + "9",
			socketLine{netip.MustParseAddrPort("127.0.0.1:50000"), netip.MustParseAddrPort("127.0.0.1:443"), 1, 9}, false, false},
	} {
		l, ok := parseSocket([]byte(c.line))
		if !ok || l != c.want || l.leaves(false) != c.leaves || l.leaves(true) != c.udpLeaves {
			t.Errorf("%s: %+v, %v, leaves %v and %v", c.name, l, ok, l.leaves(false), l.leaves(true))
		}
	}
	for _, line := range []string{
		"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		"0: 0100007F:C350 0500007F 01" + rest + "1", "0: 0100007F:C350 0500:01BB 01" + rest + "1", "0: 0100007F:C350 0500007:01BB 01" + rest + "1",
		"0: 0100007F:C350 0500007G:01BB 01" + rest + "1", "0: 0100007F:C350 0500007F:11BBB 01" + rest + "1",
		"0: 0100007F:C350 0500007F:01BB xx" + rest + "1", "0: 0100007F:C350 0500007F:01BB 01" + rest + "-1", "0: 0100007F:C350 0500007F:01BB 01",
	} {
		if l, ok := parseSocket([]byte(line)); ok {
			t.Errorf("%q: %+v", line, l)
		}
	}
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		text string
		want process
		ok   bool
	}{
		{"17 (python3) S 1 17 17 0 -1", process{1, "python3"}, true},
		{"17 (a) S 9 (b c) R 42 17", process{42, "a) S 9 (b c"}, true},
		{"17 (\x1b[2J\n) S 3 17", process{3, "\x1b[2J\n"}, true},
		{"17 () Z 3 17", process{3, ""}, true},
		{"17 (node-MainThread) S 3 17", process{3, "node"}, true},
		{"", process{}, false},
		{"17 )(", process{}, false},
		{"17 (a)", process{}, false},
		{"17 (a) S", process{}, false},
		{"17 (a) S x", process{}, false},
	} {
		if got, ok := parseStat([]byte(c.text)); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %+v, %v", c.text, got, ok)
		}
	}
}

func TestIsDescendant(t *testing.T) {
	all := map[int]process{1: {0, "init"}, 10: {1, "run"}, 11: {10, "sh"}, 12: {11, "python3"}, 20: {1, "orphan"}, 30: {31, "x"}, 31: {30, "y"}, 40: {39, "z"}}
	for pid, want := range map[int]bool{1: false, 10: false, 11: true, 12: true, 20: false, 30: false, 40: false, 99: false} {
		if isDescendant(all, 10, pid) != want {
			t.Errorf("%d: %v", pid, !want)
		}
	}
}
