package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A PortRange contains the ports from First to Last, both included. Its zero value is not
// valid.
type PortRange struct{ First, Last uint16 }

// DefaultPorts returns the ports that may be dialled if Options names none: HTTP,
// HTTPS, FTP and all unprivileged ports.
func DefaultPorts() []PortRange {
	return []PortRange{{80, 80}, {443, 443}, {1024, 65535}, {21, 21}}
}

// nonPublic are the addresses that are not dialled, and what they are: the IANA special-purpose registries
// (RFC 6890), except what is globally reachable in them. The first row that contains an address says what it is.
// guard.allows handles IPv4 addresses inside IPv6 addresses.
var nonPublic = []struct {
	kind     string
	prefixes []netip.Prefix
}{
	// RFC 1918; unique local (RFC 4193), with the metadata at AWS and Google Cloud; site-local, which RFC 3879 deprecates.
	{"a private address", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")},
	// RFC 1122 3.2.1.3, RFC 4291.
	{"a loopback address", prefixes("127.0.0.0/8", "::1/128")},
	// RFC 3927, with the metadata at most clouds; RFC 4291.
	{"a link-local address", prefixes("169.254.0.0/16", "fe80::/10")},
	// RFC 5771, RFC 4291.
	{"a multicast address", prefixes("224.0.0.0/4", "ff00::/8")},
	// RFC 5737, RFC 3849, RFC 9637.
	{"an address for documentation", prefixes("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")},
	// RFC 6598; also the metadata at Alibaba Cloud.
	{"an address of carrier-grade NAT", prefixes("100.64.0.0/10")},
	// This address looks public.
	{"an address of the host at Azure", prefixes("168.63.129.16/32")},
	// RFC 3056: 6to4 could bypass every IPv4 prefix above.
	{"an address of 6to4", prefixes("2002::/16")},
	{"a reserved address", prefixes(
		// RFC 791 3.2: a connection to 0.0.0.0 goes to this host.
		"0.0.0.0/8",
		// IETF protocol assignments (RFC 6890), with the metadata at Oracle Cloud.
		"192.0.0.0/24",
		// The anycast address of 6to4 relays, which RFC 7526 deprecates.
		"192.88.99.0/24",
		// Benchmarking (RFC 2544).
		"198.18.0.0/15",
		// RFC 1112 4; limited broadcast (RFC 919).
		"240.0.0.0/4",
		// IETF protocol assignments (RFC 2928): Teredo, benchmarking, ORCHID.
		"2001::/23",
		// Everything outside 2000::/3, the global unicast addresses (RFC 4291 2.4): also local NAT64 (RFC 8215), where the
		// network chooses the position of the IPv4 address.
		"::/3", "4000::/2", "8000::/1",
	)},
}

// AddressKind returns what a non-public address is, such as "a private address", or "" for a public one. Non-public
// addresses are dialled only if the options allow it. A NAT64 address is what the address behind the gateway is.
func AddressKind(addr netip.Addr) string {
	addr = addr.WithZone("").Unmap()
	if behind := behindNAT64(addr); behind.IsValid() {
		return AddressKind(behind)
	}
	for _, row := range nonPublic {
		if containsAddr(row.prefixes, addr) {
			return row.kind
		}
	}
	return ""
}

// nat64 is the well-known prefix (RFC 6052 2.1). The last 32 bits are the IPv4 address
// that a gateway connects to.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// behindNAT64 returns the IPv4 address in a NAT64 address, or the zero Addr for another address.
func behindNAT64(addr netip.Addr) netip.Addr {
	if !nat64.Contains(addr) {
		return netip.Addr{}
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

func containsAddr(all []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// A guard decides which destinations may be dialled. Its zero value allows no port.
type guard struct {
	// The addresses that are allowed although they are not public.
	private []netip.Prefix

	// The allowed ports.
	ports []PortRange

	// The addresses on which the proxy itself listens.
	own []netip.AddrPort

	// names says that check forbids wellKnownNames, because the upstream proxy resolves names.
	names bool
}

func newGuard(private []netip.Prefix, ports []PortRange, own []netip.AddrPort, names bool) (guard, error) {
	g := guard{ports: slices.Clone(ports), own: slices.Clone(own), names: names}
	for _, p := range private {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if !p.IsValid() {
			return guard{}, errors.New("invalid prefix of private addresses")
		}
		g.private = append(g.private, p)
	}
	for _, own := range g.own {
		if !own.IsValid() || own.Port() == 0 {
			return guard{}, fmt.Errorf("%v is not an address to listen on", own)
		}
	}
	for _, p := range g.ports {
		if p.First == 0 || p.First > p.Last {
			return guard{}, fmt.Errorf("invalid range of ports %d-%d", p.First, p.Last)
		}
	}
	if len(g.ports) == 0 {
		g.ports = DefaultPorts()
	}
	return g, nil
}

func (g guard) allowsPort(port uint16) bool {
	return slices.ContainsFunc(g.ports, func(p PortRange) bool { return p.First <= port && port <= p.Last })
}

// allows reports whether an address may be dialled. It checks an IPv4-mapped address as
// the IPv4 address, and a NAT64 address as the address behind the gateway. It ignores a
// zone, because a netip.Prefix contains no address with a zone.
func (g guard) allows(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	if !addr.IsValid() {
		return false
	}
	if containsAddr(g.private, addr) {
		return true
	}
	if behind := behindNAT64(addr); behind.IsValid() {
		return g.allows(behind)
	}
	return AddressKind(addr) == ""
}

// control is a net.Dialer's ControlContext. It checks the address to which the socket is
// about to connect.
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	switch {
	case err != nil || !g.allows(ap.Addr()):
		return fmt.Errorf("%w %s", ErrForbiddenAddr, address)
	case g.isOwn(ap.Addr(), ap.Port()):
		return fmt.Errorf("%w %s", ErrOwnListener, address)
	case !g.allowsPort(ap.Port()):
		return fmt.Errorf("%w %d", ErrForbiddenPort, ap.Port())
	}
	return nil
}

// check checks what is known without using the network: the port, the address if host is
// one, and with guard.names the well-known names. Other spellings of addresses ("127.1",
// "0x7f.1", "2130706433") count as names here: they are checked after they are resolved,
// and never sent to an upstream proxy.
func (g guard) check(host string, port uint16) error {
	if !g.allowsPort(port) {
		return fmt.Errorf("%w %d", ErrForbiddenPort, port)
	}
	// net.Dial takes an empty host for this host.
	if host == "" {
		return fmt.Errorf("%w: no host", ErrForbiddenAddr)
	}
	addr, err := netip.ParseAddr(host)
	isName := err != nil
	if isName && g.names {
		addr = wellKnownAddr(host)
	}
	switch {
	case !addr.IsValid():
		// The addresses of the name are checked once it is resolved.
	case !g.allows(addr) && isName:
		return fmt.Errorf("%w: %s", ErrForbiddenName, addr)
	case !g.allows(addr):
		return fmt.Errorf("%w %s", ErrForbiddenAddr, addr)
	case g.isOwn(addr, port):
		return fmt.Errorf("%w %s", ErrOwnListener, hostPort(host, port))
	}
	return nil
}

// isOwn reports whether a connection to addr and port would end at a listener of the
// proxy itself. For a listener on all addresses it asks the system for the addresses of
// this host each time, because they change.
func (g guard) isOwn(addr netip.Addr, port uint16) bool {
	addr = addr.WithZone("").Unmap()
	return slices.ContainsFunc(g.own, func(own netip.AddrPort) bool {
		listener := own.Addr().WithZone("").Unmap()
		// A connection to 0.0.0.0 or :: goes to this host.
		return own.Port() == port && (listener == addr || addr.IsUnspecified() || listener.IsUnspecified() && isLocal(addr))
	})
}

// isLocal reports whether addr is an address of this host. It returns true if the system
// cannot tell.
func isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		here, err := netip.ParsePrefix(a.String())
		return err == nil && here.Addr().Unmap() == addr
	})
}

var (
	loopbackAddr = netip.MustParseAddr("127.0.0.1")
	metadataAddr = netip.MustParseAddr("169.254.169.254")

	// wellKnownNames are names that an upstream proxy would resolve to its own host or to the
	// metadata service of its cloud. The value is the address that must be allowed for the
	// name.
	wellKnownNames = map[string]netip.Addr{
		// RFC 6761 6.3, and what the hosts file of many systems names.
		"localhost":             loopbackAddr,
		"localhost.localdomain": loopbackAddr,
		"ip6-localhost":         loopbackAddr,
		"ip6-loopback":          loopbackAddr,

		// Google Cloud, with and without its search list.
		"metadata.google.internal": metadataAddr,
		"metadata.goog":            metadataAddr,
		"metadata":                 metadataAddr,

		// AWS.
		"instance-data": metadataAddr,
	}
)

// wellKnownAddr returns the address of a well-known name. It returns the zero Addr for a
// name that must be resolved.
func wellKnownAddr(host string) netip.Addr {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	// RFC 6761 6.3.
	if strings.HasSuffix(host, ".localhost") {
		return loopbackAddr
	}
	return wellKnownNames[host]
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
