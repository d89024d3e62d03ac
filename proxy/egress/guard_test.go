package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var addresses = []struct {
	name, addr string
	want       bool
}{
	{"public", "8.8.8.8", true},
	{"public, IPv6", "2606:4700:4700::1111", true},
	{"next to 10/8", "11.0.0.1", true},
	{"next to 172.16/12", "172.32.0.1", true},
	{"next to 100.64/10", "100.128.0.1", true},
	{"AS112 is globally reachable (RFC 7535)", "192.31.196.1", true},
	{"this network", "0.0.0.0", false},
	{"this network, another", "0.1.2.3", false},
	{"private 10/8", "10.255.255.255", false},
	{"carrier-grade NAT", "100.64.0.1", false},
	{"metadata, Alibaba", "100.100.100.200", false},
	{"loopback", "127.0.0.1", false},
	{"loopback, its end", "127.255.255.254", false},
	{"host services, Azure", "168.63.129.16", false},
	{"link-local", "169.254.0.1", false},
	{"metadata", "169.254.169.254", false},
	{"private 172.16/12", "172.31.255.1", false},
	{"IETF assignments", "192.0.0.8", false},
	{"documentation 1", "192.0.2.1", false},
	{"6to4 relay", "192.88.99.1", false},
	{"private 192.168/16", "192.168.1.1", false},
	{"benchmarking", "198.19.255.255", false},
	{"documentation 2", "198.51.100.7", false},
	{"documentation 3", "203.0.113.7", false},
	{"multicast", "224.0.0.1", false},
	{"reserved", "240.0.0.1", false},
	{"broadcast", "255.255.255.255", false},

	{"unspecified", "::", false},
	{"loopback, IPv6", "::1", false},
	{"IPv4-compatible", "::127.0.0.1", false},
	{"IPv4-compatible, public", "::8.8.8.8", false},
	{"IPv4-mapped loopback", "::ffff:127.0.0.1", false},
	{"IPv4-mapped private", "::ffff:10.0.0.1", false},
	{"IPv4-mapped metadata", "::ffff:a9fe:a9fe", false},
	{"IPv4-mapped public", "::ffff:8.8.8.8", true},
	{"NAT64 of a public address", "64:ff9b::8.8.8.8", true},
	{"NAT64 of loopback", "64:ff9b::7f00:1", false},
	{"NAT64 of metadata", "64:ff9b::169.254.169.254", false},
	{"NAT64 of local use", "64:ff9b:1::8.8.8.8", false},
	{"beside NAT64", "64:ff9b:0:0:0:1::1", false},
	{"discard", "100::1", false},
	{"dummy", "100:0:0:1::1", false},
	{"Teredo", "2001:0:4136:e378:8000:63bf:3fff:fdd2", false},
	{"benchmarking, IPv6", "2001:2::1", false},
	{"ORCHIDv2", "2001:20::1", false},
	{"documentation, IPv6", "2001:db8::1", false},
	{"behind the IETF's", "2001:200::1", true},
	{"6to4 of loopback", "2002:7f00:1::", false},
	{"6to4 of a public address", "2002:808:808::1", false},
	{"documentation, new", "3fff::1", false},
	{"segment routing", "5f00::1", false},
	{"unique local", "fd00::1", false},
	{"metadata, AWS", "fd00:ec2::254", false},
	{"link-local, IPv6", "fe80::1", false},
	{"link-local with a zone", "fe80::1%lo", false},
	{"a zone does not make it public", "::1%lo", false},
	{"site-local", "fec0::1", false},
	{"multicast, IPv6", "ff02::1", false},
	{"not global unicast", "4000::1", false},
	{"not global unicast", "a000::1", false},
	{"not global unicast", "1::1", false},
}

func TestAllows(t *testing.T) {
	g, err := newGuard(nil, nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range addresses {
		t.Run(tt.name, func(t *testing.T) {
			addr := netip.MustParseAddr(tt.addr)
			if got := g.allows(addr); got != tt.want {
				t.Errorf("allows(%s) = %t, want %t", addr, got, tt.want)
			}
			err := g.check(tt.addr, 80)
			if errors.Is(err, ErrForbiddenAddr) == tt.want {
				t.Errorf("check(%s) = %v", addr, err)
			}
			err = g.control(t.Context(), "tcp", netip.AddrPortFrom(addr, 80).String(), nil)
			if errors.Is(err, ErrForbiddenAddr) == tt.want {
				t.Errorf("control(%s) = %v", addr, err)
			}
		})
	}
	if g.allows(netip.Addr{}) {
		t.Error("the zero address is allowed")
	}
}

func TestAllowPrivate(t *testing.T) {
	g, err := newGuard(prefixes("127.0.0.1/32", "fd00::/8", "::ffff:10.0.0.0/104"), nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"127.0.0.1":            true,
		"::ffff:127.0.0.1":     true, // the same address
		"64:ff9b::127.0.0.1":   true, // the same behind the gateway
		"127.0.0.2":            false,
		"10.1.2.3":             true,
		"fd12::1":              true,
		"fc00::1":              false,
		"::1":                  false,
		"64:ff9b::169.254.1.1": false,
	} {
		if got := g.allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("allows(%s) = %t, want %t", text, got, want)
		}
	}
}

func TestCheckPorts(t *testing.T) {
	defaults := newClient(t, Options{})
	one := newClient(t, Options{Ports: only(8443)})
	var zero Client
	tests := []struct {
		name   string
		client *Client
		port   uint16
		want   bool
	}{
		{"default: http", defaults, 80, true},
		{"default: https", defaults, 443, true},
		{"default: ftp", defaults, 21, true},
		{"default: the first unprivileged", defaults, 1024, true},
		{"default: the last", defaults, 65535, true},
		{"default: smtp", defaults, 25, false},
		{"default: ssh", defaults, 22, false},
		{"default: the last privileged", defaults, 1023, false},
		{"no port", defaults, 0, false},
		{"configured", one, 8443, true},
		{"configured: the default ones are not added", one, 443, false},
		{"the zero Client", &zero, 443, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.client.Check("example.com", tt.port)
			if (err == nil) != tt.want || err != nil && !errors.Is(err, ErrForbiddenPort) {
				t.Errorf("Check(%d) = %v, want allowed: %t", tt.port, err, tt.want)
			}
			if tt.want {
				return
			}
			if _, err := tt.client.At(netip.Addr{}).Dial(t.Context(), "192.0.2.1", tt.port); !errors.Is(err, ErrForbiddenPort) {
				t.Errorf("Dial = %v, want ErrForbiddenPort", err)
			}
		})
	}
}

func TestCheckHosts(t *testing.T) {
	d := newClient(t, Options{})
	if err := d.Check("", 80); !errors.Is(err, ErrForbiddenAddr) {
		t.Errorf("an empty host: %v", err)
	}
	// These are not literals: they are checked when they are resolved.
	for _, host := range []string{"localhost", "127.1", "0x7f.1", "2130706433", "127.0.0.1.nip.io"} {
		if err := d.Check(host, 80); err != nil {
			t.Errorf("Check(%q) = %v", host, err)
		}
	}
	err := d.Check("10.0.0.1", 80)
	if want := "check 10.0.0.1:80: forbidden address 10.0.0.1"; err == nil || err.Error() != want {
		t.Errorf("Check = %v, want %s", err, want)
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"no prefix", Options{AllowPrivate: make([]netip.Prefix, 1)}, "prefix"},
		{"the zero range", Options{Ports: make([]PortRange, 1)}, "invalid range of ports 0-0"},
		{"a range upside down", Options{Ports: []PortRange{{443, 80}}}, "invalid range of ports 443-80"},
		{"resolver without a port", Options{Resolver: "192.0.2.1"}, "missing port"},
		{"resolver without a host", Options{Resolver: ":53"}, "empty"},
		{"a negative limit", Options{TLSTimeout: -time.Second}, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestAddressKinds checks that exactly the addresses that are not allowed have a kind, and what some are.
func TestAddressKinds(t *testing.T) {
	for _, a := range addresses {
		if got := AddressKind(netip.MustParseAddr(a.addr)); (got == "") != a.want {
			t.Errorf("%s, %s: %q", a.name, a.addr, got)
		}
	}
	for addr, want := range map[string]string{
		"10.0.0.7": "a private address", "fd00::1": "a private address", "::ffff:192.168.0.1": "a private address", "64:ff9b::10.0.0.7": "a private address",
		"127.0.0.2": "a loopback address", "::1": "a loopback address", "169.254.169.254": "a link-local address", "fe80::1%lo": "a link-local address",
		"100.64.0.1": "an address of carrier-grade NAT", "2001:db8::1": "an address for documentation", "2001:0:1::1": "a reserved address",
		"ff02::1": "a multicast address", "0.0.0.0": "a reserved address", "::": "a reserved address",
	} {
		if got := AddressKind(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}
